"""The end of a driver: on whose word it is taken, and how long a better one is waited for.

The exporter knows most: the launcher's outcome, the last step, the last checkpoint. Ray knows only that the driver is
gone. Where Ray tells of the end first, or the exporter misses just that question, what Ray said is written down with a
deadline, and the attempt is closed by the exporter's word, or at the deadline by Ray's. A head that goes meanwhile
changes nothing: a run that succeeded is not begun again because its pod was deleted a moment later.
"""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import EndingStatus, RLJobStatus
from rljob.core import status, times
from rljob.core.attempts.outcome import outcome_of, plausible_outcome
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import Plan
from rljob.core.steps.finishing import end
from rljob.core.steps.restarting import conclude
from rljob_runtime.contract import ExitCode, Outcome, Phase
from rljob_runtime.contract import Progress as Answer

LAST_WORD_SECONDS = 60.0
"""An exporter that was busy answers one of the next questions; one that is gone for so long says nothing more."""
LAST_WORD_POLL_SECONDS = 2.0
"""While its pod is being deleted an exporter answers for a few seconds only."""


def outcome_seen(context: Context, answer: Answer | None) -> Outcome | None:
    """Give how the attempt ended; None while it runs, as far as anybody knows, or a better word may come."""
    if answer is not None and answer.phase is Phase.ENDED and answer.outcome is not None:
        return plausible_outcome(answer.outcome)
    told = _rays_word(context)
    return told if told is not None and _nothing_better_comes(context, answer) else None


def await_last_word(context: Context) -> Plan | None:
    """Write down what Ray says of the end, and wait; None while Ray says nothing."""
    told = _rays_word(context)
    if told is None:
        return None
    if context.status.ending is not None:
        return Plan(requeue_after_seconds=LAST_WORD_POLL_SECONDS)
    ending = EndingStatus(
        time=times.to_text(context.now),
        deadline=times.to_text(context.now + timedelta(seconds=LAST_WORD_SECONDS)),
        exit_code=told.exit_code,
        reason=told.reason or None,
        message=status.bounded(told.message),
        rule=told.rule,
        last_step=told.last_step,
        unruled_exit_code=told.unruled_exit_code,
        nodes=list(told.nodes),
        suspect=told.suspect,
    )
    return context.write(context.status.model_copy(update={"ending": ending}), requeue=LAST_WORD_POLL_SECONDS)


def take_rays_word(context: Context) -> Plan | None:
    """Close the attempt whose end Ray has told when its head pod, and the exporter with it, is gone."""
    if context.status.ending is None or context.head_is_intended:
        return None
    outcome = _rays_word(context)
    if outcome is None:
        raise AssertionError("what Ray said is written down")
    return close(context, context.status, outcome)


def close(context: Context, current: RLJobStatus, outcome: Outcome) -> Plan:
    """Finish, or judge what follows; `current` already holds the last progress."""
    return end(current, context, outcome) if outcome.exit_code == ExitCode.DONE else conclude(context, current, outcome)


def _rays_word(context: Context) -> Outcome | None:
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


def _nothing_better_comes(context: Context, answer: Answer | None) -> bool:
    """Whether the exporter knows no more than Ray, is gone, or had its time."""
    # Idle: the driver ended before the launcher began, as with an image that lacks it.
    if not context.head_is_intended or (answer is not None and answer.phase in (Phase.ENDED, Phase.IDLE)):
        return True
    deadlines = [wait.deadline for wait in (context.status.ending, context.status.stop) if wait is not None]
    return any(context.now >= times.from_text(deadline) for deadline in deadlines)
