"""Our own finalizer on a job whose run may save before the job is deleted.

It is set only if spec.stop.requireCheckpoint asks for it or the run saves behind a NetworkPolicy of the job's own, and
only while a cluster generation is under way; the deletion of any other job is left to garbage collection and the pods'
preStop hooks. `stopping.stop_deleted` stops the run. Nothing is created here, and nothing is waited for beyond
status.stop.deadline: the deletion of a namespace must not hang.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted, is_held
from rljob.core.observed import Unseen
from rljob.core.plan import Plan, SetFinalizers
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.requirements import STOPS_HERE, Requirements, snapshot
from rljob.core.step import step
from rljob.core.watched import Watched
from rljob.render.labels import FORCE_DELETE, ISOLATED, STOP_FINALIZER
from rljob.render.stopping import saves_when_stopped


def _required_checkpoint(seen: Watched) -> Requirements:
    """Require the snapshot while a run may be saved: spec.stop.requireCheckpoint may be part of it."""
    return snapshot(seen) if _may_save(seen) else STOPS_HERE


@step(_required_checkpoint, when=lambda seen: is_held(seen.manifest))
def let_go(context: Context) -> Plan | None:
    """Remove the finalizer when there is nothing to wait for, or when the user forces it."""
    if _may_save(context):
        if isinstance(context.observed.snapshot, Unseen):
            # Whether a checkpoint is required may be part of what could not be read.
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        if _must_save(context):
            return None
    kept = tuple(name for name in _finalizers(context) if name != STOP_FINALIZER)
    return Plan(effects=(SetFinalizers(kept),))


@step()
def hold(context: Context) -> Plan | None:
    """Set the finalizer before there is anything that could be lost."""
    if is_held(context.manifest) or not _must_save(context) or _forced(context):
        return None
    return Plan(effects=(SetFinalizers((*_finalizers(context), STOP_FINALIZER)),))


def _may_save(seen: Watched) -> bool:
    """Report whether something may be saved: while a run may start, and after the deletion only an existing one."""
    if seen.finished or not seen.active or _forced(seen):
        return False
    return seen.open_attempt is not None or not is_deleted(seen.manifest)


def _must_save(context: Context) -> bool:
    """Report whether a deletion waits until the run has saved.

    Garbage collection removes the job's own NetworkPolicy at once, and with it the way from the workers to the head,
    which the hooks of the pods need.
    """
    spec = context.frozen_spec
    loses_policy = spec is not None and saves_when_stopped(spec) and _has_policy(context, spec)
    return context.stop.require_checkpoint or loses_policy


def _has_policy(context: Context, spec: RLJobSpec) -> bool:
    """Report whether the cluster has, or will have, a NetworkPolicy of its own."""
    head = context.observed.head_pod
    marked = head is not None and ISOLATED in (head["metadata"].get("labels") or {})
    closed = context.observed.namespace_is_closed and spec.network.mode != "Host"
    return bool(spec.runtime.unauthenticated_ray) or marked or closed


def _forced(seen: Watched) -> bool:
    return (seen.manifest["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true"


def _finalizers(context: Context) -> tuple[str, ...]:
    return tuple(context.observed.job["metadata"].get("finalizers") or ())
