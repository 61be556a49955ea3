"""Before any NPU is held: validate, write down the intent, freeze the spec, run the initializers."""

from __future__ import annotations

from rljob.api.recipes import RecipeLayer
from rljob.api.sources import Initializer
from rljob.api.status import (
    ConditionStatus,
    ConditionType,
    InitializerStatus,
    Intent,
    Resolved,
    ResolvedCode,
    ResolvedRecipe,
    RLJobStatus,
    State,
)
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.attempts.start_diagnosis import PROBLEMS, diagnose
from rljob.core.context import LOOK_AGAIN_SECONDS, Context, generation_of
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.scheduling.discovery import missing_hardware
from rljob.core.scheduling.gang import asks_cluster, decided_gang
from rljob.core.spec.checkpoint_source import FIELD, find_source, source_decision
from rljob.core.spec.decisions import decide
from rljob.core.spec.mutability import training_hash
from rljob.core.spec.recipes import chain_ids
from rljob.core.steps.creating import make
from rljob.core.steps.drift import next_violations
from rljob.core.steps.finishing import fail
from rljob.core.steps.partial_allocation import is_waiting_for_devices
from rljob.core.steps.restarting import with_recalled
from rljob.core.steps.starting import freeze, with_cluster, with_cluster_begun
from rljob.core.validation.accelerator import class_violations
from rljob.core.validation.validate import warnings_of
from rljob.core.validation.violation import Violation
from rljob.render import configmap, labels, names
from rljob.render.accelerators import ACCELERATORS
from rljob.render.code import build_code_copy, code_digest
from rljob.render.initializer import SKIPPED, build_initializer, initializers
from rljob.render.podgroup import Gang

INITIALIZER_POLL_SECONDS = 3.0
SOURCE_POLL_SECONDS = 30.0
"""Looked for in the store only, so it costs no request."""
LINE_CHARACTERS = 200
"""Kept of an initializer's last line: it stands in a condition's message."""


def recall(context: Context) -> Plan | None:
    """Know the snapshot before anything is judged: what the job goes by, and whether it began at all."""
    found, resolved = context.observed.snapshot, context.status.resolved
    if found is None and resolved is not None and resolved.base_snapshot is not None:
        found = context.observed.base_snapshot
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if isinstance(found, Unseen) else None


def await_recipes(context: Context) -> Plan | None:
    """Say so when the job stands on a recipe of a kind that cannot be read: waiting helps, guessing does not."""
    if not _begins(context) or not context.reads_recipes_anew:
        return None
    chain = chain_ids(context.raw_spec, context.observed.recipes.get)
    if not chain or chain[-1] in context.observed.recipes or chain[-1].kind not in context.observed.unreadable:
        return None
    message = f"spec.recipeRef: {chain[-1]} cannot be read: {context.observed.unreadable[chain[-1].kind]}"
    return _refuse(context, Reason.RECIPE_UNREADABLE, message)


def validate_spec(context: Context) -> Plan | None:
    """Refuse a wrong spec with every violation; a cluster generation that began goes on with its frozen one."""
    violations = next_violations(context)
    if not violations or not _begins(context):
        violations = _lost_class(context)
    if not violations:
        return None
    return _refuse(context, Reason.INVALID_SPEC, "; ".join(str(violation) for violation in violations))


def _lost_class(context: Context) -> tuple[Violation, ...]:
    """Say when the row that a frozen spec stands on is gone from the table; whoever took it out can bring it back."""
    spec = context.frozen_spec
    return () if spec is None or context.active else tuple(class_violations(spec))


def await_source(context: Context) -> Plan | None:
    """Wait for the job whose checkpoint this one begins from: beginning at step 0 instead would waste the NPUs."""
    lost = context.status.intent is None
    spec = context.frozen_spec if lost and context.frozen_spec else context.checked.spec
    # With a cluster under way, what it begins from is frozen with it.
    if context.active or spec is None or (lost and context.observed.clusters):
        return None
    found = find_source(spec, context.observed.siblings, context.status.resolved)
    if found is None or not found.problem:
        return None
    message = f"spec.{FIELD}: {found.problem}"
    new = context.writer.with_condition(
        context.status, ConditionType.VALIDATED, ConditionStatus.FALSE, Reason.SOURCE_MISSING, message
    )
    new = context.writer.summarised(new, State.PENDING, Reason.SOURCE_MISSING, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.SOURCE_MISSING, message), requeue=SOURCE_POLL_SECONDS)


