"""From whatever ended a run to the launcher's exit code and the true cause.

Ray wraps the exception of a worker once for each actor on the way to the driver, and its text repeats whole tracebacks.
What a person needs is the innermost exception; what the operator needs is whether another attempt can help.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from rljob_runtime.contract import ExitCode, Outcome, legible

MESSAGE_LIMIT = 1500
"""Contract: Outcome.message."""

NODES_MAX = 8
"""The operator avoids so many at most."""

FENCED = "Fenced"
"""Reason of an attempt that somebody else has taken over from."""

START_GONE = "CheckpointChanged"
"""Reason of an attempt whose beginning went while it was loaded."""

NODE_LOST = "NodeLost"
"""Reason of an attempt one of whose nodes is gone."""

PLACE_ERRORS = {
    "NodeDiedError": NODE_LOST,
    "RaySystemError": "RayUnavailable",
    "ActorUnavailableError": "RayUnavailable",
    "RpcError": "RayUnavailable",
    "OutOfMemoryError": "OutOfMemory",
}
"""Ray's exceptions (ray/exceptions.py, 2.60) that tell of the place, not of the run."""

DEVICE_OUT_OF_MEMORY = "DeviceOutOfMemory"
"""Reason of a run that used up the memory of a device."""

DISK_FULL = "DiskFull"
"""Reason of a run whose node has no room left on its disk."""

DEVICE_MEMORY_WORDS = ("npu out of memory", "cuda out of memory")
"""Of torch_npu and torch, which raised a bare RuntimeError before torch.OutOfMemoryError, as vLLM does for a worker."""

NODE_DEATH_WORDS = ("node died", "its node has died", "node was terminated", "node is dead")
"""An actor's death by its node has no class of its own; ray's text says so (ActorDiedError)."""


class RefusedError(Exception):
    """The launcher will not go on: carries the exit code, a reason and what to do."""

    def __init__(self, code: ExitCode, reason: str, message: str, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.nodes = nodes
        """Kubernetes nodes at fault."""


class NodeLostError(RuntimeError):
    """A node of the run is gone; what the rest of the run raised then is the cause of this, and not of the end."""

    def __init__(self, message: str, suspect: str | None = None) -> None:
        super().__init__(message)
        self.suspect = suspect
        """Kubernetes node, where it is one and its name is known."""


class FencedError(RuntimeError):
    """Somebody else owns the checkpoint folder; see claims.py."""


class StartGoneError(RuntimeError):
    """The step that the run was loading is there no more; see resume.py."""


class Verdict:
    """The one outcome of an attempt: its main thread and those that watch it may see an end at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.outcome: Outcome | None = None
        """The one that stands."""

    def settle(self, outcome: Outcome) -> Outcome:
        """Let an outcome stand unless another one does already; give the one that stands."""
        with self._lock:
            self.outcome = self.outcome or outcome
            return self.outcome


def bounded(message: str) -> str:
    """Bring a message to one line and cut a long one in the middle: the cause stands at its ends."""
    message = legible(" ".join(message.split()))
    if len(message) <= MESSAGE_LIMIT:
        return message
    half = (MESSAGE_LIMIT - 5) // 2
    return f"{message[:half]} ... {message[-half:]}"


def innermost(error: BaseException) -> BaseException:
    """Unwrap Ray's task errors (`.cause`) and explicit chains (`raise ... from`)."""
    seen = {id(error)}
    while True:
        inner = getattr(error, "cause", None)
        if not isinstance(inner, BaseException):
            inner = error.__cause__
        if inner is None or id(inner) in seen:
            return error
        seen.add(id(inner))
        error = inner


def package_of(error: BaseException) -> str:
    """Name the package that defines an exception: torch and Ray each have an OutOfMemoryError."""
    return type(error).__module__.partition(".")[0]


def place_reason(error: BaseException) -> str | None:
    """Give the reason if Ray says that the place is at fault."""
    if package_of(error) != "ray":
        return None
    name = type(error).__name__
    if name == "ActorDiedError" and any(words in str(error).lower() for words in NODE_DEATH_WORDS):
        return NODE_LOST
    return PLACE_ERRORS.get(name)


def is_device_memory(error: BaseException) -> bool:
    """Tell whether a device, and not the node, is short of memory."""
    if type(error).__name__ == "OutOfMemoryError" and package_of(error) == "torch":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in DEVICE_MEMORY_WORDS)


def is_disk_full(error: BaseException, disk: Path | None) -> bool:
    """Tell whether the node's disk, of which `disk` is a folder, has no room left; errors of its files name them."""
    if disk is None or not isinstance(error, OSError) or error.errno != errno.ENOSPC:
        return False
    return isinstance(error.filename, str) and Path(error.filename).is_relative_to(disk)


def from_error(error: BaseException, last_step: int = 0, disk: Path | None = None) -> Outcome:
    """Name the end of a run that raised; `disk` is the spool, a folder on the node's own disk."""
    if isinstance(error, RefusedError):
        text = bounded(str(error))
        return Outcome(int(error.code), error.reason, text, last_step=last_step, nodes=error.nodes[:NODES_MAX])
    if isinstance(error, NodeLostError):
        text = bounded(str(error))
        return Outcome(int(ExitCode.ENVIRONMENT), NODE_LOST, text, last_step=last_step, suspect=error.suspect)
    cause = innermost(error)
    # Ray gives a task error the class of its cause as a second base, so its name says "RayTaskError(ValueError)".
    name = type(cause).__name__
    text = bounded(f"{name}: {cause}".strip())
    if isinstance(cause, (FencedError, StartGoneError)):
        reason = FENCED if isinstance(cause, FencedError) else START_GONE
        return Outcome(int(ExitCode.ENVIRONMENT), reason, text, last_step=last_step)
    if is_device_memory(cause):
        return Outcome(int(ExitCode.FAILED), DEVICE_OUT_OF_MEMORY, text, last_step=last_step)
    place = DISK_FULL if is_disk_full(cause, disk) else place_reason(cause)
    if place is not None:
        return Outcome(int(ExitCode.ENVIRONMENT), place, text, last_step=last_step)
    return Outcome(int(ExitCode.FAILED), "RunFailed", text, last_step=last_step)
