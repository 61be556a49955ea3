"""Before any NPU is held: validate, write down the intent, freeze the spec, run the initializers."""

from __future__ import annotations

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
from rljob.build import configmap, labels, names
from rljob.build.accelerators import ACCELERATORS
from rljob.build.code import build_code_copy, code_digest
from rljob.build.initializer import SKIPPED, build_initializer, initializers
from rljob.build.podgroup import Gang
from rljob.core import clock, status
from rljob.core.changes import training_hash
from rljob.core.discovery import missing_hardware
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.policies.cautions import cautions_of
from rljob.core.policies.decisions import decide
from rljob.core.policies.gang import asks_cluster, decided_gang
from rljob.core.policies.hardware import class_violations
from rljob.core.policies.startup import PROBLEMS, diagnose
from rljob.core.policies.violation import Violation
from rljob.core.reasons import Reason
from rljob.core.recipes import RecipeLayer, chain_ids
from rljob.core.source import FIELD, find_source, source_decision
from rljob.core.steps.drifting import next_violations
from rljob.core.steps.finishing import fail
from rljob.core.steps.making import make
from rljob.core.steps.releasing import is_waiting_for_devices
from rljob.core.steps.restarting import with_recalled
from rljob.core.steps.starting import freeze, with_cluster, with_cluster_begun
from rljob.core.view import LOOK_AGAIN_SECONDS, View, generation_of
from rljob.launchers import verl

INITIALIZER_POLL_SECONDS = 3.0
SOURCE_POLL_SECONDS = 30.0
"""Looked for in the store only, so it costs no request."""
LINE_CHARACTERS = 200
"""Kept of an initializer's last line: it stands in a condition's message."""


def recall(view: View) -> Plan | None:
    """Know the snapshot before anything is judged: what the job goes by, and whether it began at all."""
    found, resolved = view.observed.snapshot, view.status.resolved
    if found is None and resolved is not None and resolved.base_snapshot is not None:
        found = view.observed.base_snapshot
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if isinstance(found, Unseen) else None


def await_recipes(view: View) -> Plan | None:
    """Say so when the job stands on a recipe of a kind that cannot be read: waiting helps, guessing does not."""
    if not _begins(view) or not view.reads_recipes_anew:
        return None
    chain = chain_ids(view.raw_spec, view.observed.recipes.get)
    if not chain or chain[-1] in view.observed.recipes or chain[-1].kind not in view.observed.unreadable:
        return None
    message = f"spec.recipeRef: {chain[-1]} cannot be read: {view.observed.unreadable[chain[-1].kind]}"
    return _refuse(view, Reason.RECIPE_UNREADABLE, message)


def validate_spec(view: View) -> Plan | None:
    """Refuse a wrong spec with every violation; a cluster generation that began goes on with its frozen one."""
    violations = next_violations(view)
    if not violations or not _begins(view):
        violations = _lost_class(view)
    if not violations:
        return None
    return _refuse(view, Reason.INVALID_SPEC, "; ".join(str(violation) for violation in violations))


def _lost_class(view: View) -> tuple[Violation, ...]:
    """Say when the row that a frozen spec stands on is gone from the table; whoever took it out can bring it back."""
    spec = view.frozen_spec
    return () if spec is None or view.active else tuple(class_violations(spec))


def await_source(view: View) -> Plan | None:
    """Wait for the job whose checkpoint this one begins from: beginning at step 0 instead would waste the NPUs."""
    lost = view.status.intent is None
    spec = view.frozen_spec if lost and view.frozen_spec else view.checked.spec
    # With a cluster under way, what it begins from is frozen with it.
    if view.active or spec is None or (lost and view.observed.clusters):
        return None
    found = find_source(spec, view.observed.siblings, view.status.resolved)
    if found is None or not found.problem:
        return None
    message = f"spec.{FIELD}: {found.problem}"
    new = view.writer.with_condition(
        view.status, ConditionType.VALIDATED, ConditionStatus.FALSE, Reason.SOURCE_MISSING, message
    )
    new = view.writer.summarised(new, State.PENDING, Reason.SOURCE_MISSING, message)
    return view.write(new, EventNote(EventType.WARNING, Reason.SOURCE_MISSING, message), requeue=SOURCE_POLL_SECONDS)


