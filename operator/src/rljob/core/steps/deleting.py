"""Our own finalizer on a job whose run may save before the job is deleted.

It is set only if spec.stop.requireCheckpoint asks for it, and only while a cluster generation is under way; the
deletion of any other job is left to garbage collection and the pods' preStop hooks. `stopping.stop_deleted` stops the
run. Nothing is created here, and nothing is waited for beyond status.stop.deadline: the deletion of a namespace must
not hang.
"""

from __future__ import annotations

from rljob.api.status import ConditionType, RLJobStatus
from rljob.core import status
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted, is_held
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import Plan, SetFinalizers
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.requirements import NOTHING, STOPS_HERE, Requirements, snapshot
from rljob.core.step import step
from rljob.core.watched import Watched
from rljob.render.labels import FORCE_DELETE, STOP_FINALIZER


def _required_checkpoint(seen: Watched) -> Requirements:
    """Require the snapshot while a run may be saved: spec.stop.requireCheckpoint may be part of it."""
    if not is_held(seen.manifest):
        return NOTHING
    return snapshot(seen) if _has_a_run(seen.status, seen.manifest) and not _forced(seen.manifest) else STOPS_HERE


@step(_required_checkpoint)
def let_go(context: Context) -> Plan | None:
    """Remove the finalizer when there is nothing to wait for, or when the user forces it."""
    if not is_held(context.observed.job):
        return None
    if _has_a_run(context.status, context.observed.job) and not _forced(context.observed.job):
        if isinstance(context.observed.snapshot, Unseen):
            # Whether a checkpoint is required may be part of what could not be read.
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        if context.stop.require_checkpoint:
            return None
    kept = tuple(name for name in _finalizers(context) if name != STOP_FINALIZER)
    return Plan(effects=(SetFinalizers(kept),))


@step()
def hold(context: Context) -> Plan | None:
    """Set the finalizer before there is anything that could be lost."""
    if is_held(context.observed.job) or not context.stop.require_checkpoint or _forced(context.observed.job):
        return None
    return Plan(effects=(SetFinalizers((*_finalizers(context), STOP_FINALIZER)),))


def _has_a_run(current: RLJobStatus, job: Manifest) -> bool:
    """Report whether something may be saved: while a run may start, and after the deletion only an existing one."""
    intent = current.intent
    if status.is_true(current, ConditionType.FINISHED) or intent is None or intent.ended:
        return False
    runs = any(entry.submission_id == intent.submission_id and entry.end_time is None for entry in current.attempts)
    return runs or not is_deleted(job)


def _forced(job: Manifest) -> bool:
    return (job["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true"


def _finalizers(context: Context) -> tuple[str, ...]:
    return tuple(context.observed.job["metadata"].get("finalizers") or ())
