"""Read and write the status: conditions that keep their transition time, and the summaries for `kubectl get`.

A status is a frozen `RLJobStatus`; each function returns a new one. Nothing here decides anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from rljob.api.printing import encodable, printable
from rljob.api.status import Condition, ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core import times
from rljob.core.observed import Manifest
from rljob.core.reasons import Reason

MESSAGE_LIMIT = 2000
"""Bytes, since the size of the whole status is limited in bytes."""
READ_ATTEMPTS = 3


def read_status(job: Manifest) -> RLJobStatus:
    """Parse the status; only a part that does not fit the types counts as lost.

    Another operator version may have written it. An unknown state or condition must not hide Finished, or a downgrade
    would run finished jobs again.
    """
    document = job.get("status") or {}
    for _ in range(READ_ATTEMPTS):
        try:
            return _paired(RLJobStatus.model_validate(document))
        except ValidationError as error:
            document = _without(document, {tuple(problem["loc"][:2]) for problem in error.errors()})
    return RLJobStatus()


def _paired(status: RLJobStatus) -> RLJobStatus:
    """Drop intent and resolved together, and the stop and the end under way: none is of use alone."""
    if status.intent is not None and status.resolved is not None:
        return status
    return status.model_copy(update={"intent": None, "resolved": None, "stop": None, "ending": None})


def _without(document: Any, broken: set[tuple[int | str, ...]]) -> dict[str, Any]:  # noqa: ANN401 - untrusted JSON
    if not isinstance(document, dict):
        return {}
    kept: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, list) and (name,) not in broken:
            kept[name] = [entry for index, entry in enumerate(value) if (name, index) not in broken]
        elif not any(path[0] == name for path in broken):
            kept[name] = value
    return kept


def document(status: RLJobStatus) -> dict[str, Any]:
    """Return the status as JSON."""
    result: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return result


def last_step(status: RLJobStatus) -> int:
    """Return the last reported step; 0 before the first."""
    return status.progress.step if status.progress else 0


def condition(status: RLJobStatus, kind: ConditionType) -> Condition | None:
    """Return a condition, or None."""
    return next((entry for entry in status.conditions if entry.type == kind), None)


def is_true(status: RLJobStatus, kind: ConditionType) -> bool:
    """Report whether a condition is True."""
    found = condition(status, kind)
    return found is not None and found.status is ConditionStatus.TRUE


def is_waiting_for(status: RLJobStatus, reason: str) -> bool:
    """Report whether the cluster is not ready for this reason, by the last status write."""
    found = condition(status, ConditionType.CLUSTER_READY)
    return found is not None and found.reason == reason


def is_silent(status: RLJobStatus) -> bool:
    """Report whether the head does not answer, by the last status write."""
    found = condition(status, ConditionType.PROGRESSING)
    return found is not None and found.reason == Reason.HEAD_SILENT


@dataclass(frozen=True)
class Writer:
    """Makes new versions of one job's status, at one time."""

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
            last_transition_time=times.to_text(self.now) if old is None or moved else old.last_transition_time,
            observed_generation=self.generation,
        )
        kept = tuple(entry for entry in status.conditions if entry.type != kind)
        ordered = sorted((*kept, new), key=_rank)
        return status.model_copy(update={"conditions": ordered, "observed_generation": self.generation})

    def with_changed(
        self, status: RLJobStatus, kind: ConditionType, value: ConditionStatus, reason: str, message: str = ""
    ) -> RLJobStatus:
        """Set a condition if it would read differently; an edit of the spec alone is no reason to write it."""
        old = condition(status, kind)
        if old is not None and (old.status, old.reason, old.message) == (value, reason, bounded(message)):
            return status
        return self.with_condition(status, kind, value, reason, message)

    def summarised(self, status: RLJobStatus, state: State, reason: str, message: str = "") -> RLJobStatus:
        """Set the summaries for users."""
        return status.model_copy(
            update={
                "state": state,
                "reason": reason,
                "message": bounded(message) or None,
                "observed_generation": self.generation,
            }
        )


def _rank(entry: Condition) -> tuple[int, str]:
    """Sort conditions of another operator version last."""
    known = [kind.value for kind in ConditionType]
    return (known.index(entry.type) if entry.type in known else len(known)), entry.type


def bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Cut a message to what the status may hold, and make it encodable and printable.

    kubectl prints messages as they are, and many quote what a pod wrote.
    """
    text = printable(encodable(text))
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - len("…".encode())].decode("utf-8", "ignore") + "…"


LARGE = 1e15
"""From here on, an exponent is easier to read."""


def metric(value: float | None, digits: int = 4) -> str | None:
    """Return a measured number as text: significant digits, no floating-point noise, NaN kept."""
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    # From four digits before the point on, an exponent would be hard to read in `kubectl get`.
    return f"{value:.1f}" if 10 ** (digits - 1) <= abs(value) < LARGE else f"{value:.{digits}g}"