def _begins(view: View) -> bool:
    """Whether the spec as it stands now is about to be taken: not after a lost status, when a snapshot is there."""
    if view.status.intent is None:
        return view.frozen is None
    # A restart in the night goes on with what is frozen rather than wait for somebody to mend an edit.
    if view.restarts_by_itself and view.frozen is not None:
        return False
    return view.status.intent.ended and not view.suspend


def _refuse(view: View, reason: Reason, message: str) -> Plan:
    new = view.writer.with_condition(view.status, ConditionType.VALIDATED, ConditionStatus.FALSE, reason, message)
    new = view.writer.summarised(new, State.INVALID, reason, message)
    return view.write(new, EventNote(EventType.WARNING, reason, status.bounded(message)))


def intend(view: View) -> Plan | None:
    """Write down what will be made. A lost status is rebuilt from the children: the generation never goes back."""
    if view.active:
        return None
    if (
        isinstance(view.observed.pod_group_api, Unseen)
        and _keeps_frozen(view) is None
        and asks_cluster(_taken_spec(view))
    ):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    generation = _next_generation(view)
    resolved = _next_resolved(view, generation)
    name, now = names.cluster_name(view.job, generation), clock.to_text(view.now)
    intent = Intent(cluster_generation=generation, cluster_name=name, time=now, start_deadline=now)
    intent = view.timed(intent, view.now)
    before, new = view.status.resolved, view.status.model_copy(update={"intent": intent, "resolved": resolved})
    # After a lost status it may be there, with a run in it.
    new = with_cluster(view, new)
    new = _with_attempts(view, new)
    spec, nodes = _taken_spec(view), view.observed.nodes
    missing = () if isinstance(nodes, Unseen) else missing_hardware(spec, nodes)
    warnings = "; ".join(str(warning) for warning in (*missing, *cautions_of(spec)))
    valid = Reason.VALID_WITH_WARNINGS if warnings else Reason.VALID
    new = view.writer.with_condition(new, ConditionType.VALIDATED, ConditionStatus.TRUE, valid, warnings)
    if status.condition(new, ConditionType.SUSPENDED) is not None:
        new = view.writer.with_condition(new, ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.RESUMED)
    if not (is_waiting_for_devices(view.status) and view.restarts_by_itself):
        new = _counted_anew(view, new)
    at_once = not resolved.initializers and _code_to_copy(resolved) is None
    if at_once:
        new = view.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED)
    elif before is not None and resolved.snapshot_name != before.snapshot_name:
        # Other initializers may have to run; those that are complete are Jobs of the same names and stay it.
        new = view.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.FALSE, Reason.RESUMED)
    reason, message = (Reason.RESUMED, "") if before else (valid, warnings)
    new = _summarised(view, new, reason, message, at_once=at_once)
    events = []
    if before:
        events.append(EventNote(EventType.NORMAL, Reason.RESUMED, f"cluster generation {generation} begins"))
    if warnings:
        events.append(EventNote(EventType.WARNING, Reason.VALID_WITH_WARNINGS, status.bounded(warnings)))
    return view.write(new, *events)


def _with_attempts(view: View, new: RLJobStatus) -> RLJobStatus:
    """Give the status with the attempts that are known after a loss.

    Where only the intent was lost, the head knows the number of the attempt that runs, as after a whole loss.
    """
    if view.status.intent is None:
        ended = [entry for entry in new.attempts if entry.end_time is not None]
        new = new.model_copy(update={"attempts": ended})
    return new if new.attempts else with_recalled(new, view.observed.attempts)