def _begins(context: Context) -> bool:
    """Whether the spec as it stands now is about to be taken: not after a lost status, when a snapshot is there."""
    if context.status.intent is None:
        return context.frozen is None
    # A restart in the night goes on with what is frozen rather than wait for somebody to mend an edit.
    if context.restarts_by_itself and context.frozen is not None:
        return False
    return context.status.intent.ended and not context.suspend


def _refuse(context: Context, reason: Reason, message: str) -> Plan:
    new = context.writer.with_condition(context.status, ConditionType.VALIDATED, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, State.INVALID, reason, message)
    return context.write(new, EventNote(EventType.WARNING, reason, status.bounded(message)))


def intend(context: Context) -> Plan | None:
    """Write down what will be made. A lost status is rebuilt from the children: the generation never goes back."""
    if context.active:
        return None
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
    intent = context.timed(intent, context.now)
    before, new = context.status.resolved, context.status.model_copy(update={"intent": intent, "resolved": resolved})
    # After a lost status it may be there, with a run in it.
    new = with_cluster(context, new)
    new = _with_attempts(context, new)
    spec, nodes = _taken_spec(context), context.observed.nodes
    missing = () if isinstance(nodes, Unseen) else missing_hardware(spec, nodes)
    warnings = "; ".join(str(warning) for warning in (*missing, *warnings_of(spec, context.launcher)))
    valid = Reason.VALID_WITH_WARNINGS if warnings else Reason.VALID
    new = context.writer.with_condition(new, ConditionType.VALIDATED, ConditionStatus.TRUE, valid, warnings)
    if status.condition(new, ConditionType.SUSPENDED) is not None:
        new = context.writer.with_condition(new, ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.RESUMED)
    if not (is_waiting_for_devices(context.status) and context.restarts_by_itself):
        new = _counted_anew(context, new)
    at_once = not resolved.initializers and _code_to_copy(resolved) is None
    if at_once:
        new = context.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED)
    elif before is not None and resolved.snapshot_name != before.snapshot_name:
        # Other initializers may have to run; those that are complete are Jobs of the same names and stay it.
        new = context.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.FALSE, Reason.RESUMED)
    reason, message = (Reason.RESUMED, "") if before else (valid, warnings)
    new = _summarised(context, new, reason, message, at_once=at_once)
    events = []
    if before:
        events.append(EventNote(EventType.NORMAL, Reason.RESUMED, f"cluster generation {generation} begins"))
    if warnings:
        events.append(EventNote(EventType.WARNING, Reason.VALID_WITH_WARNINGS, status.bounded(warnings)))
    return context.write(new, *events)


def _with_attempts(context: Context, new: RLJobStatus) -> RLJobStatus:
    """Give the status with the attempts that are known after a loss.

    Where only the intent was lost, the head knows the number of the attempt that runs, as after a whole loss.
    """
    if context.status.intent is None:
        ended = [entry for entry in new.attempts if entry.end_time is not None]
        new = new.model_copy(update={"attempts": ended})
    return new if new.attempts else with_recalled(new, context.observed.attempts)


def finish_again(context: Context) -> Plan | None:
    """Write down once more that the job had finished, where its status was lost: it is never taken up again."""
    final, ended = context.observed.final, context.observed.attempts
    if final is None or context.status.intent is not None or context.status.attempts or not ended:
        return None
    last = ended[-1]
    new = with_recalled(context.status, ended).model_copy(update={"finished_time": last.end_time})
    new = context.writer.with_condition(
        new, ConditionType.FINISHED, ConditionStatus.TRUE, final.value, last.message or ""
    )
    return context.write(context.writer.summarised(new, final, last.reason or final.value, last.message or ""))


def _summarised(context: Context, current: RLJobStatus, reason: Reason, message: str, *, at_once: bool) -> RLJobStatus:
    """Say what comes next; where nothing comes before the cluster, one write tells both."""
    if at_once:
        return with_cluster_begun(context, current, message)
    return context.writer.summarised(current, State.PENDING, reason, message)


def _counted_anew(context: Context, current: RLJobStatus) -> RLJobStatus:
    """Let the wait for a whole cluster begin now: the one before was another, a run or a suspension lay between."""
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
    """Give what is frozen, unless the user edited the spec or asked for the recipes to be read anew."""
    began, frozen = context.status.resolved is not None, context.frozen
    if frozen is not None and context.restarts_by_itself and next_violations(context):
        return frozen
    return None if frozen is None or (began and _takes_new(context, frozen)) else frozen


