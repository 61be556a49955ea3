"""The life of a job: checkpoints and their volumes, restarts, stop rules, queues, cleanup, records."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator

from rljob.api.pods import PodTemplate, Volume
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.attempts.classify import restart_of
from rljob.core.scheduling.node_faults import CLASSES
from rljob.core.validation import fields
from rljob.core.validation.patterns import problem_of
from rljob.core.validation.pods import mount_of, normal
from rljob.core.validation.violation import Check, Violation

PERSISTENT = ("persistent_volume_claim", "host_path", "nfs")
CHECKPOINT = "spec.checkpoint"
LOG_PATH = "spec.observability.logPath"
QUEUE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""The name of an object (a DNS subdomain, RFC 1123): the queue is one, and it becomes a label of the cluster."""
_FAULTS = ", ".join(CLASSES)


def _checkpoint_outlives_the_pods(spec: RLJobSpec) -> Iterator[Violation]:
    """Every rank writes its part, and the next cluster reads all parts on other nodes."""
    checkpoint = spec.checkpoint
    if checkpoint is None:
        return
    known = {volume.name for volume in spec.trainer_group.template.volumes}
    if checkpoint.volume is not None and checkpoint.volume not in known:
        listed = ", ".join(sorted(known)) or "none"
        yield Violation(f"{CHECKPOINT}.volume", f"volume {checkpoint.volume} does not exist; the workers have {listed}")
        return
    workers = fields.trainer_template(spec)
    yield from persistence_violations(spec, f"{CHECKPOINT}.path", checkpoint.path, workers, checkpoint.volume)
    here, there = (mount_of(spec, checkpoint.path, place) for place in (workers, fields.HEAD))
    if here != there:
        yield Violation(
            f"{CHECKPOINT}.path",
            f"{checkpoint.path} is on volume {here} in the workers and on {there} in the head; mount the same one",
        )


def _log_outlives_the_pods(spec: RLJobSpec) -> Iterator[Violation]:
    """The launcher mirrors records from the head."""
    if spec.observability.log_path is not None:
        yield from persistence_violations(spec, LOG_PATH, spec.observability.log_path, fields.HEAD)


def _profile_has_a_place(spec: RLJobSpec) -> Iterator[Violation]:
    """Traces are written to the log volume, by ranks that exist, in steps that are trained."""
    profile, field = spec.observability.profile, "spec.observability.profile"
    if profile is None or not spec.reads("verl"):
        return
    if spec.observability.log_path is None:
        yield Violation(field, "requires observability.logPath, below which the traces are written; set it")
    elif not list(_log_outlives_the_pods(spec)):
        yield from persistence_violations(spec, LOG_PATH, spec.observability.log_path, fields.trainer_template(spec))
    if spec.total_steps is not None and (late := [step for step in profile.steps if step > spec.total_steps]):
        yield Violation(f"{field}.steps", f"{late[0]} is more than trainer.steps {spec.total_steps}; lower it")
    devices = spec.trainer_group.devices
    if beyond := [rank for rank in profile.ranks if rank >= devices]:
        yield Violation(f"{field}.ranks", f"{beyond[0]} does not exist: {devices} devices have ranks from 0; lower it")


def persistence_violations(
    spec: RLJobSpec, field: str, path: str, place: str, wanted: str | None = None
) -> Iterator[Violation]:
    """Yield why what is written to a path would be lost with the pods of a template: the trainer's, or the head's."""
    name = mount_of(spec, path, place)
    volume = _volumes(spec).get(name or "")
    if name is None:
        yield Violation(
            field, f"{path} is on no volume and would be lost with the pod; mount a volume at or above it in {place}"
        )
    elif wanted is not None and name != wanted:
        yield Violation(field, f"{path} is on volume {name}, not on {wanted}; correct the path or the volume")
    elif volume is None:
        return  # Reported by the checks of the mounts.
    elif not any(getattr(volume, kind) for kind in PERSISTENT):
        yield Violation(
            field,
            f"{path} is on volume {name}, which does not outlive the pod; use a persistentVolumeClaim, nfs or a "
            "hostPath that all nodes share",
        )
    elif _is_read_only(spec, name, path):
        yield Violation(field, f"{path} is on volume {name}, which is mounted read-only; remove readOnly")


def _writers(spec: RLJobSpec) -> tuple[PodTemplate, PodTemplate]:
    """Return the templates of the pods that keep something: the rollout writes nothing."""
    return spec.trainer_group.template, spec.head.template


def _volumes(spec: RLJobSpec) -> dict[str, Volume]:
    return {volume.name: volume for template in reversed(_writers(spec)) for volume in template.volumes}


def _is_read_only(spec: RLJobSpec, name: str, path: str) -> bool:
    volume = _volumes(spec)[name]
    source = volume.persistent_volume_claim or volume.nfs
    listed = [mount for template in _writers(spec) for mount in template.volume_mounts]
    above = [m for m in listed if m.name == name and f"{normal(path)}/".startswith(f"{normal(m.mount_path)}/")]
    return bool(source and source.read_only) or any(mount.read_only for mount in above)


