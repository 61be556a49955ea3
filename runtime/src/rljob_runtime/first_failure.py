"""The first exception of a rollout or reward worker in a step: what a failed run reports as its cause.

verl's agent-loop worker logs the exceptions of a prompt and marks the prompt as failed (0.9.1, _run_prompt in
trainer/ppo/v1/agent_loop_tq.py). If every prompt fails, the trainer raises "no materializable trajectories", or what
its code makes of an empty batch. Workers leave the first exception in Ray's key-value store, which the trainer reads
when it fails and clears when a step begins. One key of one run, so nothing accumulates.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rljob_runtime.contract import codec
from rljob_runtime.outcomes import WorkerFailedError, bounded, chain, innermost, text_of, verdict
from rljob_runtime.stacks import register as stack_register

NAMESPACE = "rljob"
FRAME = re.compile(r'File "([^"\n]{1,500})", line (\d{1,9})')
"""A line of a traceback. Ray sends the traceback of a remote exception as text only."""
INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python3")
"""Parts of the paths of code that the user did not write."""


@dataclass(frozen=True)
class Failure:
    """An exception, as far as the outcome needs it. Its class may not exist in the trainer's process."""

    exit_code: int
    reason: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception with its type, message and place."""
        code, reason = verdict(error)
        where = f" ({place})" if (place := place_of(error)) else ""
        return cls(int(code), reason, bounded(text_of(innermost(error)) + where))


def place_of(error: BaseException) -> str | None:
    """Return `file:line` of the innermost frame, preferably of code that is not installed."""
    frames: list[tuple[str, int]] = []
    for link in chain(error):
        own = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(link.__traceback__)]
        told = [(name, int(line)) for name, line in FRAME.findall(str(link))] if _is_remote(link) else []
        frames = told or own or frames
    if not frames:
        return None
    written = [frame for frame in frames if not any(part in frame[0] for part in INSTALLED)]
    name, line = (written or frames)[-1]
    return f"{name}:{line}"


def note(error: BaseException) -> None:
    """Leave an exception for the trainer, unless another worker was earlier. Never raises."""
    try:
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(_key(), codec.dumps(Failure.of(error)), overwrite=False, namespace=NAMESPACE)
    except Exception as problem:  # noqa: BLE001 - the worker's own exception matters more
        print(f"rljob: cannot report an exception of this worker: {problem!r}", file=sys.stderr, flush=True)  # noqa: T201


def clear() -> None:
    """Forget the exceptions of earlier steps, which did not end the run. Never raises."""
    try:
        from ray.experimental.internal_kv import _internal_kv_del

        _internal_kv_del(_key(), namespace=NAMESPACE)
    except Exception as problem:  # noqa: BLE001 - an old exception is no reason to end a run
        print(f"rljob: cannot forget an exception of a worker: {problem!r}", file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def blamed() -> Iterator[None]:
    """Raise a worker's exception in place of one of the trainer's process that follows from it.

    An exception of Ray comes from a worker or reports its loss, and one of a file reports a volume: they are causes.
    """
    try:
        yield
    except Exception as error:
        failure = None if _is_remote(error) or isinstance(error, OSError) else noted()
        if failure is None:
            raise
        # Not `from error`: the outcome names the end of the chain. The log shows both.
        raise WorkerFailedError(failure.text, failure.reason, failure.exit_code)  # noqa: B904


def noted() -> Failure | None:
    """Return the first exception since the last `clear`."""
    try:
        from ray.experimental.internal_kv import _internal_kv_get

        data = _internal_kv_get(_key(), namespace=NAMESPACE)
        return None if data is None else codec.loads(Failure, data)
    except Exception as problem:  # noqa: BLE001 - without its cause, the error is still true
        print(f"rljob: cannot read the first exception of a worker: {problem!r}", file=sys.stderr, flush=True)  # noqa: T201
        return None


def _key() -> str:
    return f"first-failure/{os.environ.get(stack_register.VARIABLE, '')}"


def _is_remote(error: BaseException) -> bool:
    return any(base.__module__.partition(".")[0] == "ray" for base in type(error).__mro__)
