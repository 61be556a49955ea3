"""The end of a driver: whose report of it counts, and how long a better one is waited for.

The exporter knows most: the launcher's outcome, the last step and the last checkpoint. Ray knows only that the driver
is gone. If Ray reports the end first, or the exporter fails to answer at that moment, Ray's report is recorded with a
deadline. The attempt is closed by the exporter's report or, at the deadline, by Ray's. A head that disappears meanwhile
changes nothing: a run that succeeded is not started again because its pod was deleted a moment later.
"""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import RLJobStatus
from rljob.api.under_way import EndingStatus
from rljob.core import status, times
from rljob.core.attempts.outcome import outcome_of, plausible_outcome
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import Plan
from rljob.core.transitions.conclusions import conclude, end
from rljob_runtime.contract import ExitCode, Outcome, Phase

LAST_WORD_SECONDS = 60.0
"""A busy exporter answers one of the next requests; one that is silent for this long is gone."""
LAST_WORD_POLL_SECONDS = 2.0
"""While its pod is being deleted an exporter answers for a few seconds only."""


def outcome_seen(context: Context) -> Outcome | None:
    """Return how the attempt ended; None while it runs, as far as is known, or while a better report may come."""
    answer = context.answer
    if answer is not None and answer.phase is Phase.ENDED and answer.outcome is not None:
        return plausible_outcome(answer.outcome)
    outcome = outcome_by_ray(context)
    return outcome if outcome is not None and _nothing_better_comes(context) else None


def await_exporter(context: Context) -> Plan | None:
    """Record Ray's report of the end and wait for the exporter's; None while Ray reports no end."""
    outcome = outcome_by_ray(context)
    if outcome is None:
        return None
    if context.status.ending is not None:
        return Plan(requeue_after_seconds=LAST_WORD_POLL_SECONDS)
    ending = EndingStatus(
        time=times.to_text(context.now),
        deadline=times.to_text(context.now + timedelta(seconds=LAST_WORD_SECONDS)),
        exit_code=outcome.exit_code,
        reason=outcome.reason or None,
        message=status.bounded(outcome.message),
        rule=outcome.rule,
        last_step=outcome.last_step,
        unruled_exit_code=outcome.unruled_exit_code,
        nodes=list(outcome.nodes),
        suspect=outcome.suspect,
    )
    return context.write(context.status.model_copy(update={"ending": ending}), requeue=LAST_WORD_POLL_SECONDS)


def close(context: Context, current: RLJobStatus, outcome: Outcome) -> Plan:
    """Finish, or decide what follows; `current` already holds the last progress."""
    return end(current, context, outcome) if outcome.exit_code == ExitCode.DONE else conclude(context, current, outcome)


def outcome_by_ray(context: Context) -> Outcome | None:
    """Return the end that Ray reports, or reported before; None if it reports none."""
    ending, ray_job = context.status.ending, context.observed.ray_job
    if ending is not None:
        return Outcome(
            exit_code=ending.exit_code,
            reason=ending.reason or "",
            message=ending.message,
            rule=ending.rule,
            last_step=ending.last_step,
            unruled_exit_code=ending.unruled_exit_code,
            nodes=tuple(ending.nodes),
            suspect=ending.suspect,
        )
    if isinstance(ray_job, Unseen) or ray_job is None or not ray_job.state.ended:
        return None
    return outcome_of(ray_job, last_step=status.last_step(context.status))


def _nothing_better_comes(context: Context) -> bool:
    """Report whether the exporter knows no more than Ray, is gone, or had its time."""
    answer = context.answer
    # Idle: the driver ended before the launcher began, as with an image that lacks it.
    if not context.head_is_intended or (answer is not None and answer.phase in (Phase.ENDED, Phase.IDLE)):
        return True
    deadlines = [wait.deadline for wait in (context.status.ending, context.status.stop) if wait is not None]
    return any(context.now >= times.from_text(deadline) for deadline in deadlines)
