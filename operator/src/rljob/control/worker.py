"""The workers: each takes a key, runs its round, and turns a failure into a delay.

A failure affects only its key. Failures outside the operator (timeouts, overload, a head that starts) are retried with
backoff and logged; those that need a person (permissions, a bug of ours) become a Warning event as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from rljob.cluster.errors import OutsideError, RateLimited
from rljob.control.reconciler import Result
from rljob.telemetry.log import Log

if TYPE_CHECKING:
    from rljob.control.reconciler import Reconciler
    from rljob.control.store import Key

ROUND_SECONDS = 180.0
"""A round makes a few requests of at most 30 s; one that lasts longer hangs in something unforeseen."""

ROUNDS_IN_A_TURN = 10
"""The core promises that a job begins within this many; one that needs more goes to the back of the queue."""

log = Log(__name__)


async def work(reconciler: Reconciler, workers: int) -> NoReturn:
    """Run the workers forever; ends by cancellation."""
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_work(reconciler), name=f"worker-{number}")
    raise AssertionError("workers end by cancellation only")


async def _work(reconciler: Reconciler) -> NoReturn:
    while True:
        key = await reconciler.queue.get()
        with reconciler.metrics.active_workers.track_inprogress():
            try:
                await hold(reconciler, key)
            finally:
                reconciler.queue.done(key)


async def hold(reconciler: Reconciler, key: Key) -> int:
    """Run a job's rounds as long as each of them writes; return their number.

    Of a thousand jobs that are created at once, the first ones get their clusters while the others wait. With one round
    per turn, all would get them at the end.
    """
    rounds = 0
    while True:
        with reconciler.metrics.reconcile_seconds.time():
            result = await attempt(reconciler, key)
        rounds += 1
        if rounds == ROUNDS_IN_A_TURN or result is not Result.WROTE or not reconciler.queue.again(key):
            return rounds


async def attempt(reconciler: Reconciler, key: Key) -> Result | None:
    """Run one round; return None if it failed, and then the key is on backoff."""
    try:
        async with asyncio.timeout(ROUND_SECONDS):
            return await reconciler.round(key)
    except (OutsideError, TimeoutError) as error:
        reason = error.reason if isinstance(error, OutsideError) else "RoundTimeout"
        pause = error.retry_after_seconds if isinstance(error, RateLimited) else 0.0
        seconds = _back_off(reconciler, key, reason, pause)
        log.warning("Round failed", job=key, reason=reason, error=str(error), seconds=round(seconds, 1))
        if isinstance(error, OutsideError) and not error.transient:
            await reconciler.warn(key, str(error))
    except Exception as error:  # noqa: BLE001 - a bug in one job's round must not stop the others
        seconds = _back_off(reconciler, key, "Bug", 0.0)
        log.failure("Round crashed", error, job=key, seconds=round(seconds, 1))
        await reconciler.warn(key, f"internal error ({type(error).__name__}); the operator's log has the stack trace")
    return None


def _back_off(reconciler: Reconciler, key: Key, reason: str, at_least: float) -> float:
    reconciler.metrics.reconciles.labels("error").inc()
    reconciler.metrics.reconcile_errors.labels(reason).inc()
    return reconciler.queue.add_failed(key, at_least)
