"""What schedulers say of waiting jobs, passed on at the pace of status writes.

Kueue and Volcano tell every waiting job anew how much is missing whenever that changes: hundreds of status writes for
each job that ends, if all of it were passed on. What is more than words is passed on at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rljob.core.observed import Manifest


@dataclass(frozen=True)
class Sample:
    """An object that was shown to the core."""

    manifest: Manifest | None
    facts: Hashable
    """What of it is more than words."""
    until: datetime
    """From then on a change of its words is shown too."""


@dataclass(frozen=True)
class Samples:
    """Objects as the core last saw them."""

    by_uid: dict[str, Sample] = field(default_factory=dict)
    """By uid of the job."""

    def take(self, uid: str, found: Manifest | None, now: datetime, seconds: float) -> Manifest | None:
        """Give the object of a job, or what was last shown of it where only its words have changed."""
        known, facts = self.by_uid.get(uid), _facts(found)
        if known is not None and now < known.until and known.facts == facts:
            return known.manifest
        self.by_uid[uid] = Sample(found, facts, now + timedelta(seconds=seconds))
        return found


def _facts(found: Manifest | None) -> Hashable:
    """Read what a Workload or a PodGroup states."""
    if found is None:
        return None
    metadata, status = found["metadata"], found.get("status") or {}
    told = status.get("conditions") or ()
    conditions = tuple(sorted((entry["type"], entry["status"], entry.get("reason", "")) for entry in told))
    state = found["spec"].get("active", True), status.get("phase"), bool(status.get("running"))
    return metadata["uid"], "deletionTimestamp" in metadata, state, conditions