def finish_again(view: View) -> Plan | None:
    """Write down once more that the job had finished, where its status was lost: it is never taken up again."""
    final, ended = view.observed.final, view.observed.attempts
    if final is None or view.status.intent is not None or view.status.attempts or not ended:
        return None
    last = ended[-1]
    new = with_recalled(view.status, ended).model_copy(update={"finished_time": last.end_time})
    new = view.writer.with_condition(new, ConditionType.FINISHED, ConditionStatus.TRUE, final.value, last.message or "")
    return view.write(view.writer.summarised(new, final, last.reason or final.value, last.message or ""))


def _summarised(view: View, current: RLJobStatus, reason: Reason, message: str, *, at_once: bool) -> RLJobStatus:
    """Say what comes next; where nothing comes before the cluster, one write tells both."""
    if at_once:
        return with_cluster_begun(view, current, message)
    return view.writer.summarised(current, State.PENDING, reason, message)


def _counted_anew(view: View, current: RLJobStatus) -> RLJobStatus:
    """Let the wait for a whole cluster begin now: the one before was another, a run or a suspension lay between."""
    begun = {"last_transition_time": clock.to_text(view.now)}
    conditions = [
        entry.model_copy(update=begun) if entry.type == ConditionType.CLUSTER_READY else entry
        for entry in current.conditions
    ]
    return current.model_copy(update={"conditions": conditions})


def _next_generation(view: View) -> int:
    if view.status.intent is not None:
        return view.status.intent.cluster_generation + 1
    living = max((generation_of(cluster) for cluster in view.observed.clusters), default=0)
    return max(living, 1) if living >= view.observed.last_generation else view.observed.last_generation + 1


def _keeps_frozen(view: View) -> configmap.Snapshot | None:
    """Give what is frozen, unless the user edited the spec or asked for the recipes to be read anew."""
    began, frozen = view.status.resolved is not None, view.frozen
    if frozen is not None and view.restarts_by_itself and next_violations(view):
        return frozen
    return None if frozen is None or (began and _takes_new(view, frozen)) else frozen


def _taken_spec(view: View) -> RLJobSpec:
    """Give the spec that the next generation stands on."""
    kept, spec = _keeps_frozen(view), view.checked.spec
    if kept is not None:
        return kept.spec
    if spec is None:
        raise AssertionError("validate_spec lets no wrong spec pass")
    return spec


def _next_resolved(view: View, generation: int) -> Resolved:
    spec, kept, frozen = _taken_spec(view), _keeps_frozen(view), view.frozen
    if kept is not None:
        return view.status.resolved or _resolve(view, spec, kept.recipes, _snapshot_of(view))
    new = _resolve(view, spec, view.checked.recipes, names.snapshot_name(view.job, generation))
    if _is_frozen_whole(new):
        new = new.model_copy(update={"snapshot_name": names.cluster_name(view.job, generation)})
    if view.reads_recipes_anew or view.status.resolved is None:
        return new
    # Where the snapshot itself was never made, the one below it is still the one to stand on.
    below = view.status.resolved.snapshot_name if frozen is not None else view.status.resolved.base_snapshot
    return new.model_copy(update={"base_snapshot": below})


def _is_frozen_whole(resolved: Resolved) -> bool:
    """Whether spec and cluster can be frozen in one object: nothing that takes time comes between them."""
    makes_group = decided_gang(resolved) is Gang.VOLCANO
    return not (resolved.initializers or _code_to_copy(resolved) or resolved.host_network or makes_group)


def _takes_new(view: View, frozen: configmap.Snapshot) -> bool:
    spec = view.checked.spec
    return view.reads_recipes_anew or (spec is not None and training_hash(spec) != training_hash(frozen.spec))


def _snapshot_of(view: View) -> str:
    found = view.observed.snapshot
    if found is None or isinstance(found, Unseen):
        raise AssertionError("what is frozen was read from a manifest")
    return str(found["metadata"]["name"])


