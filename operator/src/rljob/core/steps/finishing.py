"""The end: Finished is written first, then the NPUs are freed; a finished job is never taken up again."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.status import AttemptOutcome, ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core import clock, status
from rljob.core.observed import Manifest, RefusalCause, Unseen
from rljob.core.plan import DeleteObject, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.view import LOOK_AGAIN_SECONDS, View, is_ours
from rljob_runtime.contract import ExitCode, Outcome

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
    if not living:
        return Plan()
    if isinstance(view.observed.snapshot, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    finished = view.status.finished_time or clock.to_text(view.now)
    wait = (clock.after(finished, view.cleanup.cluster_after_seconds) - view.now).total_seconds()
    if wait > 0:
        return Plan(requeue_after_seconds=wait)
    return Plan(effects=tuple(delete_cluster(cluster) for cluster in living))


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
    if not view.observed.refusals:
        return None
    first = view.observed.refusals[0]
    if first.cause is RefusalCause.INVALID:
        fix = "correct the fields that it was made from and create the job again"
        return fail(view, Reason.INVALID_MANIFEST, f"{first.kind} {first.name}: {first.why}; {fix}")
    return fail(view, Reason.NAME_TAKEN, f"{first.kind} {first.name}: {first.why}; delete it and create the job again")


def fail(view: View, reason: Reason, message: str) -> Plan:
    """Finish as Failed for a reason that the operator found itself."""
    last_step = view.status.progress.step if view.status.progress else 0
    outcome = Outcome(exit_code=ExitCode.FAILED, reason=reason.value, message=message, last_step=last_step)
    return end(view.status, view, outcome)


def end(current: RLJobStatus, view: View, outcome: Outcome) -> Plan:
    """Finish with an outcome; `current` already holds the last progress."""
    succeeded = outcome.exit_code == ExitCode.DONE
    state = State.SUCCEEDED if succeeded else State.FAILED
    word = outcome.reason or (Reason.SUCCEEDED if succeeded else Reason.DRIVER_FAILED)
    new = close_attempt(current, view, replace(outcome, reason=word), _result(outcome, word))
    new = new.model_copy(update={"finished_time": clock.to_text(view.now), "stop": None})
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


def close_attempt(current: RLJobStatus, view: View, outcome: Outcome, result: AttemptOutcome) -> RLJobStatus:
    """Write the end of the open attempt, if there is one."""
    if view.open_attempt is None:
        return current
    closed = current.attempts[-1].model_copy(
        update={
            "end_time": clock.to_text(view.now),
            "outcome": result,
            "reason": outcome.reason or Reason.DRIVER_FAILED,
            "message": status.bounded(outcome.message) or None,
            "last_step": max(outcome.last_step, current.progress.step if current.progress else 0),
        }
    )
    return current.model_copy(update={"attempts": [*current.attempts[:-1], closed]})
