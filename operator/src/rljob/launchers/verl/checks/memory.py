"""Does the model fit? Checked before a cluster exists, where the model's shape is known.

The estimate is `rljob_runtime.planning.memory`; docs/reference/memory.md has its formulas. A phase that exceeds the
memory of a die is refused unless model.memoryCheck is Warn; a phase that nearly fills it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.training import MemoryCheck
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import known_shape
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.checks.memory_fixes import fixes
from rljob.launchers.verl.memory import (
    BUFFER_DEFAULT,
    BUFFER_MEGABYTES,
    BUFFER_VARIABLE,
    buffer_megabytes,
    memory_plan,
)
from rljob.launchers.verl.variables import worker_variables
from rljob.render.accelerators import facts_of
from rljob_runtime.contract import quoted
from rljob_runtime.planning.memory import OF_THE_ROLLOUT, MemoryPlan, Phase, PhaseName
from rljob_runtime.planning.shapes import Shape, ShapeError

GIB = 1 << 30
NEAR = {
    PhaseName.GENERATE: 0.95,
    PhaseName.LOG_PROBABILITIES: 0.9,
    PhaseName.UPDATE: 0.9,
    PhaseName.TRANSFER: 0.9,
    PhaseName.RECEIVE: 0.9,
}
"""Share of the memory above which a phase is reported; the KV cache of the rollout fills whatever it is given."""
LARGEST_SHOWN = 3
SHOW = "`rljob plan memory` shows every part"
FIELDS = {
    PhaseName.GENERATE: "spec.rollout.memoryFraction",
    PhaseName.LOG_PROBABILITIES: "spec.trainer.parallelism",
    PhaseName.UPDATE: "spec.trainer.parallelism",
    PhaseName.TRANSFER: "spec.rollout.parallelism",
    PhaseName.RECEIVE: "spec.rollout.parallelism",
}


def _model_fits(spec: RLJobSpec) -> Iterator[Violation]:
    """A job runs out of memory only after it has taken all of its dies."""
    if spec.model.memory_check is MemoryCheck.REFUSE:
        yield from _excesses(spec)


def _memory_is_short(spec: RLJobSpec) -> Iterator[Violation]:
    """A phase that nearly fills a die is reported, and with memoryCheck Warn one that does not fit."""
    excesses = tuple(_excesses(spec))
    if excesses:
        yield from excesses if spec.model.memory_check is MemoryCheck.WARN else ()
    elif (plan := _plan(spec)) is not None:
        for phase in plan.phases:
            if phase.bytes > NEAR[phase.name] * plan.die.memory_bytes:
                yield Violation(
                    _field(phase, plan),
                    f"{_seen(phase, plan)}, which leaves little headroom; {fixes(phase.name, spec, plan)}; {SHOW}",
                )


def _excesses(spec: RLJobSpec) -> Iterator[Violation]:
    plan = _plan(spec)
    if plan is None:
        return
    too_large = [phase for phase in plan.phases if phase.bytes > plan.die.memory_bytes]
    # Where the rest of the phase leaves no room for a cache, more memory for the engine would not help.
    if plan.kv_bytes < plan.kv_bytes_needed and PhaseName.GENERATE not in {phase.name for phase in too_large}:
        expert = " or expert" if plan.shape.experts else ""
        yield Violation(
            FIELDS[PhaseName.GENERATE],
            f"leaves {max(0, plan.kv_bytes) / GIB:.2f} GiB per die for the KV cache, but one sequence of "
            f"{plan.sequence_tokens} tokens needs {plan.kv_bytes_needed / GIB:.2f} GiB; raise it or "
            f"rollout.parallelism.tensor{expert}, or lower data.maxResponseTokens; {SHOW}",
        )
    for phase in too_large:
        yield Violation(
            _field(phase, plan),
            f"{_seen(phase, plan)}; {fixes(phase.name, spec, plan)}; {SHOW}; or set model.memoryCheck to Warn",
        )


def _field(phase: Phase, plan: MemoryPlan) -> str:
    """Return the field that decides a phase; with dies of its own, the rollout has no share in sending weights."""
    apart = plan.apart and phase.name is PhaseName.TRANSFER
    return FIELDS[PhaseName.UPDATE if apart else phase.name]


def _seen(phase: Phase, plan: MemoryPlan) -> str:
    parts = sorted(phase.parts, key=lambda part: -part.bytes)[:LARGEST_SHOWN]
    largest = ", ".join(f"{part.name} {part.bytes / GIB:.1f}" for part in parts)
    total = plan.die.memory_bytes / GIB
    whose = "" if not plan.apart else " of the rollout" if phase.name in OF_THE_ROLLOUT else " of the trainer"
    verb = "take" if phase.name is PhaseName.LOG_PROBABILITIES else "takes"
    return (
        f"{phase.name.value} {verb} {phase.bytes / GIB:.1f} of a die's {total:.0f} GiB{whose} "
        f"({phase.bytes / plan.die.memory_bytes:.0%}; {largest})"
    )


def _shape(spec: RLJobSpec) -> Shape | None:
    try:
        return known_shape(spec)
    except ShapeError:
        return None


def _plan(spec: RLJobSpec) -> MemoryPlan | None:
    shape = _shape(spec)
    return memory_plan(spec, shape) if shape else None


def _buffers_have_a_size(spec: RLJobSpec) -> Iterator[Violation]:
    """HCCL refuses other values when the first communicator is created, and the estimate could not count them."""
    for found in worker_variables(spec) if facts_of(spec).is_npu else ():
        if found.name == BUFFER_VARIABLE and found.value and buffer_megabytes(found.value) is None:
            yield Violation(
                found.field,
                f"{quoted(found.value)}: {BUFFER_VARIABLE} is a size in MB from {BUFFER_MEGABYTES[0]} to "
                f"{BUFFER_MEGABYTES[-1]}, allocated twice for each communicator; set such a number or remove it "
                f"(default {BUFFER_DEFAULT})",
            )


CHECKS: tuple[Check, ...] = (_model_fits, _buffers_have_a_size)
WARNINGS: tuple[Check, ...] = (_memory_is_short,)