def _resolve(view: View, spec: RLJobSpec, recipes: tuple[RecipeLayer, ...], snapshot_name: str) -> Resolved:
    facts = ACCELERATORS[spec.accelerator.class_]
    count, api = verl.devices(spec), view.observed.pod_group_api
    return Resolved(
        snapshot_name=snapshot_name,
        spec_hash=training_hash(spec),
        nodes=sum(group.nodes for group in spec.worker_groups),
        devices=count,
        cards=status.metric(count / facts.dies_per_card) or "NaN",
        initializers=[names.initializer_name(view.job, initializer.name) for initializer in initializers(spec)],
        code=_resolve_code(spec),
        host_network=True if spec.network.mode == "Host" else None,
        decisions=[
            *decide(spec, None if isinstance(api, Unseen) else api),
            *source_decision(spec, view.observed.siblings, view.status.resolved),
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


def freeze_spec(view: View) -> Plan | None:
    """Make the snapshot, with the cluster where it can be; once the cluster exists nothing needs it any more."""
    if view.cluster is not None or view.frozen_spec is not None:
        return None
    if view.observed.snapshot is not None:
        name = view.resolved.snapshot_name
        return fail(view, Reason.NAME_TAKEN, f"ConfigMap {name} is not the one that this operator made; delete it")
    checked = view.checked
    if checked.spec is None or view.resolved.spec_hash != training_hash(checked.spec):
        # The spec changed between the intent and the snapshot: begin again with the new one.
        if view.intent.cluster_generation == 1:
            return view.write(view.status.model_copy(update={"intent": None, "resolved": None}))
        return view.write(view.status.model_copy(update={"intent": view.intent.model_copy(update={"ended": True})}))
    refresh = view.refresh if view.reads_recipes_anew or view.below is None else view.below.refresh
    taken = configmap.Snapshot(checked.spec, checked.recipes, refresh)
    if view.resolved.snapshot_name == view.intent.cluster_name:
        return freeze(view, checked.spec, taken)
    return make(view, CreateObject(configmap.build_snapshot(view.job, taken, view.intent.cluster_generation)))


def freeze_code(view: View) -> Plan | None:
    """Copy the user's ConfigMap, and remember which code it was; the pods mount the copy only."""
    spec, resolved = view.frozen_spec, view.status.resolved
    if view.cluster is not None or spec is None or resolved is None:
        return None
    if resolved.code is None:
        # An operator that knew nothing of it began this job.
        return _write_code(view, resolved, _resolve_code(spec))
    name = _code_to_copy(resolved)
    if name is None:
        return None
    original, made = view.observed.code, view.observed.code_copy
    if isinstance(original, Unseen) or isinstance(made, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if made is not None:
        if not view.made(made):
            taken = names.code_name(view.job)
            return fail(view, Reason.NAME_TAKEN, f"ConfigMap {taken} is not the one that this operator made; delete it")
        return _write_code(view, resolved, resolved.code.model_copy(update={"digest": code_digest(made)}))
    if original is None:
        return _await_code(view, name)
    return make(view, CreateObject(build_code_copy(view.job, original)))


def _code_to_copy(resolved: Resolved) -> str | None:
    """Name the user's ConfigMap that is still to be copied."""
    return resolved.code.config_map if resolved.code is not None and resolved.code.digest is None else None


def _write_code(view: View, resolved: Resolved, code: ResolvedCode) -> Plan:
    return view.write(view.status.model_copy(update={"resolved": resolved.model_copy(update={"code": code})}))


def _await_code(view: View, name: str) -> Plan:
    message = f"spec.code.configMap: there is no ConfigMap {name} in namespace {view.job.namespace}; create it"
    if view.now >= clock.from_text(view.intent.start_deadline):
        return fail(view, Reason.CODE_MISSING, message)
    new = view.writer.with_condition(
        view.status, ConditionType.INITIALIZED, ConditionStatus.FALSE, Reason.CODE_MISSING, message
    )
    new = view.writer.summarised(new, State.PENDING, Reason.CODE_MISSING, message)
    return view.write(new, EventNote(EventType.WARNING, Reason.CODE_MISSING, message), requeue=LOOK_AGAIN_SECONDS)


def initialize(view: View) -> Plan | None:
    """Run the initializers one after another; the last one's success opens the way to the NPUs."""
    if status.is_true(view.status, ConditionType.INITIALIZED) or view.cluster is not None:
        return None
    spec = view.frozen_spec
    if spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    for initializer in initializers(spec):
        name = names.initializer_name(view.job, initializer.name)
        if name not in view.observed.initializers:
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        found = view.observed.initializers[name]
        if found is None:
            return make(view, CreateObject(build_initializer(view.job, spec, initializer)))
        if not _has_condition(found, "Complete"):
            return _await_initializer(view, initializer, found)
    return _initialized(view)


def _await_initializer(view: View, initializer: Initializer, found: Manifest) -> Plan:
    pods = view.observed.pods if not isinstance(view.observed.pods, Unseen) else ()
    # The selector brings the pods of all initializers; a failed try of an earlier one is no news of this one.
    diagnosis = diagnose(pod for pod in pods if pod["metadata"]["labels"][labels.INITIALIZER] == initializer.name)
    problem = diagnosis.reason in PROBLEMS
    if (failure := _has_condition(found, "Failed")) is not None:
        message = f"initializer {initializer.name}: {failure}" + (f"; {diagnosis.message}" if problem else "")
        return fail(view, Reason.INITIALIZER_FAILED, message)
    reason = diagnosis.reason.value if problem else Reason.INITIALIZER_RUNNING.value
    brief = f"initializer {initializer.name}" + (f": {diagnosis.message}" if problem else " is running")
    told = status.condition(view.status, ConditionType.INITIALIZED)
    # A further line of the log is no news that deserves an event.
    known = told is not None and told.reason == reason and told.message.startswith(brief)
    note = EventNote(EventType.WARNING if problem else EventType.NORMAL, reason, brief)
    running = _heard(view, initializer)
    message = brief if problem or not running or not running.line else f"{brief}: {running.line}"
    new = view.status.model_copy(update={"initializer": running})
    new = view.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.FALSE, reason, message)
    new = view.writer.summarised(new, State.INITIALIZING, reason, message)
    return view.write(new, *(() if known else (note,)), requeue=INITIALIZER_POLL_SECONDS)


def _heard(view: View, initializer: Initializer) -> InitializerStatus | None:
    """Give the initializer's last words: those of its log now, or what was written down of it before."""
    told = view.status.initializer
    if told is not None and told.name != initializer.name:
        told = None
    log = view.observed.initializer_log
    line = "" if isinstance(log, Unseen) else last_line(log)
    if not line or (told is not None and told.line == line):
        return told
    return InitializerStatus(name=initializer.name, line=line, observed_time=clock.to_text(view.now))


def last_line(log: str) -> str:
    """Give the last line that says something; a progress bar writes many into one, each over the other."""
    lines = [" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in log.splitlines()]
    return next((line[:LINE_CHARACTERS] for line in reversed(lines) if line), "")


def _initialized(view: View) -> Plan:
    # The clock of startSeconds begins here: an initializer has its own bound.
    new: RLJobStatus = view.status.model_copy(update={"intent": view.timed_anew(), "initializer": None})
    new = view.writer.with_condition(
        new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED, _skipped(view)
    )
    return view.write(with_cluster_begun(view, new))


def _skipped(view: View) -> str:
    """Name the initializers that found their work done, by the termination messages of their containers."""
    pods = view.observed.pods if not isinstance(view.observed.pods, Unseen) else ()
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
