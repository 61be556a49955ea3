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
from rljob.core import clock, status
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.policies.evidence import killed_pods
from rljob.core.policies.failures import Action, Failure, Verdict, classify, judge, with_doubt, with_troubles
from rljob.core.policies.usage import added_usage
from rljob.core.reasons import Reason
from rljob.core.steps.finishing import LOST, close_attempt, end, fail, with_attempt
from rljob.core.steps.minding import EXCLUDED_SECONDS
from rljob.core.view import View
from rljob_runtime.contract import ExitCode, Outcome, StopMode

EXCLUDED_MAX = 8
EXCLUDED_MESSAGE_BYTES = 200
BLAMED_TWICE = 2


def give_up(view: View, reason: Reason, message: str) -> Plan:
    """Conclude an attempt, or the way to one, that the operator itself finds lost."""
    outcome = Outcome(ExitCode.FAILED, reason.value, message, last_step=status.last_step(view.status))
    return conclude(view, view.status, outcome)


def conclude(view: View, current: RLJobStatus, outcome: Outcome, failure: Failure | None = None) -> Plan:
    """Judge an end that is no success; `current` already holds the last progress."""
    saved = current.checkpoint.step if current.checkpoint else 0
    seed = f"{view.job.uid}/{view.intent.cluster_name}/{view.intent.attempt}"
    known = failure or _understood(view, outcome)
    failure = _doubted(view, current, outcome, known) if failure is None else known
    verdict = judge(failure, view.restart, current.budget, saved, seed)
    if verdict.action is Action.FAIL and failure is not known:
        # The benefit of the doubt must not cost what the run's own budget still gives.
        failure = known
        verdict = judge(failure, view.restart, current.budget, saved, seed)
    counters = counted(current.counters, failure.cause)
    judged = current.model_copy(update={"counters": counters, "budget": verdict.budget})
    told = f"{failure.message} ({verdict.why})" if verdict.why else failure.message
    final = replace(outcome, reason=failure.reason, message=told)
    if verdict.action in (Action.FAIL, Action.STOP):
        return end(judged, view, final, failure=failure, stopped=verdict.action is Action.STOP)
    return _restart(view, judged, final, verdict)


def _understood(view: View, outcome: Outcome) -> Failure:
    troubles = () if isinstance(view.troubles, Unseen) else view.troubles
    killed = killed_pods(view.observed.cluster_events, view.attempt.submitted_time) if view.attempt is not None else ()
    failure = with_troubles(classify(outcome, _pods(view), killed), troubles)
    if failure.node is None and failure.reason == Reason.HEAD_LOST:
        return replace(failure, node=view.intent.head_node)
    return failure


def _doubted(view: View, current: RLJobStatus, outcome: Outcome, failure: Failure) -> Failure:
    return with_doubt(failure, current.attempts, outcome.last_step) if view.open_attempt is not None else failure


def _pods(view: View) -> Iterable[Manifest]:
    pods, head = () if isinstance(view.observed.pods, Unseen) else view.observed.pods, view.observed.head_pod
    # KubeRay may have deleted it since the watch told of it.
    if head is None or not view.head_is_intended or any(p["metadata"]["uid"] == view.intent.head_pod_uid for p in pods):
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


def _restart(view: View, current: RLJobStatus, outcome: Outcome, verdict: Verdict) -> Plan:
    failure, begin = verdict.failure, view.now + timedelta(seconds=verdict.wait_seconds)
    new = close_attempt(current, view, outcome, result_of(failure), failure)
    new = new.model_copy(
        update={
            "restarts": current.restarts + 1,
            "next_attempt_time": clock.to_text(begin),
            "excluded_nodes": _excluded(view, new, verdict),
        }
    )
    # A run that had to be stopped has shown its cluster in doubt, whatever it ended by meanwhile.
    if verdict.action is Action.RESTART_DRIVER and view.status.stop is None:
        new, where = new.model_copy(update={"intent": without_attempt(view, begin)}), "in the same cluster"
    else:
        now = clock.to_text(view.now)
        stop = StopStatus(reason=Reason.RESTARTING, mode=StopMode.IMMEDIATE.value, requested_time=now, deadline=now)
        new, where = new.model_copy(update={"stop": stop}), "in a new cluster"
    message = f"{failure.reason}: {outcome.message}; goes on {where} at {clock.to_text(begin)}"
    new = view.writer.with_condition(new, ConditionType.PROGRESSING, ConditionStatus.FALSE, Reason.RESTARTING, message)
    new = view.writer.summarised(new, State.RESTARTING, failure.reason, message)
    return view.write(new, EventNote(EventType.WARNING, Reason.RESTARTING, status.bounded(message)))


def result_of(failure: Failure) -> AttemptOutcome:
    """Name how an attempt ended."""
    if failure.cause is FailureCause.PREEMPTION:
        return AttemptOutcome.PREEMPTED
    return AttemptOutcome.LOST if failure.reason in LOST else AttemptOutcome.FAILED


def without_attempt(view: View, begin: datetime) -> Intent:
    """Give the intent of the same cluster before its next attempt."""
    update = {"attempt": 0, "submission_id": None, "head_pod_uid": None, "head_node": None}
    return view.timed(view.intent.model_copy(update=update), begin)


def _excluded(view: View, current: RLJobStatus, verdict: Verdict) -> list[ExcludedNode]:
    """Add nodes that did not pass the check, that a rule blames, or blamed twice; drop what is over."""
    node, reason = verdict.failure.node, verdict.failure.reason
    kept = [entry for entry in current.excluded_nodes if clock.from_text(entry.until) > view.now]
    if reason == Reason.START_DEADLINE_EXCEEDED:
        # Perhaps too few nodes are left: better a doubtful node than none.
        return []
    if node is None:
        return kept
    until = clock.to_text(view.now + timedelta(seconds=EXCLUDED_SECONDS))
    if unfit := verdict.failure.unfit[:EXCLUDED_MAX]:
        why = status.bounded(verdict.failure.message, EXCLUDED_MESSAGE_BYTES) or None
        added = [ExcludedNode(name=name, reason=reason, until=until, message=why) for name in unfit]
        return [*(entry for entry in kept if entry.name not in unfit), *added][-EXCLUDED_MAX:]
    blamed = sum(entry.node == node and entry.cause is FailureCause.INFRASTRUCTURE for entry in current.attempts)
    if not verdict.exclude and blamed < BLAMED_TWICE:
        return kept
    others = [entry for entry in kept if entry.name != node]
    return [*others, ExcludedNode(name=node, reason=reason, until=until)][-EXCLUDED_MAX:]


def end_overdue(view: View) -> Plan | None:
    """Begin no attempt for which deadlines.activeSeconds leaves no time: its NPUs would come for nothing."""
    limit, used = view.deadlines.active_seconds, view.status.usage.attempt_seconds
    if not limit or used < limit or (view.active and view.intent.attempt > 0):
        return None
    told = f"deadlines.activeSeconds {limit} passed: the attempts so far took {used} s"
    return fail(view, Reason.ACTIVE_DEADLINE_EXCEEDED, told)


def back_off(view: View) -> Plan | None:
    """Begin nothing before its time; the old cluster is gone by now, or waits for its next driver."""
    begin = view.status.next_attempt_time
    if begin is None or (view.active and view.intent.attempt > 0):
        return None
    wait = (clock.from_text(begin) - view.now).total_seconds()
    if wait <= 0:
        return None
    return Plan(requeue_after_seconds=wait)
