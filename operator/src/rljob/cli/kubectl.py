"""Access to the cluster through kubectl, which supports every authentication method and which users of RLJobs have.

What is written: the manifests of `rljob apply`; the patches of `suspend`, `resume`, `stop`, `restart` and `export`; the
deletion of `delete`; and what `check-image`, `conformance` and what reads the records create and delete again.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, TextIO

from rljob.api.group import GROUP
from rljob.cli import bounded_process
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit

if TYPE_CHECKING:
    from rljob.core.observed import RecipeId

Manifest = dict[str, Any]

TIMEOUT_SECONDS = 20
JOBS = f"rljobs.{GROUP}"
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


def get_secret(name: str, place: Place) -> dict[str, Any]:
    """Get a Secret. The caller shows of it only what the user asks for."""
    return _get("secrets", name, place)


def get_config_map(name: str, place: Place) -> dict[str, Any]:
    """Get a ConfigMap."""
    return _get("configmaps", name, place)


def find_recipe(recipe: RecipeId, place: Place) -> dict[str, Any] | None:
    """Get a recipe, or None if there is none."""
    try:
        return _get(f"{recipe.kind.value.lower()}s.{GROUP}", recipe.name, place)
    except NotFoundError:
        return None


def list_items(resource: str, place: Place, *options: str) -> list[dict[str, Any]]:
    """List objects."""
    items: list[dict[str, Any]] = _get(resource, "", place, *options)["items"]
    return items


def list_jobs(place: Place, *, everywhere: bool = False) -> list[dict[str, Any]]:
    """List the RLJobs of the namespace, or of all namespaces."""
    return list_items(f"rljobs.{GROUP}", place, *([EVERYWHERE] if everywhere else []))


def check_namespace(place: Place) -> None:
    """Raise NotFoundError if the namespace does not exist; a list in such a namespace is empty."""
    try:
        _get("namespaces", place.namespace or "default", Place(None, place.context, place.kubeconfig, place.program))
    except UnreadableError:
        # Who may not read namespaces cannot be told.
        return


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

    code: ClassVar[Exit] = Exit.NOT_FOUND


class UnreadableError(UsageError):
    """The caller may not read the object, or the cluster does not know the kind."""

    code: ClassVar[Exit] = Exit.DENIED


class MissingKindError(UnreadableError):
    """The cluster does not know the kind: the CRDs of RLJob, KubeRay or Kueue are not installed."""

    code: ClassVar[Exit] = Exit.INCOMPLETE


class LoginError(UsageError):
    """The cluster does not accept the credentials."""

    code: ClassVar[Exit] = Exit.DENIED


class UnreachableError(UsageError):
    """No API server answers."""

    code: ClassVar[Exit] = Exit.UNREACHABLE


_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*\.go:\d+\] .*")
"""A line of klog, which client-go writes for each request that failed before kubectl prints the cause."""
NO_CLUSTER = (
    "kubectl knows no cluster: there is no kubeconfig; set KUBECONFIG to the kubeconfig of your cluster, or put it at "
    "~/.kube/config"
)
_FIXES: tuple[tuple[type[UsageError], str, str], ...] = (
    (
        UsageError,
        r"context was not found|context \S+ does not exist",
        "`kubectl config get-contexts` lists those to pass with --context",
    ),
    (
        MissingKindError,
        r"the server doesn't have a resource type \"?(rl|clusterrl)|no matches for kind \"?(Cluster)?RL",
        "the cluster has no RLJobs: install the chart rljob-operator, or choose another cluster with --context",
    ),
    (
        MissingKindError,
        r"the server doesn't have a resource type \"?ray",
        "install KubeRay in the cluster (docs/install.md), or choose another cluster with --context",
    ),
    (
        MissingKindError,
        r"the server doesn't have a resource type \S*kueue|(cluster|local) ?queues",
        "install Kueue in the cluster",
    ),
    (MissingKindError, r"the server doesn't have a resource type|no matches for kind", "install its CRD first"),
    (
        UsageError,
        r"exceeded quota|failed quota",
        "wait until others free their part of the namespace's ResourceQuota, or use another namespace with -n",
    ),
    (
        UsageError,
        r"violates PodSecurity|denied the request|denied request",
        "a rule of the cluster refuses it: use another namespace with -n, or ask an administrator for an exception",
    ),
    (NotFoundError, r"namespaces \S+ not found", "check -n; `kubectl get namespaces` lists those that exist"),
    (
        NotFoundError,
        r"\(NotFound\): rljobs",
        "check the name, and the namespace with -n; `rljob list -A` lists the jobs of all namespaces",
    ),
    (NotFoundError, r"\(NotFound\)", "check the name, and the namespace with -n"),
    (UnreadableError, r"\(Forbidden\)", "ask an administrator of the cluster for this permission"),
    (
        LoginError,
        r"Unauthorized|must be logged in|asked for the client to provide credentials|getting credentials",
        "log in to the cluster again, or choose another context with --context",
    ),
    (
        UnreachableError,
        r"x509: |tls: ",
        "the server's certificate does not fit the kubeconfig: get a new kubeconfig of the cluster",
    ),
    (
        UnreachableError,
        r"was refused|refused the connection|Unable to connect|no such host|i/o timeout|connection reset|EOF$",
        "check that the cluster runs, and that the kubeconfig or --context names the right one",
    ),
)
"""Kind of an error of kubectl and what to do, by its message (kubectl v1.32 to v1.36); the first that matches."""


def error_of(said: str) -> UsageError:
    """Return the error for what kubectl wrote: one line with the cause and the fix."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not _LOG_LINE.fullmatch(line)] or lines[-1:]
    if any("localhost:8080 was refused" in line for line in told):
        # The address that client-go tries without any configuration.
        return UnreachableError(NO_CLUSTER)
    text = " ".join(told) or "failed without a message; run the same command with kubectl"
    for kind, pattern, fix in _FIXES:
        if re.search(pattern, text):
            return kind(f"kubectl: {text}; {fix}")
    return UsageError(f"kubectl: {text}")


