"""Where the cluster is and who asks: a kubeconfig with every method of kubernetes.aio, or the pod's service account.

The order is that of kubectl: the file that the caller names, `KUBECONFIG`, `~/.kube/config`, the service account. The
file may run a credential plug-in of a cloud; it is run again when the API server refuses what it returned before.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from rljob.client.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
DEFAULT_FILE = "~/.kube/config"
DEFAULT_NAMESPACE = "default"
LOGIN_SECONDS = 120.0
"""A credential plug-in may ask its cloud, or open a browser."""


@dataclass(frozen=True)
class Login:
    """Credentials, and where they are from."""

    configuration: Configuration
    namespace: str
    """The namespace of the context, or of the pod."""
    source: str
    """For messages: which file and context."""

    @property
    def server(self) -> str:
        """Return the address of the API server."""
        return str(self.configuration.host)

    @property
    def is_anonymous(self) -> bool:
        """Return whether there are no credentials, for example because a plug-in failed."""
        return not self.configuration.api_key and not self.configuration.cert_file


async def log_in(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> Login:
    """Return the credentials to use. Raise ConfigurationError if there are none."""
    given = os.fspath(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or DEFAULT_FILE
    paths = [os.path.expanduser(path) for path in given.split(os.pathsep) if path]  # noqa: PTH111, ASYNC240 - no I/O
    if any(map(os.path.isfile, paths)):
        return await _from_files(os.pathsep.join(paths), context)
    if kubeconfig or context or "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise ConfigurationError(
            f"there is no kubeconfig at {given}, and this is not a pod with a service account; pass kubeconfig=, or "
            "set KUBECONFIG to the file of your cluster"
        )
    return _from_service_account()


async def _from_files(files: str, context: str | None) -> Login:
    configuration = Configuration()
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            loader = await load_kube_config(
                config_file=files, context=context, client_configuration=configuration, persist_config=False
            )
        current = loader.current_context
        namespace = current["context"].get("namespace") or DEFAULT_NAMESPACE
    except TimeoutError as error:
        raise ConfigurationError(
            f"{files}: the credentials were not read within {LOGIN_SECONDS:.0f} s; run `kubectl get rljobs` to see "
            "what its credential plug-in waits for"
        ) from error
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        wanted = f"context {context}" if context else "the current context"
        raise ConfigurationError(
            f"{files}: {wanted} cannot be used: {error}; `kubectl config get-contexts` lists those to pass as context="
        ) from error
    return Login(configuration, namespace, f"context {current['name']} of {files}")


def _from_service_account() -> Login:
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise ConfigurationError(
            f"the service account of this pod cannot be used: {error}; do not set automountServiceAccountToken: false, "
            "or pass kubeconfig="
        ) from error
    try:
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        namespace = DEFAULT_NAMESPACE
    return Login(configuration, namespace, "the pod's service account")
