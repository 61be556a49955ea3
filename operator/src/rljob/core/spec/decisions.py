"""What the operator decides where the spec says Auto, and why: one table, asked once when a job begins.

The answers are pinned in status.resolved.decisions. A decision says what will happen, not what was wished: where the
runtime lacks the means, the value is what it does instead, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rljob.api.base import Switch
from rljob.api.status import Decision
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.observed import PodGroupApi
from rljob.core.scheduling import gang
from rljob.launchers import verl
from rljob.launchers.verl.node_needs import binds_cores
from rljob.render.accelerators import facts_of
from rljob.render.hardware import driver_mounts, runtime_class, sized

SET = "set in the spec"


@dataclass(frozen=True)
class Answer:
    """A value and its reason."""

    value: str
    reason: str


@dataclass(frozen=True)
class Question:
    """One field and how it is decided."""

    name: str
    """Field of the spec."""
    decide: Callable[[RLJobSpec], Answer]


def decide(spec: RLJobSpec, pod_groups: PodGroupApi | None = None) -> list[Decision]:
    """Answer every question; `pod_groups` is what the cluster serves, None where no cluster was asked."""
    answers = [(question.name, question.decide(spec)) for question in QUESTIONS]
    answers.append((gang.FIELD, Answer(*gang.decide_gang(spec, pod_groups))))
    return [Decision(name=name, value=answer.value, reason=answer.reason) for name, answer in answers]


def _micro_batch(spec: RLJobSpec) -> Answer:
    size = str(verl.micro_batch(spec))
    if spec.trainer.micro_batch_size_per_device is not None:
        return Answer(size, SET)
    if spec.trainer.max_tokens_per_device is not None:
        return Answer(size, "a device's share of a mini batch; trainer.maxTokensPerDevice cuts it by tokens instead")
    return Answer(size, "a device's share of a mini batch")


def _skip_old_log_prob(spec: RLJobSpec) -> Answer:
    asked, updates = spec.optimizations.skip_old_log_prob, spec.trainer.global_batch_size // verl.mini_batch(spec)
    if asked is Switch.DISABLED:
        return Answer("Disabled", SET)
    if updates > 1:
        return Answer("Disabled", f"{updates} updates of a batch: the ratio is not 1 after the first")
    return Answer("Disabled", "one update of a batch makes the ratio 1, but the runtime cannot leave the pass out yet")


def _core_binding(spec: RLJobSpec) -> Answer:
    if spec.optimizations.core_binding is not Switch.AUTO:
        return Answer(spec.optimizations.core_binding.value, SET)
    if not binds_cores(spec):
        return Answer("Disabled", f"class {spec.accelerator.class_} has no devices to be near to")
    return Answer("Enabled", "each device gets CPUs near it, planned on its node; /v1/progress has the plan")


def _driver_mounts(spec: RLJobSpec) -> Answer:
    found = driver_mounts(spec)
    if not facts_of(spec).is_npu:
        return Answer(found.value, f"class {spec.accelerator.class_} has no driver")
    name = runtime_class(spec)
    if spec.accelerator.driver_mounts != "Auto":
        return Answer(found.value, SET)
    if spec.runtime.runtime_class_name is not None:
        return Answer(found.value, f"runtime.runtimeClassName is {name}")
    return Answer(found.value, f"as the table says of class {spec.accelerator.class_}")


def _worker_size(spec: RLJobSpec) -> Answer:
    own = spec.worker_groups[0].template
    template = sized(spec, own)
    parts = {"cpu": template.cpu, "memory": template.memory, "sharedMemory": template.shared_memory}
    given = {"cpu": own.cpu, "memory": own.memory, "sharedMemory": own.shared_memory}
    text = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None) or "none"
    chosen = [name for name, value in parts.items() if value != given[name]]
    if not chosen:
        return Answer(text, SET if template.cpu else "nothing is set, and the class has no size of its own")
    return Answer(text, f"{', '.join(chosen)} as the table says of class {spec.accelerator.class_}")


def _gc_freeze(spec: RLJobSpec) -> Answer:
    if spec.optimizations.gc_freeze is Switch.DISABLED:
        return Answer("Disabled", SET)
    return Answer("Disabled", "the runtime has no hook in vLLM's engine for it yet")


def _load_balancer(spec: RLJobSpec) -> Answer:
    if spec.optimizations.load_balancer == "RequestCount":
        return Answer("RequestCount", SET)
    return Answer("RequestCount", "the runtime's router counts requests; it does not know their tokens yet")


def _restart_scope(spec: RLJobSpec) -> Answer:
    if spec.restart.scope != "Auto":
        return Answer(spec.restart.scope, SET)
    return Answer("Driver", "after a failure of the run itself, once; a further one, or any loss, gets a new cluster")


def _stop_mode(spec: RLJobSpec) -> Answer:
    if spec.stop.mode != "Auto":
        return Answer(spec.stop.mode, SET)
    if spec.checkpoint is None:
        return Answer("Immediate", "without checkpoint.path nothing could be saved")
    return Answer(
        "Auto", f"by measured times of step, rollout and save, within stop.graceSeconds {spec.stop.grace_seconds}"
    )


def _resume(spec: RLJobSpec) -> Answer:
    if spec.checkpoint is None:
        return Answer("Never", "without checkpoint.path nothing is saved")
    if spec.checkpoint.resume != "Auto":
        return Answer(spec.checkpoint.resume, SET)
    return Answer("Auto", f"at the last complete checkpoint in {spec.checkpoint.path}, if there is one")


QUESTIONS = (
    Question("trainer.microBatchSizePerDevice", _micro_batch),
    Question("optimizations.skipOldLogProb", _skip_old_log_prob),
    Question("optimizations.coreBinding", _core_binding),
    Question("optimizations.gcFreeze", _gc_freeze),
    Question("optimizations.loadBalancer", _load_balancer),
    Question("restart.scope", _restart_scope),
    Question("stop.mode", _stop_mode),
    Question("checkpoint.resume", _resume),
    Question("accelerator.driverMounts", _driver_mounts),
    Question("workerGroups[0].template", _worker_size),
)