def _get(resource: str, name: str, place: Place, *options: str) -> dict[str, Any]:
    words = ["get", resource, *([name] if name else []), *options, "--output", "json"]
    try:
        manifest: dict[str, Any] = json.loads(run(words, place))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"kubectl get {resource}: the answer is not JSON ({error}); check `kubectl version`"
        ) from error
    return manifest


def command_line(arguments: Sequence[str], place: Place) -> list[str]:
    """Return the command line of kubectl. Raise UsageError if it is not installed."""
    if shutil.which(place.program) is None:
        raise UsageError("kubectl is not on the PATH; install it, because the cluster is read through it")
    options = ["--namespace", place.namespace] if place.namespace and EVERYWHERE not in arguments else []
    options += ["--context", place.context] if place.context else []
    options += ["--kubeconfig", str(place.kubeconfig)] if place.kubeconfig else []
    # Arguments after -- belong to another program, whose output is quoted.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [place.program, *arguments[:end], *options, *arguments[end:]]


def run(arguments: Sequence[str], place: Place, *, text: str | None = None, seconds: float = TIMEOUT_SECONDS) -> str:
    """Run kubectl and return its output. Raise UsageError with its error message if it fails."""
    words = command_line(arguments, place)
    try:
        done = bounded_process.run(words, text, seconds)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(
            f"kubectl did not answer within {seconds:.0f} s; check that the cluster is reachable"
        ) from error
    except bounded_process.TooLongError as error:
        raise UsageError(
            f"kubectl {arguments[0]} wrote more than {bounded_process.OUTPUT_BYTES >> 20} MiB, and was stopped; select "
            "less, or look at what the pod writes"
        ) from error
    if done.code:
        raise error_of(done.errors.strip() or done.output.strip())
    return done.output


ERROR_BYTES = 64 << 10
"""The end of what is written to standard error, from which the cause is read."""


def stream(arguments: Sequence[str], place: Place, *, show_errors: bool = False) -> int:
    """Run kubectl, print its output as it comes, and return its exit code; its errors are raised or printed.

    There is no deadline, because the user follows the output and interrupts it. Memory is bounded: pieces are printed
    as they are read.
    """
    with subprocess.Popen(command_line(arguments, place), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        errors = _Tail(process.stderr, show=show_errors)
        try:
            _copy(process.stdout, sys.stdout)
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        said = errors.text()
    if code and not show_errors:
        raise error_of(said)
    return code


class _Tail:
    """Reads a stream in a thread, so that neither stream blocks the other, and keeps its end."""

    def __init__(self, stream: IO[bytes] | None, *, show: bool) -> None:
        self._stream, self._show, self._end = stream, show, ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        _copy(self._stream, self)

    def write(self, text: str) -> None:
        """Keep and show a piece."""
        self._end = (self._end + text)[-ERROR_BYTES:]
        if self._show:
            sys.stderr.write(text)

    def flush(self) -> None:
        """Show what was written."""
        sys.stderr.flush()

    def text(self) -> str:
        """Return the end, after all of it was read."""
        self._thread.join()
        return self._end


def _copy(stream: IO[bytes] | None, out: TextIO | _Tail) -> None:
    """Copy text as it comes, in pieces that end at characters."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while stream is not None and (piece := os.read(stream.fileno(), 1 << 16)):
        out.write(decoder.decode(piece))
        out.flush()


def patch_job(name: str, body: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Send a JSON merge patch of an RLJob, and return the job."""
    words = ["patch", f"rljobs.{GROUP}", name, "--type", "merge", "--patch", json.dumps(body), "--output", "json"]
    changed: dict[str, Any] = json.loads(run(words, place))
    return changed
