"""A deleted job that may save first: our own finalizer, and the stop that it waits for.

Only where spec.stop.requireCheckpoint asks for it, and only while a cluster generation is under way; the deletion of
any other job is left to garbage collection and the pods' preStop hooks. Nothing is ever made here, and nothing is
waited for beyond status.stop.deadline: a namespace that is deleted must not hang.
"""

from __future__ import annotations

from rljob.api.status import ConditionType
from rljob.build.labels import FORCE_DELETE, STOP_FINALIZER
from rljob.core import status
from rljob.core.observed import Unseen
from rljob.core.plan import Plan, SetFinalizers
from rljob.core.reasons import Reason
from rljob.core.steps import stopping
from rljob.core.steps.ordering import order_stop
from rljob.core.view import LOOK_AGAIN_SECONDS, View, is_held


def let_go(view: View) -> Plan | None:
    """Take the finalizer off when there is nothing to wait for, or when the user says so."""
    if not is_held(view.observed.job):
        return None
    if _has_a_run(view) and not _forced(view):
        if isinstance(view.observed.snapshot, Unseen):
            # Whether a checkpoint is required may stand in what could not be read.
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        if view.stop.require_checkpoint:
            return None
    kept = tuple(name for name in _finalizers(view) if name != STOP_FINALIZER)
    return Plan(effects=(SetFinalizers(kept),))


def save_first(view: View) -> Plan | None:
    """Stop the run of a job that is being deleted; when its attempt is closed, `let_go` follows."""
    if not _leaving(view) or not is_held(view.observed.job):
        return None
    if view.status.stop is not None:
        return stopping.await_end(view)
    return order_stop(view, Reason.DELETED)


def hold(view: View) -> Plan | None:
    """Put the finalizer on before there is anything that could be lost."""
    if is_held(view.observed.job) or not view.stop.require_checkpoint or _forced(view):
        return None
    return Plan(effects=(SetFinalizers((*_finalizers(view), STOP_FINALIZER)),))


def _has_a_run(view: View) -> bool:
    """Whether something may be saved: as long as a run may come, and after the deletion only one that is there."""
    if status.is_true(view.status, ConditionType.FINISHED) or not view.active:
        return False
    return view.open_attempt is not None or not _leaving(view)


def _leaving(view: View) -> bool:
    return "deletionTimestamp" in view.observed.job["metadata"]


def _forced(view: View) -> bool:
    return (view.observed.job["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true"


def _finalizers(view: View) -> tuple[str, ...]:
    return tuple(view.observed.job["metadata"].get("finalizers") or ())
