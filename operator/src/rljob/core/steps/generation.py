"""The intent of the next cluster generation: names, numbers and decisions are written before anything is created."""

from __future__ import annotations

from rljob.api.recipes import RecipeLayer
from rljob.api.status import ConditionStatus, ConditionType, Intent, Resolved, ResolvedRecipe, RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.attempts.recovery_time import INITIALIZING
from rljob.core.context import Context
from rljob.core.manifest_facts import generation_of
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements
from rljob.core.scheduling.discovery import missing_hardware
from rljob.core.scheduling.gang import asks_cluster, decided_gang
from rljob.core.spec.checkpoint_source import source_decision
from rljob.core.spec.code import code_to_copy, resolve_code
from rljob.core.spec.decisions import decide
from rljob.core.spec.mutability import training_hash
from rljob.core.step import step
from rljob.core.transitions.attempts import with_recalled
from rljob.core.transitions.conditions import with_cluster, with_cluster_begun
from rljob.core.transitions.pacing import next_cluster, without_step
from rljob.core.transitions.start_stages import before_start, with_stage
from rljob.core.validation.validate import warnings_of
from rljob.render import configmap, names
from rljob.render.accelerators import facts_of
from rljob.render.initializer import initializers
from rljob.render.podgroup import Gang
from rljob.render.shared_services import shared

DECISIVE = Requirements(siblings=True, nodes=True, pod_groups=True, stops_here=True)
"""What the decisions of the next generation depend on."""
SERVICES_MAX = 8
"""Services of one spec."""


@step(when=lambda seen: not seen.active)
def pace(context: Context) -> Plan | None:
    """Let a job that is resumed or edited wait for its next cluster if its last ones made no step."""
    begin = None if context.restarts_by_itself else next_cluster(context.status)
    if begin is None or begin <= context.now:
        return None
    message = f"{context.intent.cluster_name} made no step; the next cluster begins at {times.to_text(begin)}"
    new = context.writer.summarised(context.status, State.PENDING, Reason.PACED, message)
    return context.write(new, requeue=(begin - context.now).total_seconds())


@step(DECISIVE, when=lambda seen: not seen.active)
def intend(context: Context) -> Plan:
    """Record what will be created. A lost status is rebuilt from the children: the generation never decreases."""
    if (
        isinstance(context.observed.pod_group_api, Unseen)
        and _keeps_frozen(context) is None
        and asks_cluster(_taken_spec(context))
    ):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    generation = _next_generation(context)
    resolved = _next_resolved(context, generation)
    name, now = names.cluster_name(context.job, generation), times.to_text(context.now)
    intent = Intent(cluster_generation=generation, cluster_name=name, time=now, start_deadline=now)
    asked_by_user = not context.restarts_by_itself
    intent = context.timed(intent, context.now).model_copy(
        update={"clusters_without_step": without_step(context.status, asked=asked_by_user)}
    )
    # A new cluster is what an annotation asks for that was set before, or with the job, or that a lost status forgot.
    asked = context.restart_request or context.status.restart_request
    services = _services(context, resolved)
    waited = before_start(context.status)
    update = {"intent": intent, "resolved": resolved, "restart_request": asked, "start": waited, "services": services}
    before, new = context.status.resolved, context.status.model_copy(update=update)
    # After a lost status the cluster may exist, with a run in it.
    new = with_cluster(context, new)
    new = _with_attempts(context, new)
    spec, nodes = _taken_spec(context), context.observed.nodes
    missing = () if isinstance(nodes, Unseen) else missing_hardware(spec, nodes)
    doubtful = warnings_of(_with_gang(spec, resolved), context.launcher)
    warnings = "; ".join(str(warning) for warning in (*missing, *doubtful))
    valid = Reason.VALID_WITH_WARNINGS if warnings else Reason.VALID
    new = context.writer.with_condition(new, ConditionType.VALIDATED, ConditionStatus.TRUE, valid, warnings)
    if status.condition(new, ConditionType.SUSPENDED) is not None:
        new = context.writer.with_condition(new, ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.RESUMED)
    if not (status.is_waiting_for(context.status, Reason.WAITING_FOR_DEVICES) and context.restarts_by_itself):
        new = _counted_anew(context, new)
    at_once = not resolved.initializers and code_to_copy(resolved) is None
    if at_once:
        new = context.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED)
    elif before is not None and resolved.snapshot_name != before.snapshot_name:
        # Other initializers may have to run; those that are complete are Jobs of the same names and remain complete.
        new = context.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.FALSE, Reason.RESUMED)
    reason, message = (Reason.RESUMED, "") if before else (valid, warnings)
    new = _summarised(context, new, reason, message, at_once=at_once)
    events = []
    if before:
        events.append(EventNote(EventType.NORMAL, Reason.RESUMED, f"cluster generation {generation} begins"))
    if warnings:
        events.append(EventNote(EventType.WARNING, Reason.VALID_WITH_WARNINGS, status.bounded(warnings)))
    return context.write(new, *events)


def _with_gang(spec: RLJobSpec, resolved: Resolved) -> RLJobSpec:
    """Return the spec as if it stated the decision for Volcano, so that no warning advises what was decided."""
    if decided_gang(resolved) is not Gang.VOLCANO:
        return spec
    scheduling = spec.scheduling.model_copy(update={"gang": Gang.VOLCANO.value})
    return spec.model_copy(update={"scheduling": scheduling})


