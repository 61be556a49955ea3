"""A deleted job that may save first: our own finalizer, and the stop that it waits for.

Only where spec.stop.requireCheckpoint asks for it, and only while a cluster generation is under way; the deletion of
any other job is left to garbage collection and the pods' preStop hooks. Nothing is ever made here, and nothing is
waited for beyond status.stop.deadline: a namespace that is deleted must not hang.
"""

from __future__ import annotations

from rljob.api.status import ConditionType
from rljob.core import status
from rljob.core.context import LOOK_AGAIN_SECONDS, Context, is_held
from rljob.core.observed import Unseen
from rljob.core.plan import Plan, SetFinalizers
from rljob.core.reasons import Reason
from rljob.core.steps import stopping
from rljob.core.steps.ordering import order_stop
from rljob.render.labels import FORCE_DELETE, STOP_FINALIZER


def let_go(context: Context) -> Plan | None:
    """Take the finalizer off when there is nothing to wait for, or when the user says so."""
    if not is_held(context.observed.job):
        return None
    if _has_a_run(context) and not _forced(context):
        if isinstance(context.observed.snapshot, Unseen):
            # Whether a checkpoint is required may stand in what could not be read.
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        if context.stop.require_checkpoint:
            return None
    kept = tuple(name for name in _finalizers(context) if name != STOP_FINALIZER)
    return Plan(effects=(SetFinalizers(kept),))


def save_first(context: Context) -> Plan | None:
    """Stop the run of a job that is being deleted; when its attempt is closed, `let_go` follows."""
    if not _leaving(context) or not is_held(context.observed.job):
        return None
    if context.status.stop is not None:
        return stopping.await_end(context)
    return order_stop(context, Reason.DELETED)


def hold(context: Context) -> Plan | None:
    """Put the finalizer on before there is anything that could be lost."""
    if is_held(context.observed.job) or not context.stop.require_checkpoint or _forced(context):
        return None
    return Plan(effects=(SetFinalizers((*_finalizers(context), STOP_FINALIZER)),))


def _has_a_run(context: Context) -> bool:
    """Whether something may be saved: as long as a run may come, and after the deletion only one that is there."""
    if status.is_true(context.status, ConditionType.FINISHED) or not context.active:
        return False
    return context.open_attempt is not None or not _leaving(context)


def _leaving(context: Context) -> bool:
    return "deletionTimestamp" in context.observed.job["metadata"]


def _forced(context: Context) -> bool:
    return (context.observed.job["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true"


def _finalizers(context: Context) -> tuple[str, ...]:
    return tuple(context.observed.job["metadata"].get("finalizers") or ())
