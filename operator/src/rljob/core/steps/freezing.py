"""What a cluster generation is made from, frozen in immutable ConfigMaps: the spec, the user's code, the RayCluster."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.status import ConditionStatus, ConditionType, Resolved, ResolvedCode, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import times
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import CreateObject, CreateToken, DeleteGenerations, EventNote, EventType, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, STOPS_HERE, Requirements
from rljob.core.spec.checkpoint_source import pinned_path
from rljob.core.spec.code import code_to_copy, resolve_code
from rljob.core.spec.mutability import training_hash
from rljob.core.step import step
from rljob.core.transitions.children import create
from rljob.core.transitions.conclusions import fail, give_up
from rljob.core.transitions.conditions import report_not_ready
from rljob.core.validation.accelerator import class_violations
from rljob.core.watched import Watched
from rljob.render import configmap, names
from rljob.render.code import build_code_copy, code_digest
from rljob.render.raycluster import build_token_secret

GENERATIONS_KEPT = 2
"""That of the cluster, and the one before it, for a user who compares what a restart changed."""


def _is_to_be_frozen(seen: Watched) -> bool:
    """Report whether the cluster has yet to be created: once it exists, nothing needs what is frozen here."""
    return seen.cluster is None


@step(when=_is_to_be_frozen)
def freeze_spec(context: Context) -> Plan | None:
    """Create the snapshot, together with the cluster's if possible."""
    if context.frozen_spec is not None:
        return None
    if context.observed.snapshot is not None:
        name = context.resolved.snapshot_name
        return fail(context, Reason.NAME_TAKEN, f"ConfigMap {name} was not created by this operator; delete it")
    checked = context.checked
    if checked.spec is None or context.resolved.spec_hash != training_hash(checked.spec):
        # The spec changed between the intent and the snapshot: begin again with the new one.
        if context.intent.cluster_generation == 1:
            return context.write(context.status.model_copy(update={"intent": None, "resolved": None}))
        return context.write(
            context.status.model_copy(update={"intent": context.intent.model_copy(update={"ended": True})})
        )
    refresh = context.refresh if context.reads_recipes_anew or context.below is None else context.below.refresh
    taken = configmap.Snapshot(checked.spec, checked.recipes, refresh)
    if context.resolved.snapshot_name == context.intent.cluster_name:
        return _freeze(context, checked.spec, taken)
    return create(
        context, CreateObject(configmap.build_snapshot(context.job, taken, context.intent.cluster_generation))
    )


def _code(seen: Watched) -> Requirements:
    """Require the user's ConfigMap and our copy; until that exists, nothing that comes after it is read."""
    if seen.resolved.code is None:
        return STOPS_HERE
    name = code_to_copy(seen.resolved)
    if name is None:
        return NOTHING
    return Requirements(code_name=name, code_copy_name=names.code_name(seen.job), stops_here=True)


@step(_code, when=_is_to_be_frozen)
def freeze_code(context: Context) -> Plan | None:
    """Copy the user's ConfigMap and record its digest; the pods mount the copy only."""
    spec, resolved = context.frozen_spec, context.status.resolved
    if spec is None or resolved is None:
        return None
    if resolved.code is None:
        # An earlier version of the operator, which did not record the code, began this job.
        return _write_code(context, resolved, resolve_code(spec))
    name = code_to_copy(resolved)
    if name is None:
        return None
    original, made = context.observed.code, context.observed.code_copy
    if isinstance(original, Unseen) or isinstance(made, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if made is not None:
        if not context.made(made):
            taken = names.code_name(context.job)
            return fail(context, Reason.NAME_TAKEN, f"ConfigMap {taken} was not created by this operator; delete it")
        return _write_code(context, resolved, resolved.code.model_copy(update={"digest": code_digest(made)}))
    if original is None:
        return _await_code(context, name)
    return create(context, CreateObject(build_code_copy(context.job, original)))


def _write_code(context: Context, resolved: Resolved, code: ResolvedCode) -> Plan:
    return context.write(context.status.model_copy(update={"resolved": resolved.model_copy(update={"code": code})}))


def _await_code(context: Context, name: str) -> Plan:
    message = f"spec.code.configMap: there is no ConfigMap {name} in namespace {context.job.namespace}; create it"
    if context.is_late:
        return fail(context, Reason.CODE_MISSING, message)
    new = context.writer.with_condition(
        context.status, ConditionType.INITIALIZED, ConditionStatus.FALSE, Reason.CODE_MISSING, message
    )
    new = context.writer.summarised(new, State.PENDING, Reason.CODE_MISSING, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.CODE_MISSING, message), requeue=LOOK_AGAIN_SECONDS)


def _config(seen: Watched) -> Requirements:
    return Requirements(config_name=seen.intent.cluster_name, pod_groups=True)


@step(_config, when=_is_to_be_frozen)
def freeze_cluster(context: Context) -> Plan | None:
    """Create the token and the frozen rendering; the cluster is created from that rendering only."""
    if context.frozen_cluster is not None:
        return None
    if isinstance(context.observed.config, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if context.observed.config is not None:
        name = context.intent.cluster_name
        return fail(context, Reason.NAME_TAKEN, f"ConfigMap {name} was not created by this operator; delete it")
    if context.frozen_spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    return _freeze(context, context.frozen_spec)


def _freeze(context: Context, spec: RLJobSpec, snapshot: configmap.Snapshot | None = None) -> Plan:
    """Create what freezes a cluster generation; with a snapshot, both are in one object."""
    if unknown := tuple(class_violations(spec)):
        # The accelerator class was removed between the intent and here.
        if context.is_late:
            return give_up(context, Reason.START_DEADLINE_EXCEEDED, str(unknown[0]))
        return report_not_ready(context, context.status, Reason.INVALID_SPEC.value, str(unknown[0]), problem=True)
    generation, name = context.intent.cluster_generation, context.intent.cluster_name
    config = context.launcher(spec).job_config(context.job, spec, generation, pinned_path(context.resolved))
    found = configmap.Circumstances(
        _avoided(context),
        context.reserved_ports,
        context.gang,
        _pod_group_fields(context),
        names.generation_in(context.resolved.snapshot_name),
        context.observed.namespace_is_closed,
    )
    frozen = configmap.build_cluster_config(context.job, spec, generation, config, found)
    if snapshot is not None:
        frozen = configmap.with_snapshot(frozen, snapshot)
    token = CreateToken(build_token_secret(context.job, generation), job_uid=context.job.uid, cluster_name=name)
    plan = create(context, token, CreateObject(frozen))
    return replace(plan, effects=(*_earlier(context), *plan.effects)) if plan.effects else plan


def _earlier(context: Context) -> tuple[DeleteGenerations, ...]:
    """Return the deletion of what generations before the last two left."""
    before = context.intent.cluster_generation - GENERATIONS_KEPT + 1
    if before <= 1:
        return ()
    kept = {context.resolved.snapshot_name, context.resolved.base_snapshot}
    return (DeleteGenerations(before, frozenset(name for name in kept if name)),)


def _pod_group_fields(context: Context) -> frozenset[str]:
    api = context.observed.pod_group_api
    return frozenset() if isinstance(api, Unseen) else api.fields


def _avoided(context: Context) -> tuple[str, ...]:
    """Return the names of the nodes that this generation avoids."""
    return tuple(node.name for node in context.status.excluded_nodes if times.from_text(node.until) > context.now)
