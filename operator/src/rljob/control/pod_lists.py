"""How often pods are listed: bounded for all jobs together, and for one that starts at a growing interval.

A LIST that exceeds a bound is not sent and leaves the pods unseen. LISTs that prove a loss, or that nothing is left of
a cluster, have a bound of their own: NPUs wait for them, and a thousand jobs that start request more diagnoses than the
bound allows. The API server scans all pods of the namespace for each LIST, so diagnoses are limited to a share of its
time and do not delay the starts that they diagnose.
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
"""LISTs of pods of all jobs together: when hundreds start at once, diagnosing them must not delay their start."""
TIME_SHARE = 0.25
TIME_IN_HAND_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
"""The same bound for slow LISTs: with 20,000 pods, one LIST costs the API server 60 ms of CPU, and takes 1.6 s when the
API server has no CPU to spare (docs/design/0015)."""
URGENT_LISTS_PER_SECOND = 20.0
URGENT_LISTS_AT_ONCE = 40
"""The same for urgent LISTs: as many as jobs begin, and a fifth of what the request limiter allows."""

T = TypeVar("T")


@dataclass(frozen=True)
class PodLists:
    """The bounds of all jobs together."""

    bucket: TokenBucket
    time: TimeShare
    urgent_bucket: TokenBucket

    @classmethod
    def bounded(cls, monotonic: Callable[[], float]) -> Self:
        """Create the bounds with full buckets."""
        return cls(
            TokenBucket(POD_LISTS_PER_SECOND, POD_LISTS_AT_ONCE, monotonic),
            TimeShare(TIME_SHARE, TIME_IN_HAND_SECONDS, LONGEST_PAUSE_SECONDS, monotonic),
            TokenBucket(URGENT_LISTS_PER_SECOND, URGENT_LISTS_AT_ONCE, monotonic),
        )

    async def urgent(self, ask: Callable[[], Awaitable[T | Unseen]]) -> T | Unseen:
        """List pods for a proof that NPUs wait for."""
        return await ask() if self.urgent_bucket.try_take() else UNSEEN

    async def diagnose(
        self, job: JobMemory, now: datetime, every_seconds: float, ask: Callable[[], Awaitable[T | Unseen]]
    ) -> T | Unseen:
        """List a job's pods for a diagnosis, unless the last LIST is too recent or a bound is reached."""
        last = job.pods_listed
        if every_seconds and last is not None and now - last < timedelta(seconds=every_seconds):
            return UNSEEN
        if not (self.time.has_room() and self.bucket.try_take()):
            return UNSEEN
        if every_seconds:
            job.pods_listed = now
        with self.time.timed():
            return await ask()
