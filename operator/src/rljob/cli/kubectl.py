"""Access to the cluster through kubectl, which supports every authentication method and which users of RLJobs have.

What is written: the manifests of `rljob apply`; the patches of `suspend`, `resume`, `stop`, `restart` and `export`; the
deletion of `delete`; and what `check-image`, `conformance` and what reads the records create and delete again.
"""

from __future__ import annotations

import codecs
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from rljob.api.group import GROUP
from rljob.api.printing import without_colours
from rljob.cli import bounded_process
from rljob.cli.errors import UsageError
from rljob.cli.kubectl_errors import (
    LoginError,
    MissingKindError,
    NotFoundError,
    UnreachableError,
    UnreadableError,
    error_of,
)

if TYPE_CHECKING:
    from rljob.core.observed import RecipeId

__all__ = ["LoginError", "MissingKindError", "NotFoundError", "UnreachableError", "UnreadableError", "error_of"]
"""The errors are part of this module for its callers."""

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


def get_recorded_job(name: str, place: Place, command: str) -> dict[str, Any]:
    """Get an RLJob whose records a command reads. If there is none, say how the records of a deleted job are read."""
    try:
        return get_job(name, place)
    except NotFoundError as error:
        where = f" -n {place.namespace}" if place.namespace else ""
        raise NotFoundError(
            f"{error}. If it was deleted, its records are where observability.logPath is mounted: "
            f"`rljob {command} {name}{where} --records FOLDER`"
        ) from error


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


def list_jobs(place: Place, *options: str, everywhere: bool = False) -> list[dict[str, Any]]:
    """List the RLJobs of the namespace, or of all namespaces. Raise NotFoundError if there is no such namespace."""
    return list_of_namespace(JOBS, place, *options, *([EVERYWHERE] if everywhere else []))


def list_of_namespace(resource: str, place: Place, *options: str) -> list[dict[str, Any]]:
    """List objects. Raise NotFoundError if the namespace that the caller names does not exist."""
    found = list_items(resource, place, *options)
    if not found and place.namespace and EVERYWHERE not in options:
        check_namespace(place)
    return found


def check_namespace(place: Place) -> None:
    """Raise NotFoundError if the namespace does not exist; a list in such a namespace is empty."""
    try:
        _get("namespaces", place.namespace or "default", Place(None, place.context, place.kubeconfig, place.program))
    except UnreadableError:
        # A user who may not read namespaces gets no answer here.
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


def run(
    arguments: Sequence[str],
    place: Place,
    *,
    text: str | None = None,
    seconds: float = TIMEOUT_SECONDS,
    warnings: list[str] | None = None,
) -> str:
    """Run kubectl and return its output; `warnings` takes those of the API server. Raise UsageError with its error."""
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
    if warnings is not None:
        warnings += [line for line in done.errors.splitlines() if line.startswith(WARNING)]
    return done.output


WARNING = "Warning: "
"""Begins a warning of the API server, such as of an admission policy (k8s.io/client-go v0.36.2, rest/warnings.go)."""
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
            _copy(process.stdout, _Plain(sys.stdout))
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        said = errors.text()
    if code and not show_errors:
        raise error_of(said)
    return code


class _Plain:
    """Writes the output of a program without its colours: as escapes they would hide the text."""

    def __init__(self, out: TextIO) -> None:
        self._out, self.flush = out, out.flush

    def write(self, text: str) -> None:
        """Write a piece."""
        self._out.write(without_colours(text))


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


def _copy(stream: IO[bytes] | None, out: _Plain | _Tail) -> None:
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
