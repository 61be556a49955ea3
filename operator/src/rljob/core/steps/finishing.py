"""The end: Finished is written first, then the NPUs are freed; a finished job is never taken up again."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.status import Attempt, AttemptOutcome, ConditionStatus, ConditionType, Intent, RLJobStatus, State
from rljob.api.v1alpha1 import API_VERSION
from rljob.core import status, times
from rljob.core.attempts.classify import Failure
from rljob.core.attempts.usage import added_usage, with_held_before, with_start_usage, with_usage
from rljob.core.context import LOOK_AGAIN_SECONDS, Context, could_begin, is_ours
from rljob.core.observed import Manifest, RefusalCause, Unseen
from rljob.core.plan import DeleteObject, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.steps.node_health import without_node_faults
from rljob.render import names
from rljob_runtime.contract import ExitCode, Outcome

ATTEMPTS_KEPT = 10
EARLIER_MESSAGE_BYTES = 300
"""Ten whole messages would be more than the status may hold."""
LOST = frozenset({Reason.CLUSTER_LOST, Reason.HEAD_LOST, Reason.DRIVER_LOST})


def leave_foreign(context: Context) -> Plan | None:
    """Do nothing for a job that names another operator in managedBy."""
    return None if is_ours(context.observed.job) else Plan()


def leave_deleted(context: Context) -> Plan | None:
    """Do nothing for a job that is being deleted: owner references free what it held."""
    return Plan() if "deletionTimestamp" in context.observed.job["metadata"] else None


def clean_up(context: Context) -> Plan | None:
    """Delete the clusters of a finished job when their time has come."""
    if not status.is_true(context.status, ConditionType.FINISHED):
        return None
    living = [c for c in context.observed.clusters if "deletionTimestamp" not in c["metadata"]]
    if isinstance(context.observed.snapshot, Unseen):
        # Without clusters it is asked for only where the job may have an end to its stay.
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if living else Plan()
    if living:
        wait = _seconds_left(context, _cluster_after_seconds(context))
        return Plan(requeue_after_seconds=wait) if wait > 0 else Plan(effects=tuple(map(delete_cluster, living)))
    if context.cleanup.job_after_seconds is None:
        return Plan()
    wait = _seconds_left(context, context.cleanup.job_after_seconds)
    return Plan(requeue_after_seconds=wait) if wait > 0 else Plan(effects=(_delete_job(context),))


def _seconds_left(context: Context, seconds: int) -> float:
    finished = context.status.finished_time or times.to_text(context.now)
    return (times.after(finished, seconds) - context.now).total_seconds()


def _cluster_after_seconds(context: Context) -> int:
    """With keepOnFailure only a failed job's cluster is worth its NPUs."""
    finished = status.condition(context.status, ConditionType.FINISHED)
    failed = finished is not None and finished.reason == State.FAILED
    kept = failed or not context.cleanup.keep_on_failure
    return context.cleanup.cluster_after_seconds if kept else 0


def _delete_job(context: Context) -> DeleteObject:
    return DeleteObject(
        api_version=API_VERSION,
        kind="RLJob",
        namespace=context.job.namespace,
        name=context.job.name,
        uid=context.job.uid,
    )


def delete_cluster(cluster: Manifest) -> DeleteObject:
    """Give the deletion of one RayCluster, bound to its uid."""
    metadata = cluster["metadata"]
    return DeleteObject(
        api_version=str(cluster.get("apiVersion", "ray.io/v1")),
        kind="RayCluster",
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
    )


def give_up_refused(context: Context) -> Plan | None:
    """End a job with a child that can never be made: no retry can help."""
    first = next((r for r in context.observed.refusals if r.cause is not RefusalCause.DENIED), None)
    if first is None:
        return None
    if first.cause is RefusalCause.INVALID:
        fix = "correct the fields that it was made from and create the job again"
        return fail(context, Reason.INVALID_MANIFEST, f"{first.kind} {first.name}: {first.why}; {fix}")
    return fail(
        context, Reason.NAME_TAKEN, f"{first.kind} {first.name}: {first.why}; delete it and create the job again"
    )


def fail(context: Context, reason: Reason, message: str) -> Plan:
    """Finish as Failed for a reason that the operator found itself."""
    outcome = Outcome(ExitCode.FAILED, reason.value, message, last_step=status.last_step(context.status))
    return end(context.status, context, outcome)


