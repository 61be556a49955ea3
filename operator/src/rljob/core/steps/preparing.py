"""Before any NPU is held: validate, write down the intent, freeze the spec, run the initializers."""

from __future__ import annotations

from datetime import timedelta

from rljob.api.sources import Initializer
from rljob.api.status import ConditionStatus, ConditionType, Intent, Resolved, RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.build import configmap, labels, names
from rljob.build.accelerators import ACCELERATORS
from rljob.build.initializer import build_initializer
from rljob.build.metadata import digest
from rljob.core import clock, status
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.policies.decisions import decide
from rljob.core.policies.startup import PROBLEMS, diagnose
from rljob.core.reasons import Reason
from rljob.core.steps.finishing import fail
from rljob.core.view import LOOK_AGAIN_SECONDS, View, generation_of
from rljob.launchers import verl

INITIALIZER_POLL_SECONDS = 3.0


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
    new = view.writer.with_condition(new, ConditionType.VALIDATED, ConditionStatus.TRUE, Reason.VALID)
    new = view.writer.summarised(new, State.PENDING, Reason.VALID)
    return view.write(new, EventNote(EventType.NORMAL, Reason.VALID, f"needs {verl.devices(spec)} devices"))


def _resolve(view: View, spec: RLJobSpec) -> Resolved:
    facts = ACCELERATORS[spec.accelerator.class_]
    count = verl.devices(spec)
    return Resolved(
        snapshot_name=names.snapshot_name(view.job),
        spec_hash=_training_hash(spec),
        nodes=sum(group.nodes for group in spec.worker_groups),
        devices=count,
        cards=status.metric(count / facts.dies_per_card) or "NaN",
        initializers=[names.initializer_name(view.job, initializer.name) for initializer in spec.initializers],
        decisions=decide(spec),
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


def _wait_if_unseen(found: Manifest | Unseen | None) -> Plan | None:
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if isinstance(found, Unseen) else None


def initialize(view: View) -> Plan | None:
    """Run the initializers one after another; the last one's success opens the way to the NPUs."""
    if status.is_true(view.status, ConditionType.INITIALIZED) or view.cluster is not None:
        return None
    spec = view.frozen_spec
    if spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    for initializer in spec.initializers:
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
    message = f"initializer {initializer.name}" + (f": {diagnosis.message}" if problem else " is running")
    reason = diagnosis.reason.value if problem else Reason.INITIALIZER_RUNNING.value
    new = view.writer.with_condition(view.status, ConditionType.INITIALIZED, ConditionStatus.FALSE, reason, message)
    new = view.writer.summarised(new, State.INITIALIZING, reason, message)
    event = EventNote(EventType.WARNING if problem else EventType.NORMAL, reason, message)
    return view.write(new, event, requeue=INITIALIZER_POLL_SECONDS)


def _initialized(view: View) -> Plan:
    # The clock of startSeconds begins here: an initializer has its own bound.
    deadline = clock.to_text(view.now + timedelta(seconds=view.deadlines.start_seconds))
    new: RLJobStatus = view.status.model_copy(
        update={"intent": view.intent.model_copy(update={"start_deadline": deadline})}
    )
    new = view.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED)
    new = view.writer.summarised(new, State.STARTING, Reason.INITIALIZED)
    return view.write(new)


def _has_condition(job: Manifest, kind: str) -> str | None:
    """Give the text of a Job's condition that is True, or None."""
    for entry in job.get("status", {}).get("conditions") or ():
        if entry["type"] == kind and entry["status"] == "True":
            return f"{entry.get('reason', kind)}: {entry.get('message', '')}".rstrip(": ")
    return None
