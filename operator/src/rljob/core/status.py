"""Writing the status: conditions that keep their transition time, and the summaries for `kubectl get`.

A status is a frozen `RLJobStatus`; each function gives a new one. Nothing here decides anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from rljob.api.status import Condition, ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core import clock
from rljob.core.observed import Manifest

MESSAGE_LIMIT = 2000


def read_status(job: Manifest) -> RLJobStatus:
    """Read the status; one that does not fit the types counts as lost, which costs nothing: children tell the rest."""
    try:
        return RLJobStatus.model_validate(job.get("status") or {})
    except ValidationError:
        return RLJobStatus()


def document(status: RLJobStatus) -> dict[str, Any]:
    """Give the status as JSON."""
    result: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return result


def condition(status: RLJobStatus, kind: ConditionType) -> Condition | None:
    """Find a condition."""
    return next((entry for entry in status.conditions if entry.type == kind), None)


def is_true(status: RLJobStatus, kind: ConditionType) -> bool:
    """Whether a condition is True."""
    found = condition(status, kind)
    return found is not None and found.status is ConditionStatus.TRUE


@dataclass(frozen=True)
class Writer:
    """Makes new versions of one job's status at one moment."""

    generation: int
    now: datetime

    def with_condition(
        self, status: RLJobStatus, kind: ConditionType, value: ConditionStatus, reason: str, message: str = ""
    ) -> RLJobStatus:
        """Set a condition; the transition time moves only when the value does."""
        old = condition(status, kind)
        moved = old is None or old.status is not value
        new = Condition(
            type=kind.value,
            status=value,
            reason=reason,
            message=bounded(message),
            last_transition_time=clock.to_text(self.now) if old is None or moved else old.last_transition_time,
            observed_generation=self.generation,
        )
        kept = tuple(entry for entry in status.conditions if entry.type != kind)
        ordered = sorted((*kept, new), key=lambda entry: list(ConditionType).index(ConditionType(entry.type)))
        return status.model_copy(update={"conditions": ordered, "observed_generation": self.generation})

    def summarised(self, status: RLJobStatus, state: State, reason: str, message: str = "") -> RLJobStatus:
        """Set the summaries for people."""
        return status.model_copy(
            update={
                "state": state,
                "reason": reason,
                "message": bounded(message) or None,
                "observed_generation": self.generation,
            }
        )


def bounded(text: str) -> str:
    """Cut a message to what the status may hold."""
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def metric(value: float | None, digits: int = 4) -> str | None:
    """Give a measured number as the status writes it: significant digits, no float noise, NaN kept."""
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    # Four digits before the point or more: an exponent would be hard to read in `kubectl get`.
    return f"{value:.1f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
