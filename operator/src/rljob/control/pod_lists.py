"""How often pods are listed: of all jobs together within a bound, and of one that starts no oftener than it is worth.

The observer asks before each LIST; one that it may not make leaves the pods unseen. Those that prove a loss, or that
nothing is left of a cluster, have a bound of their own: NPUs wait for them, and a thousand jobs that start ask for more
diagnoses than there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from rljob.cluster.limiter import TokenBucket

POD_LISTS_PER_SECOND = 4.0
POD_LISTS_AT_ONCE = 40
"""LISTs of pods, of all jobs together: when hundreds start at once, their diagnosis must not hold up their start."""
DECISIVE_LISTS_PER_SECOND = 20.0
DECISIVE_LISTS_AT_ONCE = 40
"""The same of those that decide: as many as jobs begin, and a fifth of what the limiter grants."""


@dataclass(frozen=True)
class PodLists:
    """The bound of all, and when each job's pods were listed last."""

    bucket: TokenBucket
    decisive: TokenBucket
    last: dict[str, datetime] = field(default_factory=dict)
    """By uid of the job; only of those that are not to be listed at every look."""

    @classmethod
    def bounded(cls, monotonic: Callable[[], float]) -> Self:
        """Begin with full buckets."""
        return cls(
            TokenBucket(POD_LISTS_PER_SECOND, POD_LISTS_AT_ONCE, monotonic),
            TokenBucket(DECISIVE_LISTS_PER_SECOND, DECISIVE_LISTS_AT_ONCE, monotonic),
        )

    def try_take(self, uid: str, now: datetime, every_seconds: float, *, decide: bool = False) -> bool:
        """Whether a job's pods may be listed now; if so, they count as listed."""
        if decide:
            return self.decisive.try_take()
        last = self.last.get(uid)
        if every_seconds and last is not None and now - last < timedelta(seconds=every_seconds):
            return False
        if not self.bucket.try_take():
            return False
        if every_seconds:
            self.last[uid] = now
        return True
