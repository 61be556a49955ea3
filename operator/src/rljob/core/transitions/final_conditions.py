"""What every condition of a finished job says: one table, applied when the job finishes.

Finished is the last word about a job. Nothing is under way any more, so no condition may announce something that no
later write would bring about, such as a suspension that was ordered while the run completed. The conditions that end
take the reason of the end; those that state a fact about the past stay. After that only Paused changes, because it
follows the user's annotation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import status
from rljob.core.reasons import Reason
from rljob.core.status import Writer


class Final(enum.Enum):
    """What becomes of a condition when the job finishes. A condition that was never set stays absent."""

    STAYS = enum.auto()
    """It states a fact that the end does not change."""
    STAYS_IF_TRUE = enum.auto()
    """A condition that is True stays. One that is not yet True becomes False with the end of the job."""
    ENDS = enum.auto()
    """It is False, with the reason of the end and without a message."""
    HEALS = enum.auto()
    """It is False with the reason Healthy: the job holds no node, and no replica, that could have a fault."""


FINAL: Mapping[ConditionType, Final] = {
    ConditionType.VALIDATED: Final.STAYS,
    ConditionType.INITIALIZED: Final.STAYS_IF_TRUE,
    ConditionType.ADMITTED: Final.ENDS,  # the quota goes back with the cluster
    ConditionType.CLUSTER_READY: Final.ENDS,  # nothing runs in the cluster, which is deleted now or after a while
    ConditionType.PROGRESSING: Final.ENDS,
    ConditionType.DEGRADED: Final.HEALS,
    ConditionType.ROLLOUT_DEGRADED: Final.HEALS,
    ConditionType.CHECKPOINTED: Final.STAYS,
    ConditionType.SUSPENDED: Final.ENDS,  # a finished job cannot be resumed
    ConditionType.PENDING_CHANGES: Final.ENDS,  # no later cluster generation takes the changes
    ConditionType.RECIPE_DRIFT: Final.ENDS,
    ConditionType.RENDERER_DRIFT: Final.ENDS,
    ConditionType.PAUSED: Final.STAYS,
    ConditionType.FINISHED: Final.STAYS,
}


def with_final_conditions(current: RLJobStatus, writer: Writer, reason: str) -> RLJobStatus:
    """Return the status with every condition as the table demands, except Finished, which the caller sets."""
    for kind, final in FINAL.items():
        condition = status.condition(current, kind)
        if condition is None or final is Final.STAYS:
            continue
        if final is Final.STAYS_IF_TRUE and condition.status is ConditionStatus.TRUE:
            continue
        word = Reason.HEALTHY if final is Final.HEALS else reason
        current = writer.with_changed(current, kind, ConditionStatus.FALSE, word)
    return current
