"""Map the exception that ended a run to the launcher's exit code and the root cause.

Ray wraps the exception of a worker once per actor on the way to the driver, and its text repeats whole tracebacks.
People need the innermost exception; the operator needs to know whether another attempt can help.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
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

PROCESS_LOST = "ProcessLost"
"""Reason of an attempt that lost one of its processes, while the node lives."""

OUT_OF_MEMORY = "OutOfMemory"
"""Reason of an attempt of which Ray has ended a process to keep its node."""

PLACE_ERRORS = {
    "NodeDiedError": NODE_LOST,
    "RaySystemError": "RayUnavailable",
    "ActorUnavailableError": "RayUnavailable",
    "RpcError": "RayUnavailable",
    "OutOfMemoryError": OUT_OF_MEMORY,
}
"""Ray's exceptions (ray/exceptions.py, 2.60) for failures of the environment, not of the run."""

RUN_FAILED = "RunFailed"
"""Reason of a run that failed by itself."""

DEVICE_OUT_OF_MEMORY = "DeviceOutOfMemory"
"""Reason of a run that exhausted a device's memory."""

DISK_FULL = "DiskFull"
"""Reason of a run whose node has no disk space left."""

DEVICE_MEMORY_WORDS = ("npu out of memory", "cuda out of memory")
"""Messages of torch_npu and of torch, which raised a plain RuntimeError before torch.OutOfMemoryError, as vLLM still
does for a worker."""

NODE_DEATH_WORDS = ("node died", "its node has died", "node was terminated", "node is dead")
"""Ray has no exception class for an actor that died with its node; only the message of ActorDiedError shows it."""


CREATION_WORDS = "because of an error raised in its creation task"
"""Message of ActorDiedError (ray/exceptions.py, 2.60): Ray has the exception of an actor's constructor as text only."""


class RefusedError(Exception):
    """The launcher refuses to continue. Has the exit code, a reason, and a message with the fix."""

    def __init__(self, code: ExitCode, reason: str, message: str, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.nodes = nodes
        """Kubernetes nodes at fault."""

    def __reduce__(self) -> tuple[type[RefusedError], tuple[ExitCode, str, str, tuple[str, ...]]]:
        """Keep the attributes on the way from the trainer's process to the launcher."""
        return RefusedError, (self.code, self.reason, str(self), self.nodes)


class LossError(RuntimeError):
    """A node or a process of the run is lost. Exceptions that the run raises as a result are not the cause."""

    def __init__(
        self, reason: str, message: str, suspect: str | None = None, code: ExitCode = ExitCode.ENVIRONMENT
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.suspect = suspect
        """Name of the Kubernetes node, if exactly one was lost and its name is known."""


class FencedError(RuntimeError):
    """Another attempt or job owns the checkpoint folder; see checkpoints/claims.py."""


class StartGoneError(RuntimeError):
    """The step that the run was loading has disappeared; see checkpoints/resume.py."""


class WorkerFailedError(RuntimeError):
    """A rollout or reward worker raised; see first_failure.py. What the trainer raised next is not the cause."""

    def __init__(self, text: str, reason: str, exit_code: int) -> None:
        super().__init__(text, reason, exit_code)
        self.text = text
        self.reason = reason
        self.exit_code = exit_code

    def __str__(self) -> str:
        """Return the worker's exception with its place."""
        return self.text


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


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it wraps: Ray's task errors (`.cause`) and explicit chains (`raise ... from`)."""
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        yield inner
        seen.add(id(inner))
        cause = getattr(inner, "cause", None)
        inner = cause if isinstance(cause, BaseException) else inner.__cause__


def innermost(error: BaseException) -> BaseException:
    """Return the last exception of a chain."""
    *_, last = chain(error)
    return last


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


def text_of(error: BaseException) -> str:
    """Return type and message of an exception; for an actor that was not created, those of its constructor's."""
    said = str(error)
    if package_of(error) == "ray" and CREATION_WORDS in said:
        _, _, end = said.rpartition('\n  File "')
        lines = end.splitlines()
        begin = next((index for index, line in enumerate(lines[1:], 1) if line[:1].strip()), len(lines))
        if begin < len(lines):
            return "\n".join(lines[begin:])
    # Ray makes the cause's class a second base of its task error, so the name becomes "RayTaskError(ValueError)".
    return f"{type(error).__name__}: {said}".strip()


def verdict(error: BaseException, disk: Path | None = None) -> tuple[ExitCode, str]:
    """Return exit code and reason of an exception that is not one of our own refusals."""
    cause = innermost(error)
    if isinstance(cause, (FencedError, StartGoneError)):
        return ExitCode.ENVIRONMENT, FENCED if isinstance(cause, FencedError) else START_GONE
    if is_device_memory(cause):
        return ExitCode.FAILED, DEVICE_OUT_OF_MEMORY
    place = DISK_FULL if is_disk_full(cause, disk) else place_reason(cause)
    return (ExitCode.FAILED, RUN_FAILED) if place is None else (ExitCode.ENVIRONMENT, place)


def from_error(error: BaseException, last_step: int = 0, disk: Path | None = None) -> Outcome:
    """Return the outcome of a run that raised. `disk` is the spool, a folder on the node's own disk."""
    if isinstance(error, LossError):
        text = bounded(str(error))
        return Outcome(int(error.code), error.reason, text, last_step=last_step, suspect=error.suspect)
    # A refusal of the trainer's process arrives within a task error, which Ray makes a RefusedError as well.
    links = (link for link in chain(error) if isinstance(link, RefusedError) and package_of(link) != "ray")
    if (refusal := next(links, None)) is not None:
        text = bounded(str(refusal))
        return Outcome(int(refusal.code), refusal.reason, text, last_step=last_step, nodes=refusal.nodes[:NODES_MAX])
    cause = innermost(error)
    if isinstance(cause, WorkerFailedError):
        return Outcome(cause.exit_code, cause.reason, bounded(str(cause)), last_step=last_step)
    code, reason = verdict(error, disk)
    return Outcome(int(code), reason, bounded(text_of(cause)), last_step=last_step)
