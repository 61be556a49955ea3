"""What the operator decides where the spec says Auto, and why: one table, evaluated once when a job begins.

The answers are recorded in status.resolved.decisions. A decision states what will happen, not what was requested: where
the runtime cannot do it, the value is what it does instead, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rljob.api.status import Decision
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.core.observed import PodGroupApi
from rljob.core.scheduling import gang
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
    """A field, and how it is decided."""

    name: str
    """Field of the spec."""
    decide: Callable[[RLJobSpec], Answer]


def decide(
    spec: RLJobSpec, launchers_own: tuple[Question, ...], pod_groups: PodGroupApi | None = None
) -> list[Decision]:
    """Answer every question, the launcher's own first; `pod_groups` is None where no cluster was asked."""
    answers = [(question.name, question.decide(spec)) for question in (*launchers_own, *QUESTIONS)]
    answers += [
        (f"workerGroups[{n}].template", _worker_size(spec, group)) for n, group in enumerate(spec.worker_groups)
    ]
    answers.append((gang.FIELD, Answer(*gang.decide_gang(spec, pod_groups))))
    return [Decision(name=name, value=answer.value, reason=answer.reason) for name, answer in answers]


def _driver_mounts(spec: RLJobSpec) -> Answer:
    found = driver_mounts(spec)
    if not facts_of(spec).is_npu:
        return Answer(found.value, f"class {spec.accelerator.class_} has no driver")
    name = runtime_class(spec)
    if spec.accelerator.driver_mounts != "Auto":
        return Answer(found.value, SET)
    if spec.runtime.runtime_class_name is not None:
        return Answer(found.value, f"runtime.runtimeClassName is {name}")
    return Answer(found.value, f"from the accelerator table, class {spec.accelerator.class_}")


def _worker_size(spec: RLJobSpec, group: WorkerGroup) -> Answer:
    own, template = group.template, sized(spec, group)
    parts = {"cpu": template.cpu, "memory": template.memory, "sharedMemory": template.shared_memory}
    given = {"cpu": own.cpu, "memory": own.memory, "sharedMemory": own.shared_memory}
    text = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None) or "none"
    chosen = [name for name, value in parts.items() if value != given[name]]
    if not chosen:
        return Answer(text, SET if template.cpu else "nothing is set, and the class has no default size")
    return Answer(text, f"{', '.join(chosen)} from the accelerator table, class {spec.accelerator.class_}")


def _restart_scope(spec: RLJobSpec) -> Answer:
    if spec.restart.scope != "Auto":
        return Answer(spec.restart.scope, SET)
    return Answer(
        "Auto",
        "the first failure since the last checkpoint restarts the driver, or replaces lost workers; another one gets a "
        "new cluster",
    )


def _stop_mode(spec: RLJobSpec) -> Answer:
    if spec.stop.mode != "Auto":
        return Answer(spec.stop.mode, SET)
    if spec.checkpoint is None:
        return Answer("Immediate", "nothing can be saved without checkpoint.path")
    return Answer(
        "Auto",
        f"chosen by measured times of step, rollout and save, within stop.graceSeconds {spec.stop.grace_seconds}",
    )


def _resume(spec: RLJobSpec) -> Answer:
    if spec.checkpoint is None:
        return Answer("Never", "nothing is saved without checkpoint.path")
    if spec.checkpoint.resume != "Auto":
        return Answer(spec.checkpoint.resume, SET)
    return Answer("Auto", f"from the last complete checkpoint in {spec.checkpoint.path}, if there is one")


QUESTIONS = (
    Question("restart.scope", _restart_scope),
    Question("stop.mode", _stop_mode),
    Question("checkpoint.resume", _resume),
    Question("accelerator.driverMounts", _driver_mounts),
)