def end(
    current: RLJobStatus, context: Context, outcome: Outcome, *, failure: Failure | None = None, stopped: bool = False
) -> Plan:
    """Finish with an outcome; `current` already holds the last progress. Stopped: a rule ended it without blame."""
    succeeded = outcome.exit_code == ExitCode.DONE
    state = State.SUCCEEDED if succeeded else State.STOPPED if stopped else State.FAILED
    word = outcome.reason or (Reason.SUCCEEDED if succeeded else Reason.DRIVER_FAILED)
    new = close_attempt(current, context, replace(outcome, reason=word), _result(outcome, word), failure)
    new = new.model_copy(update={"finished_time": times.to_text(context.now), "stop": None, "next_attempt_time": None})
    if status.condition(new, ConditionType.PROGRESSING) is not None:
        new = context.writer.with_condition(new, ConditionType.PROGRESSING, ConditionStatus.FALSE, word)
    # The reason of Finished is one of few words, so that scripts can wait for it; the cause is in the message.
    message = outcome.message if succeeded or not outcome.message else f"{word}: {outcome.message}"
    new = context.writer.with_condition(new, ConditionType.FINISHED, ConditionStatus.TRUE, state.value, message)
    new = context.writer.summarised(new, state, word, outcome.message)
    kind = EventType.NORMAL if succeeded else EventType.WARNING
    return context.write(
        new, EventNote(kind, word, status.bounded(outcome.message or f"the job {state.value.lower()}"))
    )


def _result(outcome: Outcome, word: str) -> AttemptOutcome:
    if outcome.exit_code == ExitCode.DONE:
        return AttemptOutcome.SUCCEEDED
    return AttemptOutcome.LOST if word in LOST else AttemptOutcome.FAILED


def close_attempt(
    current: RLJobStatus, context: Context, outcome: Outcome, result: AttemptOutcome, failure: Failure | None = None
) -> RLJobStatus:
    """Write the end of the open attempt, or of a start that failed before there was one, and what it used."""
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
            "cause": failure.cause if failure else None,
            "node": failure.node if failure else None,
        }
    )
    current = without_node_faults(context, current)
    others = [entry for entry in current.attempts if entry.submission_id != closed.submission_id]
    if open_attempt:
        begun = with_held_before([*others, closed], context.observed.held, context.resolved)
        closed = with_usage(begun, current, context.resolved, context.now)
    else:
        pods = () if isinstance(context.observed.pods, Unseen) else context.observed.pods
        closed = with_start_usage(closed, pods, context.resolved, context.now)
    return current.model_copy(
        update={
            "attempts": with_attempt(others, closed),
            "usage": added_usage(current.usage, closed),
            "ending": None,
        }
    )


def _open_attempt(current: RLJobStatus) -> Attempt | None:
    """Give the attempt that has no end; one that was intended may have been submitted, so its number is used up."""
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
    """Give the record of a start to which nothing was submitted, if it had a cluster: it may have held every node."""
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
    """Say since when the start lasts: the time in a queue is none of it."""
    intent, last = context.intent, current.attempts[-1] if current.attempts else None
    admitted = status.condition(current, ConditionType.ADMITTED)
    if admitted is not None and admitted.status is not ConditionStatus.TRUE:
        return times.to_text(context.now)
    ours = context.cluster is not None and intent.cluster_uid in (None, context.cluster["metadata"]["uid"])
    begun = [
        times.to_text(could_begin(context, context.cluster)) if context.cluster is not None and ours else intent.time
    ]
    if admitted is not None:
        begun.append(admitted.last_transition_time)
    if last is not None and last.end_time is not None and last.cluster_name == intent.cluster_name:
        # Another driver was to follow in its cluster.
        begun.append(last.end_time)
    return max(begun)


def next_number(current: RLJobStatus, intent: Intent) -> int:
    """Count over the life of the job, never below the generation."""
    return max(max((entry.number for entry in current.attempts), default=0) + 1, intent.cluster_generation)


def with_attempt(earlier: list[Attempt], attempt: Attempt) -> list[Attempt]:
    """Add an attempt as the last; of the earlier ones stays what keeps the status small."""
    return [*map(_shortened, earlier[-ATTEMPTS_KEPT + 1 :]), attempt]


def _shortened(attempt: Attempt) -> Attempt:
    message = status.bounded(attempt.message, EARLIER_MESSAGE_BYTES) if attempt.message else None
    return attempt.model_copy(update={"message": message})
