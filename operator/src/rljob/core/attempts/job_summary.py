"""The summary of a job from its status: since when it waits, trains or is silent, and its failure history.

`telemetry.jobs` exports it as metrics. Everything follows from the written status, except the restart budget, whose
limits are in the merged spec.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rljob.api.lifecycle import Restart
from rljob.api.recovery_time import RecoveryCause
from rljob.api.status import (
    Attempt,
    AttemptOutcome,
    Budget,
    ConditionStatus,
    ConditionType,
    FailureCause,
    RLJobStatus,
    State,
)
from rljob.core import times
from rljob.core.attempts.classify import renewed
from rljob.core.reasons import Reason
from rljob.core.status import condition

STALLED_STEPS = 3
"""A job counts as stalled after this many usual steps; its progress deadline is never shorter."""
STALLED_SECONDS_MIN = 600.0
"""Short steps are reported rarely: the status is written at most every half minute, and less often with many jobs."""


class Deadline(enum.StrEnum):
    """The deadlines of a job."""

    START = "Start"
    ACTIVE = "Active"
    PROGRESS = "Progress"


_DEADLINES = {
    Reason.START_DEADLINE_EXCEEDED.value: Deadline.START,
    Reason.ACTIVE_DEADLINE_EXCEEDED.value: Deadline.ACTIVE,
    Reason.PROGRESS_DEADLINE_EXCEEDED.value: Deadline.PROGRESS,
}


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt that has ended."""

    number: int
    outcome: AttemptOutcome
    saved: bool
    """Whether a checkpoint contains its last step, or it made none."""


@dataclass(frozen=True)
class Recovery:
    """What was lost before the first step of an attempt."""

    number: int
    """Number of that attempt."""
    seconds: Mapping[RecoveryCause, int]


@dataclass(frozen=True)
class RunSummary:
    """An attempt under way."""

    step_time: datetime
    """Time of its last step, or of its submission."""
    saved_time: datetime
    """Time of its last checkpoint, or of its submission; later work would be lost."""
    patience_seconds: float
    """The run counts as stalled after this long without a step; infinite before the first one."""


@dataclass(frozen=True)
class Standing:
    """The summary of a job."""

    state: State
    restarts: int
    failures: Mapping[FailureCause, int]
    ended: tuple[EndedAttempt, ...]
    recoveries: tuple[Recovery, ...]
    deadline: Deadline | None
    """The deadline that passed last, as long as no later reason replaced it."""
    queued_since: datetime | None
    suspended_since: datetime | None
    silent: bool
    run: RunSummary | None
    budget: Budget

    @property
    def finished(self) -> bool:
        """Whether the job is finished."""
        return self.state in (State.SUCCEEDED, State.FAILED, State.STOPPED)

    def spent(self, restart: Restart) -> bool:
        """Report whether the next failure of some kind ends a job that had restarts."""
        kinds = (
            (self.budget.user_failures, restart.max_restarts),
            (self.budget.infrastructure_failures, restart.max_infrastructure_restarts or 0),
        )
        return not self.finished and any(0 < limit <= count for count, limit in kinds)

    def stalled(self, now: datetime) -> bool:
        """Report whether the run counts as stalled."""
        return self.run is not None and (now - self.run.step_time).total_seconds() > self.run.patience_seconds


def standing(current: RLJobStatus) -> Standing:
    """Return the summary of a job from its status."""
    progressing = condition(current, ConditionType.PROGRESSING)
    suspended = condition(current, ConditionType.SUSPENDED) if current.state is State.SUSPENDED else None
    return Standing(
        state=current.state,
        restarts=current.restarts,
        failures={
            FailureCause.USER: current.counters.user_failures,
            FailureCause.INFRASTRUCTURE: current.counters.infrastructure_failures,
            FailureCause.PREEMPTION: current.counters.preemptions,
        },
        ended=tuple(
            EndedAttempt(entry.number, entry.outcome, _is_saved(entry, current))
            for entry in current.attempts
            if entry.outcome is not None
        ),
        recoveries=tuple(
            Recovery(entry.number, {part.cause: part.seconds for part in entry.recovery})
            for entry in current.attempts
            if entry.recovery
        ),
        # For a run that was stopped for a deadline and restarts, only the stop order shows it.
        deadline=_DEADLINES.get(current.stop.reason if current.stop else "") or _DEADLINES.get(current.reason or ""),
        queued_since=_queued_since(current),
        suspended_since=times.from_text(suspended.last_transition_time) if suspended else None,
        silent=progressing is not None
        and progressing.status is ConditionStatus.UNKNOWN
        and progressing.reason == Reason.HEAD_SILENT,
        run=_run(current),
        # As the next failure would see it.
        budget=renewed(current.budget, current.checkpoint.step if current.checkpoint else 0),
    )


def _is_saved(attempt: Attempt, current: RLJobStatus) -> bool:
    # Without a step it carries the last step of the attempt before.
    if attempt.outcome is AttemptOutcome.SUCCEEDED or attempt.start_time is None:
        return True
    saved = current.checkpoint.step if current.checkpoint else 0
    return attempt.last_step <= max(saved, attempt.resumed_from_step)


def _queued_since(current: RLJobStatus) -> datetime | None:
    """Return since when the cluster waits for its queue: since its intent, or since its pods were taken."""
    ready, intent = condition(current, ConditionType.CLUSTER_READY), current.intent
    if ready is None or intent is None or ready.reason != Reason.WAITING_FOR_QUEUE or current.state is not State.QUEUED:
        return None
    return max(times.from_text(intent.time), times.from_text(ready.last_transition_time))


def _run(current: RLJobStatus) -> RunSummary | None:
    last = current.attempts[-1] if current.attempts else None
    if last is None or last.end_time is not None or current.stop is not None:
        return None
    begun = times.from_text(last.submitted_time)
    stepped = (current.progress.observed_time if current.progress else None) or last.submitted_time
    saved = current.checkpoint.saved_time if current.checkpoint else last.submitted_time
    # Both may belong to the attempt before.
    moments = max(begun, times.from_text(stepped)), max(begun, times.from_text(saved))
    return RunSummary(*moments, _patience_seconds(current))


def _patience_seconds(current: RLJobStatus) -> float:
    if current.state is not State.TRAINING:
        return math.inf
    progress = current.progress
    step_seconds = None
    if progress is not None:
        step_seconds = progress.record_seconds or progress.median_step_seconds or progress.step_seconds
    usual = float(step_seconds) if step_seconds is not None else 0.0
    return max(STALLED_SECONDS_MIN, STALLED_STEPS * usual) if math.isfinite(usual) else math.inf