def _taken_spec(context: Context) -> RLJobSpec:
    """Give the spec that the next generation stands on."""
    kept, spec = _keeps_frozen(context), context.checked.spec
    if kept is not None:
        return kept.spec
    if spec is None:
        raise AssertionError("validate_spec lets no wrong spec pass")
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
    # Where the snapshot itself was never made, the one below it is still the one to stand on.
    below = context.status.resolved.snapshot_name if frozen is not None else context.status.resolved.base_snapshot
    return new.model_copy(update={"base_snapshot": below})


def _is_frozen_whole(resolved: Resolved) -> bool:
    """Whether spec and cluster can be frozen in one object: nothing that takes time comes between them."""
    makes_group = decided_gang(resolved) is Gang.VOLCANO
    return not (resolved.initializers or _code_to_copy(resolved) or resolved.host_network or makes_group)


def _takes_new(context: Context, frozen: configmap.Snapshot) -> bool:
    spec = context.checked.spec
    return context.reads_recipes_anew or (spec is not None and training_hash(spec) != training_hash(frozen.spec))


def _snapshot_of(context: Context) -> str:
    found = context.observed.snapshot
    if found is None or isinstance(found, Unseen):
        raise AssertionError("what is frozen was read from a manifest")
    return str(found["metadata"]["name"])


