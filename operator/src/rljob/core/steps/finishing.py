"""The end: Finished is written first, then the NPUs are freed; a finished job is never taken up again."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.status import Attempt, AttemptOutcome, ConditionStatus, ConditionType, Intent, RLJobStatus, State
from rljob.api.v1alpha1 import API_VERSION
from rljob.build import names
from rljob.core import clock, status
from rljob.core.observed import Manifest, RefusalCause, Unseen
from rljob.core.plan import DeleteObject, EventNote, EventType, Plan
from rljob.core.policies.failures import Failure
from rljob.core.policies.usage import added_usage, with_held_before, with_start_usage, with_usage
from rljob.core.reasons import Reason
from rljob.core.steps.minding import without_troubles
from rljob.core.view import LOOK_AGAIN_SECONDS, View, could_begin, is_ours
from rljob_runtime.contract import ExitCode, Outcome

ATTEMPTS_KEPT = 10
EARLIER_MESSAGE_BYTES = 300
"""Ten whole messages would be more than the status may hold."""
LOST = frozenset({Reason.CLUSTER_LOST, Reason.HEAD_LOST, Reason.DRIVER_LOST})


def leave_foreign(view: View) -> Plan | None:
    """Do nothing for a job that names another operator in managedBy."""
    return None if is_ours(view.observed.job) else Plan()


def leave_deleted(view: View) -> Plan | None:
    """Do nothing for a job that is being deleted: owner references free what it held."""
    return Plan() if "deletionTimestamp" in view.observed.job["metadata"] else None


def clean_up(view: View) -> Plan | None:
    """Delete the clusters of a finished job when their time has come."""
    if not status.is_true(view.status, ConditionType.FINISHED):
        return None
    living = [c for c in view.observed.clusters if "deletionTimestamp" not in c["metadata"]]
    if isinstance(view.observed.snapshot, Unseen):
        # Without clusters it is asked for only where the job may have an end to its stay.
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if living else Plan()
    if living:
        wait = _seconds_left(view, _cluster_after_seconds(view))
        return Plan(requeue_after_seconds=wait) if wait > 0 else Plan(effects=tuple(map(delete_cluster, living)))
    if view.cleanup.job_after_seconds is None:
        return Plan()
    wait = _seconds_left(view, view.cleanup.job_after_seconds)
    return Plan(requeue_after_seconds=wait) if wait > 0 else Plan(effects=(_delete_job(view),))


def _seconds_left(view: View, seconds: int) -> float:
    finished = view.status.finished_time or clock.to_text(view.now)
    return (clock.after(finished, seconds) - view.now).total_seconds()


def _cluster_after_seconds(view: View) -> int:
    """With keepOnFailure only a failed job's cluster is worth its NPUs."""
    finished = status.condition(view.status, ConditionType.FINISHED)
    failed = finished is not None and finished.reason == State.FAILED
    kept = failed or not view.cleanup.keep_on_failure
    return view.cleanup.cluster_after_seconds if kept else 0


