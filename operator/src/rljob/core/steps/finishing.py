"""Jobs that need nothing more: those of another operator, deleted ones, and finished ones once they are cleaned up.

Finished is written first and the NPUs are freed afterwards; a finished job is never started again.
"""

from __future__ import annotations

from rljob.api.status import ConditionType, State
from rljob.api.v1alpha1 import API_VERSION
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted, is_ours
from rljob.core.observed import Manifest, RefusalCause, Unseen
from rljob.core.plan import DeleteObject, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import STOPS_HERE, Requirements
from rljob.core.step import step
from rljob.core.transitions.checkpoint_consumers import CONSUMERS
from rljob.core.transitions.children import delete_cluster
from rljob.core.transitions.conclusions import end, fail
from rljob.core.watched import Watched
from rljob_runtime.contract import RAY_WITHOUT_TOKENS, ExitCode, Outcome


@step(STOPS_HERE, when=lambda seen: not is_ours(seen.manifest))
def leave_foreign(_: Context) -> Plan:
    """Do nothing for a job that names another operator in managedBy."""
    return Plan()


@step(STOPS_HERE, when=lambda seen: is_deleted(seen.manifest))
def leave_deleted(_: Context) -> Plan:
    """Do nothing for a job that is being deleted: garbage collection frees what it held."""
    return Plan()


def _kept_cluster(seen: Watched) -> Requirements:
    """Require the snapshot, which may hold spec.cleanup, if there is anything to clean up."""
    if not seen.clusters and not _may_expire(seen.manifest):
        return STOPS_HERE
    if not seen.began:
        return Requirements(recall=True, stops_here=True)
    return Requirements(snapshot_name=seen.resolved.snapshot_name, stops_here=True)


def _may_expire(job: Manifest) -> bool:
    """Report whether cleanup.jobAfterSeconds may be set: by the job, or by a recipe below it."""
    spec = job.get("spec") or {}
    return bool(spec.get("recipeRef")) or (spec.get("cleanup") or {}).get("jobAfterSeconds") is not None


@step(_kept_cluster, when=lambda seen: seen.finished)
def clean_up(context: Context) -> Plan:
    """Delete the clusters of a finished job, and later the job, after the times in spec.cleanup."""
    living = [c for c in context.observed.clusters if not is_deleted(c)]
    if isinstance(context.observed.snapshot, Unseen):
        # Without clusters it is read only if the job may have cleanup.jobAfterSeconds.
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if living else Plan()
    if living:
        wait = _seconds_left(context, _cluster_after_seconds(context))
        return Plan(requeue_after_seconds=wait) if wait > 0 else Plan(effects=tuple(map(delete_cluster, living)))
    if context.cleanup.job_after_seconds is None:
        return Plan()
    if any(row.under_way(context.status) for row in CONSUMERS):
        # It would be deleted with the job; its own time limits bound the wait.
        return Plan()
    wait = _seconds_left(context, context.cleanup.job_after_seconds)
    return Plan(requeue_after_seconds=wait) if wait > 0 else Plan(effects=(_delete_job(context),))


def _seconds_left(context: Context, seconds: int) -> float:
    finished = context.status.finished_time or times.to_text(context.now)
    return (times.after(finished, seconds) - context.now).total_seconds()


def _cluster_after_seconds(context: Context) -> int:
    """Return how long the cluster stays; with keepOnFailure, only that of a failed job does.

    One whose Ray everybody may use without a token never does.
    """
    if context.status.reason == RAY_WITHOUT_TOKENS:
        return 0
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


@step()
def give_up_refused(context: Context) -> Plan | None:
    """End a job with a child that can never be created: no retry can help."""
    final = (r for r in context.observed.refusals if r.cause is not RefusalCause.DENIED)
    current = context.status
    of_this_job = (r for r in final if not any(row.owns(current, r) for row in CONSUMERS))
    first = next(of_this_job, None)
    if first is None:
        return None
    if first.cause is RefusalCause.OPEN:
        last = status.last_step(current)
        return end(current, context, Outcome(ExitCode.FAILED, RAY_WITHOUT_TOKENS, first.why, last_step=last))
    if first.cause is RefusalCause.INVALID:
        fix = "correct the fields that it is rendered from and create the job again"
        return fail(context, Reason.INVALID_MANIFEST, f"{first.kind} {first.name}: {first.why}; {fix}")
    return fail(
        context, Reason.NAME_TAKEN, f"{first.kind} {first.name}: {first.why}; delete it and create the job again"
    )
