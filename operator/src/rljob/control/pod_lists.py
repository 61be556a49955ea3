"""How often pods are listed: of all jobs together within a bound, and of one that starts no oftener than it is worth.

The observer asks before each LIST that is for a diagnosis; one that it may not make leaves the pods unseen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rljob.cluster.limiter import TokenBucket


@dataclass(frozen=True)
class PodLists:
    """The bound of all, and when each job's pods were listed last."""

    bucket: TokenBucket
    last: dict[str, datetime] = field(default_factory=dict)
    """By uid of the job; only of those that are not to be listed at every look."""

    def try_take(self, uid: str, now: datetime, every_seconds: float) -> bool:
        """Whether a job's pods may be listed now; if so, they count as listed."""
        last = self.last.get(uid)
        if every_seconds and last is not None and now - last < timedelta(seconds=every_seconds):
            return False
        if not self.bucket.try_take():
            return False
        if every_seconds:
            self.last[uid] = now
        return True
