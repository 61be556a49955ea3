"""How often pods are listed: of all jobs together within a bound, and of one that starts no oftener than it is worth.

The observer asks for each LIST; one that it may not make leaves the pods unseen. Those that prove a loss, or that
nothing is left of a cluster, have a bound of their own: NPUs wait for them, and a thousand jobs that start ask for more
diagnoses than there are. The API server goes through all pods of the namespace for each: those that only diagnose take
a share of its time, so that they do not hold up the starts that they diagnose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self, TypeVar

from rljob.cluster.limiter import TimeShare, TokenBucket
from rljob.control.job_memory import JobMemory
from rljob.core.observed import UNSEEN, Unseen

POD_LISTS_PER_SECOND = 4.0
POD_LISTS_AT_ONCE = 40
"""LISTs of pods, of all jobs together: when hundreds start at once, their diagnosis must not hold up their start."""
TIME_SHARE = 0.25
TIME_IN_HAND_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
"""The same bound for slow LISTs: with 20,000 pods, one LIST costs the API server 60 ms of CPU, and takes 1.6 s when the
API server has no CPU to spare (docs/design/0015)."""
DECISIVE_LISTS_PER_SECOND = 20.0
DECISIVE_LISTS_AT_ONCE = 40
"""The same of those that decide: as many as jobs begin, and a fifth of what the limiter grants."""

T = TypeVar("T")


@dataclass(frozen=True)
class PodLists:
    """The bounds of all jobs together."""

    bucket: TokenBucket
    time: TimeShare
    decisive: TokenBucket

    @classmethod
    def bounded(cls, monotonic: Callable[[], float]) -> Self:
        """Begin with full buckets."""
        return cls(
            TokenBucket(POD_LISTS_PER_SECOND, POD_LISTS_AT_ONCE, monotonic),
            TimeShare(TIME_SHARE, TIME_IN_HAND_SECONDS, LONGEST_PAUSE_SECONDS, monotonic),
            TokenBucket(DECISIVE_LISTS_PER_SECOND, DECISIVE_LISTS_AT_ONCE, monotonic),
        )

    async def decide(self, ask: Callable[[], Awaitable[T | Unseen]]) -> T | Unseen:
        """List what proves something."""
        return await ask() if self.decisive.try_take() else UNSEEN

    async def diagnose(
        self, job: JobMemory, now: datetime, every_seconds: float, ask: Callable[[], Awaitable[T | Unseen]]
    ) -> T | Unseen:
        """List a job's pods if that may be now; then they count as listed."""
        last = job.pods_listed
        if every_seconds and last is not None and now - last < timedelta(seconds=every_seconds):
            return UNSEEN
        if not (self.time.has_room() and self.bucket.try_take()):
            return UNSEEN
        if every_seconds:
            job.pods_listed = now
        with self.time.timed():
            return await ask()
