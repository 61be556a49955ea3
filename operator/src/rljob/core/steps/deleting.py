"""Our own finalizer on a job whose run may save before the job is deleted.

It is set only if spec.stop.requireCheckpoint asks for it, and only while a cluster generation is under way; the
deletion of any other job is left to garbage collection and the pods' preStop hooks. `stopping.stop_deleted` stops the
run. Nothing is created here, and nothing is waited for beyond status.stop.deadline: the deletion of a namespace must
not hang.
"""

from __future__ import annotations

from rljob.api.status import ConditionType
from rljob.core import status
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted, is_held
from rljob.core.observed import Unseen
from rljob.core.plan import Plan, SetFinalizers
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.render.labels import FORCE_DELETE, STOP_FINALIZER


def let_go(context: Context) -> Plan | None:
    """Remove the finalizer when there is nothing to wait for, or when the user forces it."""
    if not is_held(context.observed.job):
        return None
    if _has_a_run(context) and not _forced(context):
        if isinstance(context.observed.snapshot, Unseen):
            # Whether a checkpoint is required may be part of what could not be read.
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        if context.stop.require_checkpoint:
            return None
    kept = tuple(name for name in _finalizers(context) if name != STOP_FINALIZER)
    return Plan(effects=(SetFinalizers(kept),))


def hold(context: Context) -> Plan | None:
    """Set the finalizer before there is anything that could be lost."""
    if is_held(context.observed.job) or not context.stop.require_checkpoint or _forced(context):
        return None
    return Plan(effects=(SetFinalizers((*_finalizers(context), STOP_FINALIZER)),))


def _has_a_run(context: Context) -> bool:
    """Report whether something may be saved: while a run may start, and after the deletion only an existing one."""
    if status.is_true(context.status, ConditionType.FINISHED) or not context.active:
        return False
    return context.open_attempt is not None or not is_deleted(context.observed.job)


def _forced(context: Context) -> bool:
    return (context.observed.job["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true"


def _finalizers(context: Context) -> tuple[str, ...]:
    return tuple(context.observed.job["metadata"].get("finalizers") or ())
