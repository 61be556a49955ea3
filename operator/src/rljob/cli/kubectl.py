"""Access to the cluster through kubectl, which supports every authentication method and which users of RLJobs have.

All calls are read-only, except for what `rljob check-image`, `rljob conformance` and, if no other pod can read the
records, `rljob report` create and delete again, and for the request of `rljob export`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.api.v1alpha1 import GROUP, RecipeKind
from rljob.cli import bounded_process
from rljob.cli.errors import UsageError
from rljob.core.observed import RecipeId

TIMEOUT_SECONDS = 20
EVERYWHERE = "--all-namespaces"


@dataclass(frozen=True)
class Place:
    """Cluster and namespace to use. None: those of the current context."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    """Path of the kubeconfig. None: kubectl's default."""
    program: str = "kubectl"


def get_job(name: str, place: Place) -> dict[str, Any]:
    """Get an RLJob."""
    return _get(f"rljobs.{GROUP}", name, place)


def get_pod(name: str, place: Place) -> dict[str, Any]:
    """Get a pod."""
    return _get("pods", name, place)


def get_config_map(name: str, place: Place) -> dict[str, Any]:
    """Get a ConfigMap."""
    return _get("configmaps", name, place)


def find_recipe(recipe: RecipeId, place: Place) -> dict[str, Any] | None:
    """Get a recipe, or None if there is none."""
    plural = "rlrecipes" if recipe.kind is RecipeKind.RL_RECIPE else "clusterrlrecipes"
    try:
        return _get(f"{plural}.{GROUP}", recipe.name, place)
    except NotFoundError:
        return None


def list_items(resource: str, place: Place, *options: str) -> list[dict[str, Any]]:
    """List objects."""
    items: list[dict[str, Any]] = _get(resource, "", place, *options)["items"]
    return items


def list_jobs(place: Place, *, everywhere: bool = False) -> list[dict[str, Any]]:
    """List the RLJobs of the namespace, or of all namespaces."""
    return list_items(f"rljobs.{GROUP}", place, *([EVERYWHERE] if everywhere else []))


def find_pods(selector: str, place: Place) -> list[dict[str, Any]]:
    """List the pods with these labels."""
    return list_items("pods", place, "--selector", selector)


def create(manifest: Mapping[str, Any], place: Place) -> None:
    """Create an object."""
    run(["create", "--filename", "-"], place, text=json.dumps(manifest))


def list_readable(resource: str, place: Place, *options: str) -> list[dict[str, Any]] | None:
    """List objects. Return None if the caller may not, or if the cluster has no such kind."""
    try:
        return list_items(resource, place, *options)
    except (NotFoundError, UnreadableError):
        return None


class NotFoundError(UsageError):
    """The cluster has no such object."""


class UnreadableError(UsageError):
    """The caller may not read the object, or the cluster does not know the kind."""


_UNREADABLE = ("(Forbidden)", "the server doesn't have a resource type")
_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*\.go:\d+\] .*")
"""A line of klog, which client-go writes for each request that failed before kubectl prints the cause."""
NO_CLUSTER = (
    "kubectl knows no cluster: there is no kubeconfig; set KUBECONFIG to the kubeconfig of your cluster, or put it at "
    "~/.kube/config"
)
_FIXES: tuple[tuple[str, str], ...] = (
    (
        r"context was not found|context \S+ does not exist",
        "`kubectl config get-contexts` lists those to pass with --context",
    ),
    (
        r"the server doesn't have a resource type \"?rl|no matches for kind \"?RL",
        "the cluster has no RLJobs: install the chart rljob-operator, or choose another cluster with --context",
    ),
    (r"the server doesn't have a resource type \S*kueue|cluster ?queues|local ?queues", "install Kueue in the cluster"),
    (
        r"exceeded quota|failed quota",
        "wait until others free their part of the namespace's ResourceQuota, or use another namespace with -n",
    ),
    (
        r"violates PodSecurity|denied the request|denied request",
        "a rule of the cluster refuses it: use another namespace with -n, or ask an administrator for an exception",
    ),
    (r"\(NotFound\)", "check the name, and the namespace with -n"),
    (r"\(Forbidden\)", "ask an administrator of the cluster for this permission"),
    (r"Unauthorized|must be logged in", "log in to the cluster again, or choose another context with --context"),
    (
        r"was refused|Unable to connect|no such host|i/o timeout",
        "check that the cluster runs, and that the kubeconfig or --context names the right one",
    ),
)
"""What to do about an error of kubectl, by its message (kubectl v1.32 to v1.36); the first that matches."""


def _explained(said: str) -> str:
    """Return kubectl's error as one line that says what to do."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not _LOG_LINE.fullmatch(line)] or lines[-1:]
    if any("localhost:8080 was refused" in line for line in told):
        # The address that client-go tries without any configuration.
        return NO_CLUSTER
    text = " ".join(told) or "failed without a message; run the same command with kubectl"
    fix = next((fix for pattern, fix in _FIXES if re.search(pattern, text)), None)
    return f"kubectl: {text}; {fix}" if fix else f"kubectl: {text}"


def _get(resource: str, name: str, place: Place, *options: str) -> dict[str, Any]:
    words = ["get", resource, *([name] if name else []), *options, "--output", "json"]
    try:
        manifest: dict[str, Any] = json.loads(run(words, place))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"kubectl get {resource}: the answer is not JSON ({error}); check `kubectl version`"
        ) from error
    return manifest


def run(arguments: Sequence[str], place: Place, *, text: str | None = None, seconds: float = TIMEOUT_SECONDS) -> str:
    """Run kubectl and return its output. Raise UsageError with its error message if it fails."""
    if shutil.which(place.program) is None:
        raise UsageError("kubectl is not on the PATH; install it, because the cluster is read through it")
    options = ["--namespace", place.namespace] if place.namespace and EVERYWHERE not in arguments else []
    options += ["--context", place.context] if place.context else []
    options += ["--kubeconfig", str(place.kubeconfig)] if place.kubeconfig else []
    # Arguments after -- belong to another program, whose output is quoted.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = [place.program, *arguments[:end], *options, *arguments[end:]]
    try:
        done = bounded_process.run(words, text, seconds)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"kubectl did not answer within {seconds:.0f} s; check that the cluster is reachable"
        ) from error
    except bounded_process.TooLongError as error:
        raise UsageError(
            f"kubectl {arguments[0]} wrote more than {bounded_process.OUTPUT_BYTES >> 20} MiB, and was stopped; select "
            "less, or look at what the pod writes"
        ) from error
    if done.code:
        said = done.errors.strip() or done.output.strip()
        unreadable = any(words in said for words in _UNREADABLE)
        kind = NotFoundError if "(NotFound)" in said else UnreadableError if unreadable else UsageError
        raise kind(_explained(said))
    return done.output
