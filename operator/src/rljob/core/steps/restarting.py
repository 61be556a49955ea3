"""What follows an attempt that did not end well: another one, in the same or in a new cluster, or the end of the job.

The verdict is written down with its counters and with the time before which nothing begins; a new cluster begins only
when every pod of the old one is gone, by the same teardown that a suspension uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from rljob.api.status import (
    Attempt,
    AttemptOutcome,
    ConditionStatus,
    ConditionType,
    Counters,
    ExcludedNode,
    FailureCause,
    Intent,
    RLJobStatus,
    State,
    StopStatus,
)
from rljob.core import status, times
from rljob.core.attempts.classify import Action, Failure, Verdict, classify, judge, with_doubt, with_node_faults
from rljob.core.attempts.evidence import killed_pods
from rljob.core.attempts.usage import added_usage
from rljob.core.context import Context
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.steps.finishing import LOST, close_attempt, end, fail, with_attempt
from rljob.core.steps.node_health import EXCLUDED_SECONDS
from rljob_runtime.contract import ExitCode, Outcome, StopMode

EXCLUDED_MAX = 8
EXCLUDED_MESSAGE_BYTES = 200
BLAMED_TWICE = 2


def give_up(context: Context, reason: Reason, message: str) -> Plan:
    """Conclude an attempt, or the way to one, that the operator itself finds lost."""
    outcome = Outcome(ExitCode.FAILED, reason.value, message, last_step=status.last_step(context.status))
    return conclude(context, context.status, outcome)


def conclude(context: Context, current: RLJobStatus, outcome: Outcome, failure: Failure | None = None) -> Plan:
    """Judge an end that is no success; `current` already holds the last progress."""
    saved = current.checkpoint.step if current.checkpoint else 0
    seed = f"{context.job.uid}/{context.intent.cluster_name}/{context.intent.attempt}"
    known = failure or _understood(context, outcome)
    failure = _doubted(context, current, outcome, known) if failure is None else known
    verdict = judge(failure, context.restart, current.budget, saved, seed)
    if verdict.action is Action.FAIL and failure is not known:
        # The benefit of the doubt must not cost what the run's own budget still gives.
        failure = known
        verdict = judge(failure, context.restart, current.budget, saved, seed)
    counters = counted(current.counters, failure.cause)
    judged = current.model_copy(update={"counters": counters, "budget": verdict.budget})
    told = f"{failure.message} ({verdict.why})" if verdict.why else failure.message
    final = replace(outcome, reason=failure.reason, message=told)
    if verdict.action in (Action.FAIL, Action.STOP):
        return end(judged, context, final, failure=failure, stopped=verdict.action is Action.STOP)
    return _restart(context, judged, final, verdict)


def _understood(context: Context, outcome: Outcome) -> Failure:
    node_faults = () if isinstance(context.node_faults, Unseen) else context.node_faults
    killed = (
        killed_pods(context.observed.cluster_events, context.attempt.submitted_time)
        if context.attempt is not None
        else ()
    )
    failure = with_node_faults(classify(outcome, _pods(context), killed), node_faults)
    if failure.node is None and failure.reason == Reason.HEAD_LOST:
        return replace(failure, node=context.intent.head_node)
    return failure


def _doubted(context: Context, current: RLJobStatus, outcome: Outcome, failure: Failure) -> Failure:
    return with_doubt(failure, current.attempts, outcome.last_step) if context.open_attempt is not None else failure


def _pods(context: Context) -> Iterable[Manifest]:
    pods, head = () if isinstance(context.observed.pods, Unseen) else context.observed.pods, context.observed.head_pod
    # KubeRay may have deleted it since the watch told of it.
    if (
        head is None
        or not context.head_is_intended
        or any(p["metadata"]["uid"] == context.intent.head_pod_uid for p in pods)
    ):
        return pods
    return (*pods, head)


def counted(counters: Counters, cause: FailureCause) -> Counters:
    """Count an attempt that did not end well."""
    match cause:
        case FailureCause.PREEMPTION:
            return counters.model_copy(update={"preemptions": counters.preemptions + 1})
        case FailureCause.INFRASTRUCTURE:
            return counters.model_copy(update={"infrastructure_failures": counters.infrastructure_failures + 1})
    return counters.model_copy(update={"user_failures": counters.user_failures + 1})


def with_recalled(current: RLJobStatus, attempts: Iterable[Attempt]) -> RLJobStatus:
    """Put the attempts back that a lost status held, with what they count and used; the budget begins anew."""
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


def _restart(context: Context, current: RLJobStatus, outcome: Outcome, verdict: Verdict) -> Plan:
    failure, begin = verdict.failure, context.now + timedelta(seconds=verdict.wait_seconds)
    new = close_attempt(current, context, outcome, result_of(failure), failure)
    new = new.model_copy(
        update={
            "restarts": current.restarts + 1,
            "next_attempt_time": times.to_text(begin),
            "excluded_nodes": _excluded(context, new, verdict),
        }
    )
    # A run that had to be stopped has shown its cluster in doubt, whatever it ended by meanwhile.
    if verdict.action is Action.RESTART_DRIVER and context.status.stop is None:
        new, where = new.model_copy(update={"intent": without_attempt(context, begin)}), "in the same cluster"
    else:
        now = times.to_text(context.now)
        stop = StopStatus(reason=Reason.RESTARTING, mode=StopMode.IMMEDIATE.value, requested_time=now, deadline=now)
        new, where = new.model_copy(update={"stop": stop}), "in a new cluster"
    message = f"{failure.reason}: {outcome.message}; goes on {where} at {times.to_text(begin)}"
    new = context.writer.with_condition(
        new, ConditionType.PROGRESSING, ConditionStatus.FALSE, Reason.RESTARTING, message
    )
    new = context.writer.summarised(new, State.RESTARTING, failure.reason, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.RESTARTING, status.bounded(message)))


def result_of(failure: Failure) -> AttemptOutcome:
    """Name how an attempt ended."""
    if failure.cause is FailureCause.PREEMPTION:
        return AttemptOutcome.PREEMPTED
    return AttemptOutcome.LOST if failure.reason in LOST else AttemptOutcome.FAILED


def without_attempt(context: Context, begin: datetime) -> Intent:
    """Give the intent of the same cluster before its next attempt."""
    update = {"attempt": 0, "submission_id": None, "head_pod_uid": None, "head_node": None}
    return context.timed(context.intent.model_copy(update=update), begin)


def _excluded(context: Context, current: RLJobStatus, verdict: Verdict) -> list[ExcludedNode]:
    """Add nodes that did not pass the check, that a rule blames, or blamed twice; drop what is over."""
    node, reason = verdict.failure.node, verdict.failure.reason
    kept = [entry for entry in current.excluded_nodes if times.from_text(entry.until) > context.now]
    if reason == Reason.START_DEADLINE_EXCEEDED:
        # Perhaps too few nodes are left: better a doubtful node than none.
        return []
    if node is None:
        return kept
    until = times.to_text(context.now + timedelta(seconds=EXCLUDED_SECONDS))
    if unfit := verdict.failure.unfit[:EXCLUDED_MAX]:
        why = status.bounded(verdict.failure.message, EXCLUDED_MESSAGE_BYTES) or None
        added = [ExcludedNode(name=name, reason=reason, until=until, message=why) for name in unfit]
        return [*(entry for entry in kept if entry.name not in unfit), *added][-EXCLUDED_MAX:]
    blamed = sum(entry.node == node and entry.cause is FailureCause.INFRASTRUCTURE for entry in current.attempts)
    if not verdict.exclude and blamed < BLAMED_TWICE:
        return kept
    others = [entry for entry in kept if entry.name != node]
    return [*others, ExcludedNode(name=node, reason=reason, until=until)][-EXCLUDED_MAX:]


def end_overdue(context: Context) -> Plan | None:
    """Begin no attempt for which deadlines.activeSeconds leaves no time: its NPUs would come for nothing."""
    limit, used = context.deadlines.active_seconds, context.status.usage.attempt_seconds
    if not limit or used < limit or (context.active and context.intent.attempt > 0):
        return None
    told = f"deadlines.activeSeconds {limit} passed: the attempts so far took {used} s"
    return fail(context, Reason.ACTIVE_DEADLINE_EXCEEDED, told)


def back_off(context: Context) -> Plan | None:
    """Begin nothing before its time; the old cluster is gone by now, or waits for its next driver."""
    begin = context.status.next_attempt_time
    if begin is None or (context.active and context.intent.attempt > 0):
        return None
    wait = (times.from_text(begin) - context.now).total_seconds()
    if wait <= 0:
        return None
    return Plan(requeue_after_seconds=wait)
