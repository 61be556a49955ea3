"""Drives a Reconciler by hand with frozen time.

    clock = FrozenClock()
    cluster, ray = FakeCluster(clock.now), FakeRay()
    reconciler = Reconciler.build(cluster, ray, clock, TokenKey(b"k" * 32), core=Core(LAUNCHER, BUILT_IN))
    cluster.watch(reconciler.feed)
    await reconciler.prime()
    await settle(reconciler)                     # all rounds that are due now
    await live(reconciler, clock, seconds=3600)  # an hour, jumping from one due round to the next

A crash is an exception that `after_write` raises, or `cluster.faults`; a restart is a new Reconciler over the same
cluster and ray, after `cluster.unwatch(old.feed)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rljob.control.worker import hold

if TYPE_CHECKING:
    from doubles.clock import FrozenClock
    from rljob.control.reconciler import Reconciler


class UnsettledError(AssertionError):
    """A world did not settle: plans never become empty."""


class CrashError(BaseException):
    """Raised from `after_write` to stop an operator after a write; no handler in the operator catches it."""


async def settle(reconciler: Reconciler, limit: int = 1000) -> int:
    """Run the rounds that are due now until none is left, and return their number. Failed jobs keep their backoff."""
    rounds = 0
    while rounds < limit:
        key = reconciler.queue.get_nowait()
        if key is None:
            if await reconciler.observer.heads.settle():
                continue
            return rounds
        try:
            rounds += await hold(reconciler, key)
        finally:
            reconciler.queue.done(key)
    raise UnsettledError(f"not settled after {limit} rounds")


async def live(reconciler: Reconciler, clock: FrozenClock, seconds: float, limit: int = 1000) -> int:
    """Advance time, running each delayed round when it is due; return the number of rounds."""
    end = clock.monotonic() + seconds
    rounds = await settle(reconciler, limit)
    while (delay := reconciler.queue.next_due_seconds()) is not None and clock.monotonic() + delay <= end:
        clock.advance(delay)
        rounds += await settle(reconciler, limit)
    clock.advance(max(0.0, end - clock.monotonic()))
    return rounds
