"""Before any NPU is held: validate, write down the intent, freeze the spec, run the initializers."""

from __future__ import annotations

from datetime import timedelta

from rljob.api.sources import Initializer
from rljob.api.status import (
    ConditionStatus,
    ConditionType,
    InitializerStatus,
    Intent,
    Resolved,
    ResolvedCode,
    RLJobStatus,
    State,
)
from rljob.api.v1alpha1 import RLJobSpec
from rljob.build import configmap, labels, names
from rljob.build.accelerators import ACCELERATORS
from rljob.build.code import build_code_copy, code_digest
from rljob.build.initializer import SKIPPED, build_initializer, initializers
from rljob.build.metadata import digest
from rljob.core import clock, status
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.policies.decisions import decide
from rljob.core.policies.startup import PROBLEMS, diagnose
from rljob.core.policies.unacted import warnings_of
from rljob.core.reasons import Reason
from rljob.core.steps.finishing import fail
from rljob.core.view import LOOK_AGAIN_SECONDS, View, generation_of
from rljob.launchers import verl

INITIALIZER_POLL_SECONDS = 3.0
LINE_CHARACTERS = 200
"""Kept of an initializer's last line: it stands in a condition's message."""


def recall(view: View) -> Plan | None:
    """Know the snapshot before anything begins: a job whose status was lost goes on with the spec it started with."""
    return _wait_if_unseen(view.observed.snapshot) if view.status.intent is None else None


def validate_spec(view: View) -> Plan | None:
    """Refuse a wrong spec with every violation; a job that already began goes on with its frozen one."""
    violations = view.checked.violations
    if not violations or view.status.intent is not None or view.frozen_spec is not None:
        return None
    message = "; ".join(str(violation) for violation in violations)
    new = view.writer.with_condition(
        view.status, ConditionType.VALIDATED, ConditionStatus.FALSE, Reason.INVALID_SPEC, message
    )
    new = view.writer.summarised(new, State.INVALID, Reason.INVALID_SPEC, message)
    return view.write(new, EventNote(EventType.WARNING, Reason.INVALID_SPEC, status.bounded(message)))


def intend(view: View) -> Plan | None:
    """Write down what will be made. A lost status is rebuilt from the children: the generation never goes back."""
    if view.status.intent is not None:
        return None
    spec = view.frozen_spec or view.checked.spec
    if spec is None:
        raise AssertionError("validate_spec lets no wrong spec pass")
    generation = max((generation_of(cluster) for cluster in view.observed.clusters), default=0) or 1
    intent = Intent(
        cluster_generation=generation,
        cluster_name=names.cluster_name(view.job, generation),
        time=clock.to_text(view.now),
        start_deadline=clock.to_text(view.now + timedelta(seconds=spec.deadlines.start_seconds)),
    )
    new = view.status.model_copy(update={"intent": intent, "resolved": _resolve(view, spec)})
    warnings = "; ".join(str(warning) for warning in warnings_of(spec))
    reason = Reason.VALID_WITH_WARNINGS if warnings else Reason.VALID
    new = view.writer.with_condition(new, ConditionType.VALIDATED, ConditionStatus.TRUE, reason, warnings)
    new = view.writer.summarised(new, State.PENDING, reason, warnings)
    events = [EventNote(EventType.NORMAL, Reason.VALID, f"needs {verl.devices(spec)} devices")]
    if warnings:
        events.append(EventNote(EventType.WARNING, Reason.VALID_WITH_WARNINGS, status.bounded(warnings)))
    return view.write(new, *events)


def _resolve(view: View, spec: RLJobSpec) -> Resolved:
    facts = ACCELERATORS[spec.accelerator.class_]
    count = verl.devices(spec)
    return Resolved(
        snapshot_name=names.snapshot_name(view.job),
        spec_hash=_training_hash(spec),
        nodes=sum(group.nodes for group in spec.worker_groups),
        devices=count,
        cards=status.metric(count / facts.dies_per_card) or "NaN",
        initializers=[names.initializer_name(view.job, initializer.name) for initializer in initializers(spec)],
        code=_resolve_code(spec),
        decisions=decide(spec),
    )