def _restarts_have_a_checkpoint(spec: RLJobSpec) -> Iterator[Violation]:
    """A restart without a checkpoint would begin at step 0 and repeat the work."""
    if spec.checkpoint is not None:
        return
    for field, set_ in (
        ("restart.maxRestarts", spec.restart.max_restarts > 0),
        ("restart.maxInfrastructureRestarts", (spec.restart.max_infrastructure_restarts or 0) > 0),
        ("stop.requireCheckpoint", spec.stop.require_checkpoint),
    ):
        if set_:
            yield Violation(
                f"spec.{field}",
                "requires spec.checkpoint: without it a restart begins at step 0; set path and everySteps",
            )


def _beginning_is_clear(spec: RLJobSpec) -> Iterator[Violation]:
    """The fields `resume` and `from` must not contradict each other."""
    checkpoint = spec.checkpoint
    if checkpoint is None or checkpoint.from_ is None:
        return
    if checkpoint.resume == "Never":
        yield Violation(f"{CHECKPOINT}.from", "resume is Never, so nothing is read; remove one of them")
    if checkpoint.from_.path is not None and normal(checkpoint.from_.path) == normal(checkpoint.path):
        yield Violation(f"{CHECKPOINT}.from.path", "is this job's own path, from which it resumes anyway; remove it")


def _rules_can_match(spec: RLJobSpec) -> Iterator[Violation]:
    """A restart rule must work when it is needed, so it is checked before."""
    for index, rule in enumerate(spec.restart.rules):
        field = f"spec.restart.rules[{index}]"
        if rule.on_log_pattern is not None and (problem := problem_of(rule.on_log_pattern)) is not None:
            yield Violation(f"{field}.onLogPattern", problem)
        if rule.on_fault is not None and rule.on_fault not in CLASSES:
            near = difflib.get_close_matches(rule.on_fault, list(CLASSES), n=1)
            meant = f"did you mean {near[0]}? The classes" if near else "they"
            yield Violation(f"{field}.onFault", f"{rule.on_fault} is not a class of faults; {meant} are {_FAULTS}")
        if rule.action in ("Restart", "ExcludeNodeAndRestart") and not _may_restart(spec):
            yield Violation(
                f"{field}.action",
                f"{rule.action}, but maxRestarts and maxInfrastructureRestarts are 0; raise one, or use another action",
            )


def _may_restart(spec: RLJobSpec) -> bool:
    restart = restart_of(spec)
    return restart.max_restarts > 0 or (restart.max_infrastructure_restarts or 0) > 0


def _stop_rules_can_match(spec: RLJobSpec) -> Iterator[Violation]:
    """A threshold requires a comparison, and the run must be long enough for the steps."""
    for index, rule in enumerate(spec.stop_rules):
        field = f"spec.stopRules[{index}]"
        if rule.condition == "IsNaN" and rule.threshold is not None:
            yield Violation(
                f"{field}.threshold", "requires condition Above or Below, because NaN is not compared; remove it"
            )
        if rule.condition != "IsNaN" and rule.threshold is None:
            yield Violation(f"{field}.threshold", f"is required with condition {rule.condition}; set it")
        if rule.threshold is not None and not math.isfinite(float(rule.threshold)):
            yield Violation(f"{field}.threshold", f"{rule.threshold} is too large for a number")
        if spec.total_steps is not None and rule.for_steps > spec.total_steps:
            yield Violation(
                f"{field}.forSteps", f"{rule.for_steps} is more than trainer.steps {spec.total_steps}; lower it"
            )


def _queue_is_named(spec: RLJobSpec) -> Iterator[Violation]:
    """Fields that Kueue reads require a queue of Kueue."""
    scheduling, priority = spec.scheduling, "spec.scheduling.workloadPriorityClassName"
    if scheduling.queue_name is not None and not QUEUE_NAME.fullmatch(scheduling.queue_name):
        yield Violation(
            "spec.scheduling.queueName",
            f"{scheduling.queue_name!r} is no name of a queue; use the name of a LocalQueue of Kueue or a Queue of "
            "Volcano: parts of lower-case letters, digits and '-' with '.' between them",
        )
    if scheduling.gang == "Volcano" and scheduling.workload_priority_class_name is not None:
        yield Violation(priority, "applies to a queue of Kueue; Volcano uses scheduling.priorityClassName, so set that")
    if scheduling.queue_name is not None or scheduling.gang == "Volcano":
        return
    if scheduling.gang == "Kueue":
        yield Violation("spec.scheduling.gang", "requires a queue of Kueue; set scheduling.queueName")
    if scheduling.workload_priority_class_name is not None:
        yield Violation(priority, "applies to a queue of Kueue; set scheduling.queueName")


def _leftovers_end_in_order(spec: RLJobSpec) -> Iterator[Violation]:
    """The cluster is deleted with the job that owns it."""
    cleanup = spec.cleanup
    cluster, job = cleanup.cluster_after_seconds, cleanup.job_after_seconds
    if job is not None and job < cluster:
        yield Violation(
            "spec.cleanup.jobAfterSeconds", f"{job} s, but the job's cluster is kept for {cluster} s; raise it"
        )
    if cleanup.keep_on_failure and cluster == 0:
        yield Violation(
            "spec.cleanup.keepOnFailure", "keeps the cluster for clusterAfterSeconds, which is 0; raise that"
        )


CHECKS: tuple[Check, ...] = (
    _checkpoint_outlives_the_pods,
    _log_outlives_the_pods,
    _profile_has_a_place,
    _restarts_have_a_checkpoint,
    _beginning_is_clear,
    _rules_can_match,
    _stop_rules_can_match,
    _queue_is_named,
    _leftovers_end_in_order,
)
