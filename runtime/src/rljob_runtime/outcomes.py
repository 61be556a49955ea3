"""Map the exception that ended a run to the launcher's exit code and the root cause.

Ray wraps the exception of a worker once per actor on the way to the driver, and its text repeats whole tracebacks.
People need the innermost exception; the operator needs to know whether another attempt can help.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from rljob_runtime.contract import ExitCode, Outcome, legible

MESSAGE_LIMIT = 1500
"""Limit of Outcome.message in the contract."""

NODES_MAX = 8
"""Maximum number of nodes that the operator avoids."""

FENCED = "Fenced"
"""Reason of an attempt that has lost its checkpoint folder to another one."""

START_GONE = "CheckpointChanged"
"""Reason of an attempt whose starting checkpoint disappeared while it was loaded."""

NODE_LOST = "NodeLost"
"""Reason of an attempt that lost one of its nodes."""

PLACE_ERRORS = {
    "NodeDiedError": NODE_LOST,
    "RaySystemError": "RayUnavailable",
    "ActorUnavailableError": "RayUnavailable",
    "RpcError": "RayUnavailable",
    "OutOfMemoryError": "OutOfMemory",
}
"""Ray's exceptions (ray/exceptions.py, 2.60) for failures of the environment, not of the run."""

DEVICE_OUT_OF_MEMORY = "DeviceOutOfMemory"
"""Reason of a run that exhausted a device's memory."""

DISK_FULL = "DiskFull"
"""Reason of a run whose node has no disk space left."""

DEVICE_MEMORY_WORDS = ("npu out of memory", "cuda out of memory")
"""Messages of torch_npu and of torch, which raised a plain RuntimeError before torch.OutOfMemoryError, as vLLM still
does for a worker."""

NODE_DEATH_WORDS = ("node died", "its node has died", "node was terminated", "node is dead")
"""Ray has no exception class for an actor that died with its node; only the message of ActorDiedError shows it."""


class RefusedError(Exception):
    """The launcher refuses to continue. Has the exit code, a reason, and a message with the fix."""

    def __init__(self, code: ExitCode, reason: str, message: str, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.nodes = nodes
        """Kubernetes nodes at fault."""


class NodeLostError(RuntimeError):
    """A node of the run is lost. Exceptions that the run raises as a result are not the cause."""

    def __init__(self, message: str, suspect: str | None = None) -> None:
        super().__init__(message)
        self.suspect = suspect
        """Name of the Kubernetes node, if exactly one was lost and its name is known."""


class FencedError(RuntimeError):
    """Another attempt or job owns the checkpoint folder; see claims.py."""


class StartGoneError(RuntimeError):
    """The step that the run was loading has disappeared; see resume.py."""


class Verdict:
    """The single outcome of an attempt. The main thread and watching threads may detect an end concurrently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.outcome: Outcome | None = None
        """The first outcome, which is final."""

    def settle(self, outcome: Outcome) -> Outcome:
        """Set the outcome unless there is one; return the final outcome."""
        with self._lock:
            self.outcome = self.outcome or outcome
            return self.outcome


def bounded(message: str) -> str:
    """Convert a message to one line and cut a long one in the middle, because the cause is at its start or end."""
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
    """Return the package that defines an exception: torch and Ray both have an OutOfMemoryError."""
    return type(error).__module__.partition(".")[0]


def place_reason(error: BaseException) -> str | None:
    """Return the reason if Ray reports a failure of the environment."""
    if package_of(error) != "ray":
        return None
    name = type(error).__name__
    if name == "ActorDiedError" and any(words in str(error).lower() for words in NODE_DEATH_WORDS):
        return NODE_LOST
    return PLACE_ERRORS.get(name)


def is_device_memory(error: BaseException) -> bool:
    """Return whether a device, not the node, is out of memory."""
    if type(error).__name__ == "OutOfMemoryError" and package_of(error) == "torch":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in DEVICE_MEMORY_WORDS)


def is_disk_full(error: BaseException, disk: Path | None) -> bool:
    """Return whether the node's disk, which contains `disk`, is full. Errors of files elsewhere name those files."""
    if disk is None or not isinstance(error, OSError) or error.errno != errno.ENOSPC:
        return False
    return isinstance(error.filename, str) and Path(error.filename).is_relative_to(disk)


def from_error(error: BaseException, last_step: int = 0, disk: Path | None = None) -> Outcome:
    """Return the outcome of a run that raised. `disk` is the spool, a folder on the node's own disk."""
    if isinstance(error, RefusedError):
        text = bounded(str(error))
        return Outcome(int(error.code), error.reason, text, last_step=last_step, nodes=error.nodes[:NODES_MAX])
    if isinstance(error, NodeLostError):
        text = bounded(str(error))
        return Outcome(int(ExitCode.ENVIRONMENT), NODE_LOST, text, last_step=last_step, suspect=error.suspect)
    cause = innermost(error)
    # Ray makes the cause's class a second base of its task error, so the name becomes "RayTaskError(ValueError)".
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