def _delete_job(view: View) -> DeleteObject:
    return DeleteObject(
        api_version=API_VERSION,
        kind="RLJob",
        namespace=view.job.namespace,
        name=view.job.name,
        uid=view.job.uid,
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


def give_up_refused(view: View) -> Plan | None:
    """End a job with a child that can never be made: no retry can help."""
    first = next((r for r in view.observed.refusals if r.cause is not RefusalCause.DENIED), None)
    if first is None:
        return None
    if first.cause is RefusalCause.INVALID:
        fix = "correct the fields that it was made from and create the job again"
        return fail(view, Reason.INVALID_MANIFEST, f"{first.kind} {first.name}: {first.why}; {fix}")
    return fail(view, Reason.NAME_TAKEN, f"{first.kind} {first.name}: {first.why}; delete it and create the job again")


def fail(view: View, reason: Reason, message: str) -> Plan:
    """Finish as Failed for a reason that the operator found itself."""
    outcome = Outcome(ExitCode.FAILED, reason.value, message, last_step=status.last_step(view.status))
    return end(view.status, view, outcome)


def end(
    current: RLJobStatus, view: View, outcome: Outcome, *, failure: Failure | None = None, stopped: bool = False
) -> Plan:
    """Finish with an outcome; `current` already holds the last progress. Stopped: a rule ended it without blame."""
    succeeded = outcome.exit_code == ExitCode.DONE
    state = State.SUCCEEDED if succeeded else State.STOPPED if stopped else State.FAILED
    word = outcome.reason or (Reason.SUCCEEDED if succeeded else Reason.DRIVER_FAILED)
    new = close_attempt(current, view, replace(outcome, reason=word), _result(outcome, word), failure)
    new = new.model_copy(update={"finished_time": clock.to_text(view.now), "stop": None, "next_attempt_time": None})
    if status.condition(new, ConditionType.PROGRESSING) is not None:
        new = view.writer.with_condition(new, ConditionType.PROGRESSING, ConditionStatus.FALSE, word)
    # The reason of Finished is one of few words, so that scripts can wait for it; the cause is in the message.
    message = outcome.message if succeeded or not outcome.message else f"{word}: {outcome.message}"
    new = view.writer.with_condition(new, ConditionType.FINISHED, ConditionStatus.TRUE, state.value, message)
    new = view.writer.summarised(new, state, word, outcome.message)
    kind = EventType.NORMAL if succeeded else EventType.WARNING
    return view.write(new, EventNote(kind, word, status.bounded(outcome.message or f"the job {state.value.lower()}")))


def _result(outcome: Outcome, word: str) -> AttemptOutcome:
    if outcome.exit_code == ExitCode.DONE:
        return AttemptOutcome.SUCCEEDED
    return AttemptOutcome.LOST if word in LOST else AttemptOutcome.FAILED


def close_attempt(
    current: RLJobStatus, view: View, outcome: Outcome, result: AttemptOutcome, failure: Failure | None = None
) -> RLJobStatus:
    """Write the end of the open attempt, or of a start that failed before there was one, and what it used."""
    open_attempt, failed_start = _open_attempt(current), _failed_start(current, view) if failure else None
    ends = open_attempt or failed_start
    if ends is None:
        return current
    closed = ends.model_copy(
        update={
            "end_time": clock.to_text(view.now),
            "outcome": result if open_attempt else AttemptOutcome.LOST,
            "reason": outcome.reason or Reason.DRIVER_FAILED,
            "message": status.bounded(outcome.message) or None,
            "last_step": max(outcome.last_step, status.last_step(current)),
            "cause": failure.cause if failure else None,
            "node": failure.node if failure else None,
        }
    )
    current = without_troubles(view, current)
    others = [entry for entry in current.attempts if entry.submission_id != closed.submission_id]
    if open_attempt:
        begun = with_held_before([*others, closed], view.observed.held, view.resolved)
        closed = with_usage(begun, current, view.resolved, view.now)
    else:
        pods = () if isinstance(view.observed.pods, Unseen) else view.observed.pods
        closed = with_start_usage(closed, pods, view.resolved, view.now)
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


def _failed_start(current: RLJobStatus, view: View) -> Attempt | None:
    """Give the record of a start to which nothing was submitted, if it had a cluster: it may have held every node."""
    intent = current.intent
    if intent is None or intent.submission_id is not None or (view.cluster is None and intent.cluster_uid is None):
        return None
    number = next_number(current, intent)
    return Attempt(
        number=number,
        cluster_name=intent.cluster_name,
        submission_id=names.submission_id(intent.cluster_name, number),
        submitted_time=_start_began(current, view),
    )


def _start_began(current: RLJobStatus, view: View) -> str:
    """Say since when the start lasts: the time in a queue is none of it."""
    intent, last = view.intent, current.attempts[-1] if current.attempts else None
    admitted = status.condition(current, ConditionType.ADMITTED)
    if admitted is not None and admitted.status is not ConditionStatus.TRUE:
        return clock.to_text(view.now)
    ours = view.cluster is not None and intent.cluster_uid in (None, view.cluster["metadata"]["uid"])
    begun = [clock.to_text(could_begin(view, view.cluster)) if view.cluster is not None and ours else intent.time]
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