def _resolve(context: Context, spec: RLJobSpec, recipes: tuple[RecipeLayer, ...], snapshot_name: str) -> Resolved:
    facts = ACCELERATORS[spec.accelerator.class_]
    count, api = spec.devices, context.observed.pod_group_api
    return Resolved(
        snapshot_name=snapshot_name,
        spec_hash=training_hash(spec),
        nodes=sum(group.nodes for group in spec.worker_groups),
        devices=count,
        cards=status.metric(count / facts.dies_per_card) or "NaN",
        initializers=[names.initializer_name(context.job, initializer.name) for initializer in initializers(spec)],
        code=_resolve_code(spec),
        host_network=True if spec.network.mode == "Host" else None,
        decisions=[
            *decide(spec, context.launcher.questions, None if isinstance(api, Unseen) else api),
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


def _resolve_code(spec: RLJobSpec) -> ResolvedCode:
    """Say what is known before anything is copied; what a volume or the image holds, nobody can say."""
    return ResolvedCode(
        type=spec.code.type,
        config_map=spec.code.config_map.name if spec.code.config_map else None,
        digest=spec.code.git.revision if spec.code.git else None,
    )


def freeze_spec(context: Context) -> Plan | None:
    """Make the snapshot, with the cluster where it can be; once the cluster exists nothing needs it any more."""
    if context.cluster is not None or context.frozen_spec is not None:
        return None
    if context.observed.snapshot is not None:
        name = context.resolved.snapshot_name
        return fail(context, Reason.NAME_TAKEN, f"ConfigMap {name} is not the one that this operator made; delete it")
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
        return freeze(context, checked.spec, taken)
    return make(context, CreateObject(configmap.build_snapshot(context.job, taken, context.intent.cluster_generation)))


def freeze_code(context: Context) -> Plan | None:
    """Copy the user's ConfigMap, and remember which code it was; the pods mount the copy only."""
    spec, resolved = context.frozen_spec, context.status.resolved
    if context.cluster is not None or spec is None or resolved is None:
        return None
    if resolved.code is None:
        # An operator that knew nothing of it began this job.
        return _write_code(context, resolved, _resolve_code(spec))
    name = _code_to_copy(resolved)
    if name is None:
        return None
    original, made = context.observed.code, context.observed.code_copy
    if isinstance(original, Unseen) or isinstance(made, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if made is not None:
        if not context.made(made):
            taken = names.code_name(context.job)
            return fail(
                context, Reason.NAME_TAKEN, f"ConfigMap {taken} is not the one that this operator made; delete it"
            )
        return _write_code(context, resolved, resolved.code.model_copy(update={"digest": code_digest(made)}))
    if original is None:
        return _await_code(context, name)
    return make(context, CreateObject(build_code_copy(context.job, original)))


def _code_to_copy(resolved: Resolved) -> str | None:
    """Name the user's ConfigMap that is still to be copied."""
    return resolved.code.config_map if resolved.code is not None and resolved.code.digest is None else None


def _write_code(context: Context, resolved: Resolved, code: ResolvedCode) -> Plan:
    return context.write(context.status.model_copy(update={"resolved": resolved.model_copy(update={"code": code})}))


def _await_code(context: Context, name: str) -> Plan:
    message = f"spec.code.configMap: there is no ConfigMap {name} in namespace {context.job.namespace}; create it"
    if context.now >= times.from_text(context.intent.start_deadline):
        return fail(context, Reason.CODE_MISSING, message)
    new = context.writer.with_condition(
        context.status, ConditionType.INITIALIZED, ConditionStatus.FALSE, Reason.CODE_MISSING, message
    )
    new = context.writer.summarised(new, State.PENDING, Reason.CODE_MISSING, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.CODE_MISSING, message), requeue=LOOK_AGAIN_SECONDS)


def initialize(context: Context) -> Plan | None:
    """Run the initializers one after another; the last one's success opens the way to the NPUs."""
    if status.is_true(context.status, ConditionType.INITIALIZED) or context.cluster is not None:
        return None
    spec = context.frozen_spec
    if spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    for initializer in initializers(spec):
        name = names.initializer_name(context.job, initializer.name)
        if name not in context.observed.initializers:
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        found = context.observed.initializers[name]
        if found is None:
            return make(context, CreateObject(build_initializer(context.job, spec, initializer)))
        if not _has_condition(found, "Complete"):
            return _await_initializer(context, initializer, found)
    return _initialized(context)


def _await_initializer(context: Context, initializer: Initializer, found: Manifest) -> Plan:
    pods = context.observed.pods if not isinstance(context.observed.pods, Unseen) else ()
    # The selector brings the pods of all initializers; a failed try of an earlier one is no news of this one.
    diagnosis = diagnose(pod for pod in pods if pod["metadata"]["labels"][labels.INITIALIZER] == initializer.name)
    problem = diagnosis.reason in PROBLEMS
    if (failure := _has_condition(found, "Failed")) is not None:
        message = f"initializer {initializer.name}: {failure}" + (f"; {diagnosis.message}" if problem else "")
        return fail(context, Reason.INITIALIZER_FAILED, message)
    reason = diagnosis.reason.value if problem else Reason.INITIALIZER_RUNNING.value
    brief = f"initializer {initializer.name}" + (f": {diagnosis.message}" if problem else " is running")
    told = status.condition(context.status, ConditionType.INITIALIZED)
    # A further line of the log is no news that deserves an event.
    known = told is not None and told.reason == reason and told.message.startswith(brief)
    note = EventNote(EventType.WARNING if problem else EventType.NORMAL, reason, brief)
    running = _heard(context, initializer)
    message = brief if problem or not running or not running.line else f"{brief}: {running.line}"
    new = context.status.model_copy(update={"initializer": running})
    new = context.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, State.INITIALIZING, reason, message)
    return context.write(new, *(() if known else (note,)), requeue=INITIALIZER_POLL_SECONDS)


def _heard(context: Context, initializer: Initializer) -> InitializerStatus | None:
    """Give the initializer's last words: those of its log now, or what was written down of it before."""
    told = context.status.initializer
    if told is not None and told.name != initializer.name:
        told = None
    log = context.observed.initializer_log
    line = "" if isinstance(log, Unseen) else last_line(log)
    if not line or (told is not None and told.line == line):
        return told
    return InitializerStatus(name=initializer.name, line=line, observed_time=times.to_text(context.now))


def last_line(log: str) -> str:
    """Give the last line that says something; a progress bar writes many into one, each over the other."""
    lines = [" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in log.splitlines()]
    return next((line[:LINE_CHARACTERS] for line in reversed(lines) if line), "")


def _initialized(context: Context) -> Plan:
    # The clock of startSeconds begins here: an initializer has its own bound.
    new: RLJobStatus = context.status.model_copy(update={"intent": context.timed_anew(), "initializer": None})
    new = context.writer.with_condition(
        new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED, _skipped(context)
    )
    return context.write(with_cluster_begun(context, new))


def _skipped(context: Context) -> str:
    """Name the initializers that found their work done, by the termination messages of their containers."""
    pods = context.observed.pods if not isinstance(context.observed.pods, Unseen) else ()
    said = set()
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            message = str(((container.get("state") or {}).get("terminated") or {}).get("message") or "").strip()
            if message.startswith(SKIPPED):
                said.add(f"{pod['metadata']['labels'][labels.INITIALIZER]} {message}")
    return "; ".join(sorted(said))


def _has_condition(job: Manifest, kind: str) -> str | None:
    """Give the text of a Job's condition that is True, or None."""
    for entry in job.get("status", {}).get("conditions") or ():
        if entry["type"] == kind and entry["status"] == "True":
            return f"{entry.get('reason', kind)}: {entry.get('message', '')}".rstrip(": ")
    return None
