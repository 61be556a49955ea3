"""Records of attempts: add one, close one with what it used, restore those that a lost status held."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rljob.api.status import (
    Attempt,
    AttemptOutcome,
    ConditionStatus,
    ConditionType,
    Counters,
    FailureCause,
    Intent,
    RLJobStatus,
)
from rljob.core import status, times
from rljob.core.attempts.classify import Failure
from rljob.core.attempts.usage import added_usage, with_held_before, with_start_usage, with_usage
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.reasons import Reason
from rljob.core.transitions.conditions import healed
from rljob.render import names
from rljob_runtime.contract import Outcome

ATTEMPTS_KEPT = 10
EARLIER_MESSAGE_BYTES = 300
"""Ten whole messages would be more than the status may hold."""
LOST = frozenset({Reason.CLUSTER_LOST, Reason.HEAD_LOST, Reason.DRIVER_LOST})


def close_attempt(
    current: RLJobStatus, context: Context, outcome: Outcome, result: AttemptOutcome, failure: Failure | None = None
) -> RLJobStatus:
    """Record the end of the open attempt, or of a start that failed before there was one, and what it used."""
    open_attempt, failed_start = _open_attempt(current), _failed_start(current, context) if failure else None
    ends = open_attempt or failed_start
    if ends is None:
        return current
    closed = ends.model_copy(
        update={
            "end_time": times.to_text(context.now),
            "outcome": result if open_attempt else AttemptOutcome.LOST,
            "reason": outcome.reason or Reason.DRIVER_FAILED,
            "message": status.bounded(outcome.message) or None,
            "last_step": max(outcome.last_step, status.last_step(current)),
            "last_step_time": _last_step_time(ends, current),
            "stop_time": current.stop.requested_time if current.stop is not None else None,
            "cause": failure.cause if failure else None,
            "node": failure.node if failure else None,
        }
    )
    for kind in (ConditionType.DEGRADED, ConditionType.ROLLOUT_DEGRADED):
        current = healed(context, current, kind)
    others = [entry for entry in current.attempts if entry.submission_id != closed.submission_id]
    if open_attempt:
        begun = with_held_before([*others, closed], context.observed.held, context.resolved, context.worker_sizes)
        closed = with_usage(begun, current, context.resolved, context.now)
    else:
        pods = () if isinstance(context.observed.pods, Unseen) else context.observed.pods
        closed = with_start_usage(closed, pods, context.resolved, context.worker_sizes, context.now)
    return current.model_copy(
        update={
            "attempts": with_attempt(others, closed),
            "usage": added_usage(current.usage, closed),
            "ending": None,
        }
    )


def _last_step_time(attempt: Attempt, current: RLJobStatus) -> str | None:
    """Return when an attempt made its last step, as far as the operator saw; None if it made none."""
    progress = current.progress
    if attempt.start_time is None or progress is None or progress.observed_time is None:
        return None
    return progress.observed_time if progress.step > attempt.resumed_from_step else None


def _open_attempt(current: RLJobStatus) -> Attempt | None:
    """Return the attempt without an end; an intended one may have been submitted, so its number is used up."""
    intent = current.intent
    if intent is None or intent.submission_id is None:
        return None
    found = next((entry for entry in current.attempts if entry.submission_id == intent.submission_id), None)
    if found is not None:
        return found if found.end_time is None else None
    return Attempt(
        number=intent.attempt,
        cluster_name=intent.cluster_name,
        submission_id=intent.submission_id,
        submitted_time=intent.time,
    )


def _failed_start(current: RLJobStatus, context: Context) -> Attempt | None:
    """Return a record of a start without a submission, if it had a cluster: that may have held every node."""
    intent = current.intent
    if intent is None or intent.submission_id is not None or (context.cluster is None and intent.cluster_uid is None):
        return None
    number = next_number(current, intent)
    return Attempt(
        number=number,
        cluster_name=intent.cluster_name,
        submission_id=names.submission_id(intent.cluster_name, number),
        submitted_time=_start_began(current, context),
    )


def _start_began(current: RLJobStatus, context: Context) -> str:
    """Return when the start began; the time in a queue is not part of it."""
    intent, last = context.intent, current.attempts[-1] if current.attempts else None
    admitted = status.condition(current, ConditionType.ADMITTED)
    if admitted is not None and admitted.status is not ConditionStatus.TRUE:
        return times.to_text(context.now)
    ours = context.cluster is not None and intent.cluster_uid in (None, context.cluster["metadata"]["uid"])
    begun = [
        times.to_text(context.could_begin(context.cluster)) if context.cluster is not None and ours else intent.time
    ]
    if admitted is not None:
        begun.append(admitted.last_transition_time)
    if last is not None and last.end_time is not None and last.cluster_name == intent.cluster_name:
        # Another driver was to follow in the same cluster.
        begun.append(last.end_time)
    return max(begun)


def next_number(current: RLJobStatus, intent: Intent) -> int:
    """Return the number of the next attempt: counted over the life of the job, and never below the generation."""
    return max(max((entry.number for entry in current.attempts), default=0) + 1, intent.cluster_generation)


def with_attempt(earlier: list[Attempt], attempt: Attempt) -> list[Attempt]:
    """Append an attempt; of the earlier ones, keep as many and as much as the size of the status allows."""
    return [*map(_shortened, earlier[-ATTEMPTS_KEPT + 1 :]), attempt]


def _shortened(attempt: Attempt) -> Attempt:
    message = status.bounded(attempt.message, EARLIER_MESSAGE_BYTES) if attempt.message else None
    return attempt.model_copy(update={"message": message})


def with_recalled(current: RLJobStatus, attempts: Iterable[Attempt]) -> RLJobStatus:
    """Restore the attempts that a lost status held, with what they count and used; the budget starts from zero."""
    for attempt in attempts:
        cause = attempt.cause
        current = current.model_copy(
            update={
                "attempts": with_attempt(current.attempts, attempt),
                "usage": added_usage(current.usage, attempt),
                "counters": counted(current.counters, cause) if cause else current.counters,
                "restarts": current.restarts + (cause is not None),
            }
        )
    return current


def counted(counters: Counters, cause: FailureCause) -> Counters:
    """Count an attempt that did not succeed."""
    match cause:
        case FailureCause.PREEMPTION:
            return counters.model_copy(update={"preemptions": counters.preemptions + 1})
        case FailureCause.INFRASTRUCTURE:
            return counters.model_copy(update={"infrastructure_failures": counters.infrastructure_failures + 1})
    return counters.model_copy(update={"user_failures": counters.user_failures + 1})


def without_attempt(context: Context, begin: datetime, *, awaits_workers: bool = False) -> Intent:
    """Return the intent of the same cluster before its next attempt, which may need lost workers to be replaced."""
    update = {
        **dict.fromkeys(("submission_id", "head_pod_uid", "head_node")),
        "attempt": 0,
        "awaits_workers": awaits_workers,
    }
    return context.timed(context.intent.model_copy(update=update), begin)
