"""What follows an attempt that ended: another one, in the same or in a new cluster, or the end of the job.

The verdict is written with its counters and with the time before which nothing begins. A new cluster begins only when
every pod of the old one is gone, by the same teardown as for a suspension.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from rljob.api.status import (
    AttemptOutcome,
    ConditionStatus,
    ConditionType,
    ExcludedNode,
    FailureCause,
    RLJobStatus,
    State,
)
from rljob.api.under_way import StopStatus
from rljob.core import status, times
from rljob.core.attempts.classify import Action, Failure, Verdict, classify, judge, with_doubt, with_node_faults
from rljob.core.attempts.evidence import killed_pods
from rljob.core.attempts.lost_workers import are_all_seen, is_younger, leave, lost_workers
from rljob.core.attempts.runtime_mismatch import with_image_named
from rljob.core.attempts.start_advice import injected_image
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted, is_suspended, pod_has_ended
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.transitions.attempts import LOST, close_attempt, counted, without_attempt
from rljob.core.transitions.final_conditions import with_final_conditions
from rljob_runtime.contract import ExitCode, Outcome, StopMode

EXCLUDED_MAX = 8
EXCLUDED_MESSAGE_BYTES = 200
EXCLUDED_SECONDS = 24 * 3600
"""A day: time for somebody to look at the node; afterwards it gets another chance."""
BLAMED_TWICE = 2
UNDER_WAY = ("stop", "ending", "initializer", "next_attempt_time")
"""Parts of the status that describe something unfinished."""

NO_RESTART = (
    "not restarted: without spec.checkpoint, restart.maxInfrastructureRestarts is 0; set checkpoint to continue after "
    "a loss, or that limit to begin again"
)


def fail(context: Context, reason: Reason, message: str) -> Plan:
    """Finish as Failed for a reason that the operator found itself."""
    outcome = Outcome(ExitCode.FAILED, reason.value, message, last_step=status.last_step(context.status))
    return end(context.status, context, outcome)


def end(
    current: RLJobStatus, context: Context, outcome: Outcome, *, failure: Failure | None = None, stopped: bool = False
) -> Plan:
    """Finish with an outcome; `current` already holds the last progress. Stopped: by a restart rule or on request."""
    succeeded = outcome.exit_code == ExitCode.DONE
    state = State.SUCCEEDED if succeeded else State.STOPPED if stopped else State.FAILED
    word = outcome.reason or (Reason.SUCCEEDED if succeeded else Reason.DRIVER_FAILED)
    new = close_attempt(current, context, replace(outcome, reason=word), _result(outcome, word), failure)
    over = {"finished_time": times.to_text(context.now)} | dict.fromkeys(UNDER_WAY)
    new = with_final_conditions(new.model_copy(update=over), context.writer, word)
    # Finished has one of few reasons, so that scripts can wait for it; the cause is in the message.
    message = outcome.message if succeeded or not outcome.message else f"{word}: {outcome.message}"
    new = context.writer.with_condition(new, ConditionType.FINISHED, ConditionStatus.TRUE, state.value, message)
    new = context.writer.summarised(new, state, word, outcome.message)
    kind = EventType.NORMAL if succeeded or word == Reason.STOP_REQUESTED else EventType.WARNING
    return context.write(
        new, EventNote(kind, word, status.bounded(outcome.message or f"the job {state.value.lower()}"))
    )


def end_on_request(context: Context, current: RLJobStatus, message: str = "") -> Plan:
    """Finish as Stopped because the user asked for it; no attempt is open any more, and `message` is its last word."""
    saved, last = current.checkpoint, status.last_step(current)
    kept = "without a checkpoint" if saved is None else f"with the checkpoint of step {saved.step}"
    text = f"spec.stop.requested ended the job after step {last}, {kept}" + (f"; {message}" if message else "")
    return end(current, context, Outcome(ExitCode.STOPPED, Reason.STOP_REQUESTED, text, last_step=last), stopped=True)


def _result(outcome: Outcome, word: str) -> AttemptOutcome:
    if outcome.exit_code == ExitCode.DONE:
        return AttemptOutcome.SUCCEEDED
    return AttemptOutcome.LOST if word in LOST else AttemptOutcome.FAILED


def give_up(context: Context, reason: Reason, message: str) -> Plan:
    """Conclude an attempt or a start that the operator itself finds lost."""
    outcome = Outcome(ExitCode.FAILED, reason.value, message, last_step=status.last_step(context.status))
    return conclude(context, context.status, outcome)


def conclude(context: Context, current: RLJobStatus, outcome: Outcome, failure: Failure | None = None) -> Plan:
    """Decide what follows an end that is no success; `current` already holds the last progress."""
    saved = current.checkpoint.step if current.checkpoint else 0
    seed = f"{context.job.uid}/{context.intent.cluster_name}/{context.intent.attempt}"
    found = failure or _understood(context, outcome)
    in_doubt = found if failure is not None else _doubted(context, current, outcome, found)
    verdict = judge(in_doubt, context.restart, current.budget, saved, seed)
    if verdict.action is Action.FAIL:
        # The benefit of the doubt must not cost what the run's own budget still allows.
        verdict = judge(found, context.restart, current.budget, saved, seed)
    failure = verdict.failure
    counters = counted(current.counters, failure.cause)
    judged = current.model_copy(update={"counters": counters, "budget": verdict.budget})
    lost = failure.cause is FailureCause.INFRASTRUCTURE and verdict.action is Action.FAIL
    why = verdict.why or (NO_RESTART if lost and context.open_attempt is not None else "")
    text = f"{failure.message} ({why})" if why else failure.message
    final = replace(outcome, reason=failure.reason, message=text)
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
    if context.frozen_spec is not None:
        failure = with_image_named(failure, context.frozen_spec.runtime, injected_image(context.cluster))
    if failure.node is None and failure.reason == Reason.HEAD_LOST:
        return replace(failure, node=context.intent.head_node)
    return failure


def _doubted(context: Context, current: RLJobStatus, outcome: Outcome, failure: Failure) -> Failure:
    return with_doubt(failure, current.attempts, outcome.last_step) if context.open_attempt is not None else failure


def _pods(context: Context) -> Iterable[Manifest]:
    pods, head = () if isinstance(context.observed.pods, Unseen) else context.observed.pods, context.observed.head_pod
    # KubeRay may have deleted the head since the watch delivered it.
    if head is None or not context.is_intended_head(head) or any(map(context.is_intended_head, pods)):
        return pods
    return (*pods, head)


def _restart(context: Context, current: RLJobStatus, outcome: Outcome, verdict: Verdict) -> Plan:
    failure = verdict.failure
    new = close_attempt(current, context, outcome, _result_of(failure), failure)
    excluded = _excluded(context, new, verdict)
    keeps_workers = verdict.action is Action.RESTART_WORKERS and _may_keep_pods(context, excluded)
    # A run that had to be stopped casts doubt on its cluster, however it ended meanwhile.
    keeps = keeps_workers or (verdict.action is Action.RESTART_DRIVER and context.status.stop is None)
    begin = _next_begin(context, 0.0 if keeps and verdict.first else verdict.wait_seconds)
    new = new.model_copy(
        update={
            "restarts": current.restarts + 1,
            "next_attempt_time": times.to_text(begin),
            "excluded_nodes": excluded,
        }
    )
    if keeps:
        intent = without_attempt(context, begin, awaits_workers=keeps_workers)
        new = new.model_copy(update={"intent": intent, "stop": None})
        where = "in the same cluster, whose other pods stay," if keeps_workers else "in the same cluster"
    else:
        now = times.to_text(context.now)
        stop = StopStatus(reason=Reason.RESTARTING, mode=StopMode.IMMEDIATE.value, requested_time=now, deadline=now)
        new, where = new.model_copy(update={"stop": stop}), "in a new cluster"
    message = f"{failure.reason}: {outcome.message}; restarting {where} at {times.to_text(begin)}"
    new = context.writer.with_condition(
        new, ConditionType.PROGRESSING, ConditionStatus.FALSE, Reason.RESTARTING, message
    )
    new = context.writer.summarised(new, State.RESTARTING, failure.reason, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.RESTARTING, status.bounded(message)))


def _next_begin(context: Context, wait_seconds: float) -> datetime:
    """Return when the next attempt may begin. The wait counts from the loss for which a run was stopped."""
    stop = context.status.stop
    since = context.now if stop is None else times.from_text(stop.requested_time)
    return max(since + timedelta(seconds=wait_seconds), context.now)


def _may_keep_pods(context: Context, excluded: list[ExcludedNode]) -> bool:
    """Report whether the next attempt may begin in this cluster once KubeRay has replaced its lost workers.

    Not without its head, which holds the state of Ray, and not to avoid a node: the affinity of pods is that with which
    their cluster was created. Not if one LIST cannot show all pods, nor if no pod is lost, leaves or was replaced: then
    a node is silent, and keeps its pod. A run that was stopped for lost workers has shown that already.
    """
    stop, cluster, spec = context.status.stop, context.cluster, context.frozen_spec
    if cluster is None or is_deleted(cluster) or is_suspended(cluster) or not are_all_seen(cluster):
        return False
    head = context.head_pod
    if head is None or not context.head_is_intended or is_deleted(head) or pod_has_ended(head):
        return False
    avoided = {entry.name for entry in context.status.excluded_nodes}
    if spec is None or any(entry.name not in avoided for entry in excluded):
        return False
    if stop is not None:
        return stop.reason == Reason.WORKER_LOST
    pods = () if isinstance(context.observed.pods, Unseen) else context.observed.pods
    since = context.attempt.submitted_time if context.attempt is not None else times.to_text(context.now)
    return leave(pods, spec) or is_younger(pods, spec, since) or (bool(pods) and lost_workers(cluster, pods, spec) > 0)


def _result_of(failure: Failure) -> AttemptOutcome:
    """Return the outcome of an attempt that another one follows."""
    if failure.cause is FailureCause.PREEMPTION:
        return AttemptOutcome.PREEMPTED
    return AttemptOutcome.LOST if failure.reason in LOST else AttemptOutcome.FAILED


def _excluded(context: Context, current: RLJobStatus, verdict: Verdict) -> list[ExcludedNode]:
    """Return the nodes to avoid: those that failed a check, that a rule blames, or that were blamed twice."""
    node, reason = verdict.failure.node, verdict.failure.reason
    kept = [entry for entry in current.excluded_nodes if times.from_text(entry.until) > context.now]
    if reason == Reason.START_DEADLINE_EXCEEDED:
        # Too few nodes may be left, and a doubtful node is better than none.
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