def _resolve_code(spec: RLJobSpec) -> ResolvedCode:
    """Say what is known before anything is copied; what a volume or the image holds, nobody can say."""
    return ResolvedCode(
        type=spec.code.type,
        config_map=spec.code.config_map.name if spec.code.config_map else None,
        digest=spec.code.git.revision if spec.code.git else None,
    )


def tell_changes(view: View) -> Plan | None:
    """Say that an edit does not reach the running job."""
    spec, violations = view.checked.spec, view.checked.violations
    if spec is not None and _same_training(view, spec):
        if status.condition(view.status, ConditionType.PENDING_CHANGES) is None:
            return None
        return _write_changes(view, ConditionStatus.FALSE, Reason.VALID, "")
    detail = "; ".join(str(violation) for violation in violations)
    message = "the job goes on with the spec that it started with; delete and create it to use the new one"
    return _write_changes(
        view, ConditionStatus.TRUE, Reason.SPEC_CHANGED, f"{message}: {detail}" if detail else message
    )


def _same_training(view: View, spec: RLJobSpec) -> bool:
    return view.status.resolved is not None and view.status.resolved.spec_hash == _training_hash(spec)


def _training_hash(spec: RLJobSpec) -> str:
    """Tell specs apart by all that a running job does not read again (`View.deadlines`, `View.cleanup`)."""
    document = configmap.spec_document(spec)
    return digest({name: section for name, section in document.items() if name not in ("deadlines", "cleanup")})


def _write_changes(view: View, value: ConditionStatus, reason: Reason, message: str) -> Plan | None:
    new = view.writer.with_condition(view.status, ConditionType.PENDING_CHANGES, value, reason, message)
    plan = view.write(new)
    return None if plan.empty else plan


def freeze_spec(view: View) -> Plan | None:
    """Make the snapshot; once the cluster exists nothing needs it any more."""
    if view.cluster is not None or view.frozen_spec is not None:
        return None
    if isinstance(view.observed.snapshot, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if view.observed.snapshot is not None:
        name = names.snapshot_name(view.job)
        return fail(view, Reason.NAME_TAKEN, f"ConfigMap {name} is not the one that this operator made; delete it")
    spec = view.checked.spec
    if spec is None or not _same_training(view, spec):
        # The spec changed between the intent and the snapshot: begin again with the new one.
        return view.write(view.status.model_copy(update={"intent": None, "resolved": None}))
    return Plan(effects=(CreateObject(configmap.build_snapshot(view.job, spec)),))


def freeze_code(view: View) -> Plan | None:
    """Copy the user's ConfigMap, and remember which code it was; the pods mount the copy only."""
    spec, resolved = view.frozen_spec, view.status.resolved
    if view.cluster is not None or spec is None or resolved is None:
        return None
    if resolved.code is None:
        # An operator that knew nothing of it began this job.
        return _write_code(view, resolved, _resolve_code(spec))
    if resolved.code.config_map is None or resolved.code.digest is not None:
        return None
    original, made = view.observed.code, view.observed.code_copy
    if isinstance(original, Unseen) or isinstance(made, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if made is not None:
        if not view.made(made):
            name = names.code_name(view.job)
            return fail(view, Reason.NAME_TAKEN, f"ConfigMap {name} is not the one that this operator made; delete it")
        return _write_code(view, resolved, resolved.code.model_copy(update={"digest": code_digest(made)}))
    if original is None:
        return _await_code(view, resolved.code.config_map)
    return Plan(effects=(CreateObject(build_code_copy(view.job, original)),))


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


def _wait_if_unseen(found: Manifest | Unseen | None) -> Plan | None:
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if isinstance(found, Unseen) else None


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
            return Plan(effects=(CreateObject(build_initializer(view.job, spec, initializer)),))
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
    deadline = clock.to_text(view.now + timedelta(seconds=view.deadlines.start_seconds))
    new: RLJobStatus = view.status.model_copy(
        update={"intent": view.intent.model_copy(update={"start_deadline": deadline}), "initializer": None}
    )
    new = view.writer.with_condition(
        new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED, _skipped(view)
    )
    new = view.writer.summarised(new, State.STARTING, Reason.INITIALIZED)
    return view.write(new)


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
