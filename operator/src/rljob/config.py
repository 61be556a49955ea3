"""Settings of the operator process: one frozen value, read once from flags and environment variables.

A field `api_burst` is the flag `--api-burst` and the variable `RLJOB_API_BURST`; the flag takes precedence.
Requirements in the cluster (permissions, ports, probes) are in cluster/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob.core.observed import PARTIAL_SECONDS
from rljob.core.scheduling.node_faults import DEVICE_INFO_NAMESPACE, NODE_INFO_NAMESPACE, PUBLIC_FAULTS_NAMESPACE
from rljob.core.scheduling.port_blocks import BLOCKS, FIRST_PORT
from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob.render.ports import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
PORT_MIN = 1024
_PLAIN_VARIABLES = {"kubeconfig": "KUBECONFIG"}
"""Settings with a well-known variable of their own."""


class ConfigError(ValueError):
    """A setting is invalid; the message names the flag and the variable."""


@dataclass(frozen=True)
class Config:
    """The settings."""

    namespace: str = ""
    """Namespace whose RLJobs are reconciled; empty for all."""
    workers: int = 16
    """Number of jobs reconciled at the same time. At most half of them are jobs without any objects yet."""
    token_key_file: Path = Path("/etc/rljob/token/key")
    """File with the key from which the tokens of Ray clusters are derived: a mounted Secret of at least 32 bytes."""
    http_port: int = 8080
    """Port of /healthz, /readyz and /metrics."""
    lease_namespace: str = ""
    """Namespace of the Lease; empty for the pod's own."""
    lease_name: str = "rljob-operator"
    """Name of the Lease."""
    identity: str = ""
    """Name of this process in the Lease and in events; empty for the host name and a random suffix."""
    resync_seconds: int = 300
    """Seconds between two comparisons of the store with the API server."""
    api_requests_per_second: int = 100
    """Average number of requests to the API server per second; KubeRay's default (`qps` in ray-operator/main.go)."""
    api_burst: int = 200
    """Number of requests to the API server allowed at once; KubeRay's default (`burst`)."""
    recipes_folder: str = ""
    """Folder with the release's built-in recipes, applied at startup; empty for none."""
    accelerators_folder: str = ""
    """Folder with tables of accelerator classes, merged over the built-in one in the order of their names."""
    host_ports_first: int = FIRST_PORT
    """First port of the blocks for jobs with network.mode Host. Nothing else on the nodes may use the range."""
    host_ports_blocks: int = BLOCKS
    """Number of these blocks, of 32 ports each."""
    device_info_namespace: str = DEVICE_INFO_NAMESPACE
    """Namespace in which MindCluster's device plug-in reports the health of each node's NPUs; empty to use only the
    nodes."""
    node_info_namespace: str = NODE_INFO_NAMESPACE
    """Namespace in which MindCluster's NodeD reports faults of the machines themselves; empty to read none."""
    public_faults_namespace: str = PUBLIC_FAULTS_NAMESPACE
    """Namespace in which MindCluster's ClusterD lists the faults that other systems report; empty to read none."""
    partial_seconds: int = PARTIAL_SECONDS
    """Seconds that a cluster without a queue may hold some of its nodes while other jobs use the rest; then it releases
    them. Use a higher value if nodes are added on demand, which takes minutes."""
    closed_namespaces: str = ""
    """Namespaces, separated by commas, in which the chart's NetworkPolicy closes the ports of jobs and its admission
    policies judge the limits: only there may jobs run a Ray without token authentication."""
    memory_limit: int = 0
    """Bytes that the container may use, of which the jobs of one namespace get a part; 0 if there is no limit."""
    runtime_image: str = OPERATOR_IMAGE
    """Image that carries the runtime for jobs with runtime.injection Auto: the operator's own."""
    log_level: str = "INFO"
    """Minimum level of log lines: DEBUG, INFO, WARNING or ERROR."""
    kubeconfig: str = ""
    """Kubeconfig file; empty for the pod's service account."""

    def __post_init__(self) -> None:
        """Reject invalid values before anything starts."""
        for name in ("workers", "resync_seconds", "api_requests_per_second", "api_burst", "partial_seconds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{_both(name)} is {getattr(self, name)}; use at least 1")
        if self.memory_limit < 0:
            raise ConfigError(f"{_both('memory_limit')} is {self.memory_limit}; use a number of bytes, or 0")
        if not 0 <= self.http_port < 2**16:
            raise ConfigError(f"{_both('http_port')} is {self.http_port}; use a valid port number")
        if self.host_ports_blocks < 1:
            raise ConfigError(f"{_both('host_ports_blocks')} is {self.host_ports_blocks}; use at least 1")
        last = self.host_ports_first + self.host_ports_blocks * BLOCK_SIZE - 1
        if self.host_ports_first < PORT_MIN or last >= 2**16:
            raise ConfigError(
                f"{_both('host_ports_first')} is {self.host_ports_first}, and {self.host_ports_blocks} blocks "
                f"of {BLOCK_SIZE} end at {last}; use a range within {PORT_MIN} to 65535"
            )
        if self.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"{_both('log_level')} is {self.log_level!r}; use DEBUG, INFO, WARNING or ERROR")


def read_config(arguments: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Read the settings; `--help` prints them all and exits."""
    parser = argparse.ArgumentParser(prog="python -m rljob", description="The RLJob operator.")
    for field in dataclasses.fields(Config):
        parser.add_argument(
            _flag(field.name), dest=field.name, help=f"default {field.default!r}, or {_variable(field)}"
        )
    given = vars(parser.parse_args(arguments))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        text = given[field.name] if given[field.name] is not None else environ.get(_variable(field))
        if text is not None:
            values[field.name] = _parse(field, text)
    config = Config(**values)
    return dataclasses.replace(
        config,
        lease_namespace=config.lease_namespace or _own_namespace(),
        identity=config.identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
    )


def _parse(field: dataclasses.Field[Any], text: str) -> object:
    kind: type[object] = type(field.default)
    try:
        return Path(text) if issubclass(kind, Path) else kind(text)  # type: ignore[call-arg]
    except ValueError:
        raise ConfigError(f"{_both(field.name)} is {text!r}; use a whole number") from None


def _own_namespace() -> str:
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(field: dataclasses.Field[Any]) -> str:
    return _PLAIN_VARIABLES.get(field.name, f"RLJOB_{field.name.upper()}")


def _both(name: str) -> str:
    return f"{_flag(name)} (or RLJOB_{name.upper()})"