def _with_attempts(context: Context, new: RLJobStatus) -> RLJobStatus:
    """Return the status with the attempts that are known after a loss.

    If only the intent was lost, the head knows the number of the attempt that runs, as after a complete loss.
    """
    if context.status.intent is None:
        ended = [entry for entry in new.attempts if entry.end_time is not None]
        new = new.model_copy(update={"attempts": ended})
    return new if new.attempts else with_recalled(new, context.observed.attempts)


def _services(context: Context, resolved: Resolved) -> list[str]:
    """Return the shared services that may exist: the next ones, and those of an earlier spec until they are deleted."""
    since = names.generation_in(resolved.snapshot_name)
    wanted = [names.shared_service_name(context.job, since, each.name) for each in shared(_taken_spec(context))]
    kept = [name for name in context.status.services if name not in wanted]
    # Before others are created, these are deleted: only the first ones can exist.
    return [*kept[:SERVICES_MAX], *wanted]


def _summarised(context: Context, current: RLJobStatus, reason: Reason, message: str, *, at_once: bool) -> RLJobStatus:
    """Report what comes next; if nothing comes before the cluster, one write reports both."""
    if at_once:
        return with_cluster_begun(context, current, message)
    new = with_stage(current, INITIALIZING, times.to_text(context.now))
    return context.writer.summarised(new, State.PENDING, reason, message)


def _counted_anew(context: Context, current: RLJobStatus) -> RLJobStatus:
    """Count the wait for a whole cluster from now: after a run or a suspension it is another wait."""
    begun = {"last_transition_time": times.to_text(context.now)}
    conditions = [
        entry.model_copy(update=begun) if entry.type == ConditionType.CLUSTER_READY else entry
        for entry in current.conditions
    ]
    return current.model_copy(update={"conditions": conditions})


def _next_generation(context: Context) -> int:
    if context.status.intent is not None:
        return context.status.intent.cluster_generation + 1
    living = max((generation_of(cluster) for cluster in context.observed.clusters), default=0)
    return max(living, 1) if living >= context.observed.last_generation else context.observed.last_generation + 1


def _keeps_frozen(context: Context) -> configmap.Snapshot | None:
    """Return the frozen spec, unless the user edited the spec or asked to read the recipes again."""
    began, frozen = context.status.resolved is not None, context.frozen
    if frozen is not None and context.restarts_by_itself and context.next_violations:
        return frozen
    return None if frozen is None or (began and _takes_new(context, frozen)) else frozen


def _taken_spec(context: Context) -> RLJobSpec:
    """Return the spec of the next generation."""
    kept, spec = _keeps_frozen(context), context.checked.spec
    if kept is not None:
        return kept.spec
    if spec is None:
        raise AssertionError("validate_spec lets no invalid spec pass")
    return spec


def _next_resolved(context: Context, generation: int) -> Resolved:
    spec, kept, frozen = _taken_spec(context), _keeps_frozen(context), context.frozen
    if kept is not None:
        return context.status.resolved or _resolve(context, spec, kept.recipes, _snapshot_of(context))
    new = _resolve(context, spec, context.checked.recipes, names.snapshot_name(context.job, generation))
    if _is_frozen_whole(new):
        new = new.model_copy(update={"snapshot_name": names.cluster_name(context.job, generation)})
    if context.reads_recipes_anew or context.status.resolved is None:
        return new
    # If the snapshot itself was never made, the spec is still merged over the recipes of the one below it.
    below = context.status.resolved.snapshot_name if frozen is not None else context.status.resolved.base_snapshot
    return new.model_copy(update={"base_snapshot": below})


def _is_frozen_whole(resolved: Resolved) -> bool:
    """Report whether spec and cluster can be frozen in one object: nothing that takes time comes between them."""
    makes_group = decided_gang(resolved) is Gang.VOLCANO
    return not (resolved.initializers or code_to_copy(resolved) or resolved.host_network or makes_group)


def _takes_new(context: Context, frozen: configmap.Snapshot) -> bool:
    spec = context.checked.spec
    return context.reads_recipes_anew or (spec is not None and training_hash(spec) != training_hash(frozen.spec))


def _snapshot_of(context: Context) -> str:
    found = context.observed.snapshot
    if found is None or isinstance(found, Unseen):
        raise AssertionError("what is frozen was read from a manifest")
    return str(found["metadata"]["name"])


def _resolve(context: Context, spec: RLJobSpec, recipes: tuple[RecipeLayer, ...], snapshot_name: str) -> Resolved:
    facts = facts_of(spec)
    count, api = spec.devices, context.observed.pod_group_api
    return Resolved(
        snapshot_name=snapshot_name,
        spec_hash=training_hash(spec),
        nodes=spec.nodes,
        devices=count,
        cards=status.metric(count / facts.dies_per_card) or "NaN",
        initializers=[names.initializer_name(context.job, initializer.name) for initializer in initializers(spec)],
        code=resolve_code(spec),
        host_network=True if spec.network.mode == "Host" else None,
        decisions=[
            *decide(spec, context.launcher(spec).questions, None if isinstance(api, Unseen) else api),
            *source_decision(spec, context.observed.siblings, context.status.resolved),
        ],
        recipes=[
            ResolvedRecipe(
                kind=recipe.origin.kind,
                name=recipe.origin.name,
                uid=recipe.origin.uid,
                generation=recipe.origin.generation,
                hash=configmap.recipe_hash(recipe),
            )
            for recipe in recipes
        ],
    )
