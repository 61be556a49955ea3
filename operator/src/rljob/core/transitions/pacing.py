"""When a user gets the next cluster of a job whose clusters make no step.

Each cluster costs KubeRay, the scheduler and the API server work. A restart or a suspension of a job that trains is
therefore free, and one of a job that does not waits from the second time on, twice as long each time. Restarts of the
operator's own have `restart.backoffSeconds` instead.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rljob.api.status import Intent, RLJobStatus
from rljob.core import times

FIRST_SECONDS, LONGEST_SECONDS = 30, 600
COUNTED_MAX = 8
"""More clusters without a step than lead to the longest wait."""


def next_cluster(current: RLJobStatus) -> datetime | None:
    """Return the time before which a user gets no other cluster; None if one of the last two made a step."""
    intent = current.intent
    if intent is None or intent.clusters_without_step == 0 or _made_a_step(current, intent):
        return None
    wait = min(FIRST_SECONDS * 2 ** (intent.clusters_without_step - 1), LONGEST_SECONDS)
    return times.from_text(intent.time) + timedelta(seconds=wait)


def without_step(current: RLJobStatus, *, asked: bool) -> int:
    """Return how many clusters in a row users gave up before a step; the last one counts if they asked for its end."""
    intent = current.intent
    if intent is None or _made_a_step(current, intent):
        return 0
    return min(intent.clusters_without_step + asked, COUNTED_MAX)


def _made_a_step(current: RLJobStatus, intent: Intent) -> bool:
    return any(
        attempt.cluster_name == intent.cluster_name and attempt.last_step > attempt.resumed_from_step
        for attempt in current.attempts
    )
