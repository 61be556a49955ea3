"""`rljob plan memory`: the memory of a die that each phase of a step needs, as a table or as data.

The arithmetic is in `rljob_runtime.planning.memory`, which validation uses too; this module only formats it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rljob.api.v1alpha1 import POLICY_ROLES, RLJobSpec, Role
from rljob.cli.errors import UsageError
from rljob.core.launcher import LauncherOf, Plans
from rljob.core.spec.model_shape import known_shape
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.memory import OF_THE_ROLLOUT, MemoryPlan, Phase
from rljob_runtime.planning.shapes import Shape, ShapeError, shape_from_config
from rljob_runtime.planning.weights import Cut, model_elements

GIB = 1 << 30
CONFIG_MAX = 4 << 20
"""Bytes of a config.json, which has some kilobytes."""
NAME_WIDTH = 38


def read_config(path: Path) -> Shape:
    """Read a config.json. Raise UsageError if it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_MAX + 1)
        if len(text) > CONFIG_MAX:
            raise UsageError(f"{path}: larger than {CONFIG_MAX >> 20} MiB; pass the config.json of a model")
        config = json.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; pass the config.json of a model") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}; pass the config.json of a model") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: not a JSON object; pass the config.json of a model")
    try:
        return shape_from_config(config, path.parent.name or str(path), str(path))
    except ShapeError as error:
        raise UsageError(f"{path}: {error}") from error


def plan_memory(name: str, spec: RLJobSpec, shape: Shape | None, launcher: LauncherOf) -> MemoryPlan:
    """Return the plan of a job. Raise UsageError if its model or its memory is unknown."""
    plans = launcher(spec)
    if not isinstance(plans, Plans):
        raise UsageError(f"{name}: launcher.type is {spec.launcher.type}, and the memory of such a job is not known")
    plan = plans.memory_plan(spec, shape_of(name, spec, shape))
    if plan is None:
        raise UsageError(
            f"{name}: class {spec.accelerator.class_} uses the host's memory; set accelerator.class to an Atlas class"
        )
    return plan


def shape_of(name: str, spec: RLJobSpec, shape: Shape | None) -> Shape:
    """Return the given sizes of a model, else those that the job states. Raise UsageError if they are unknown."""
    shape = shape or known_shape(spec)
    if shape is None:
        raise UsageError(
            f"{name}: the sizes of the model are unknown; set model.architecture to one of "
            f"{', '.join(sorted(BUILT_IN))}, or pass --model-config config.json"
        )
    return shape


def fits(plan: MemoryPlan) -> bool:
    """Return whether every phase and one sequence of full length fit."""
    return plan.peak.bytes <= plan.die.memory_bytes and plan.kv_bytes >= plan.kv_bytes_needed


def plan_table(name: str, spec: RLJobSpec, plan: MemoryPlan) -> str:
    """Return the table of a job."""
    billions = model_elements(plan.shape, Cut()).total / 1e9
    size = f"{plan.die.memory_bytes / GIB:.0f} GiB per die"
    tokens = f"{plan.full_sequences:.1f} sequences of {plan.sequence_tokens:,} tokens at the same time"
    lines = [
        f"{name}: {plan.shape.name} ({billions:.2f} billion parameters) on {spec.accelerator.class_}, {size}",
    ]
    for role in POLICY_ROLES if plan.apart else (None,):
        lines += [
            "",
            f"{'on the fullest die' + (f' of the {role.lower()}' if role else ''):<{NAME_WIDTH}}{'GiB':>9}  share",
        ]
        lines += [line for phase in plan.phases if role in (None, _role(phase)) for line in _phase_lines(phase, plan)]
    lines += [
        "",
        f"KV cache: {plan.kv_bytes_per_token / 1024:.1f} KiB per token and die, {plan.kv_tokens:,} tokens; {tokens}",
        "~ marks an estimate; the other values follow from the model's sizes",
    ]
    return "\n".join(lines)


def _phase_lines(phase: Phase, plan: MemoryPlan) -> Iterator[str]:
    yield f"{phase.name.value:<{NAME_WIDTH}}{phase.bytes / GIB:>9.2f}  {_share(phase, plan)}"
    for part in phase.parts:
        mark = "~ " if part.estimated else ""
        yield f"  {mark}{part.name:<{NAME_WIDTH - 2 - len(mark)}}{part.bytes / GIB:>9.2f}"


def _role(phase: Phase) -> Role:
    """Return whose die a phase takes, where trainer and rollout stand apart."""
    return Role.ROLLOUT if phase.name in OF_THE_ROLLOUT else Role.TRAINER


def _share(phase: Phase, plan: MemoryPlan) -> str:
    share = f"{phase.bytes / plan.die.memory_bytes:.0%}"
    return f"{share}  does not fit" if phase.bytes > plan.die.memory_bytes else share


def plan_document(namespace: str, name: str, plan: MemoryPlan) -> dict[str, Any]:
    """Return the same as data."""
    return {
        "namespace": namespace,
        "job": name,
        "model": plan.shape.name,
        "source": plan.shape.source,
        "dieBytes": plan.die.memory_bytes,
        "fits": fits(plan),
        "kvCache": {
            "bytesPerToken": plan.kv_bytes_per_token,
            "tokens": plan.kv_tokens,
            "fullSequences": round(plan.full_sequences, 2),
        },
        "phases": [
            {
                "name": phase.name.value,
                **({"role": _role(phase).value} if plan.apart else {}),
                "bytes": phase.bytes,
                "parts": [{"name": p.name, "bytes": p.bytes, "estimated": p.estimated} for p in phase.parts],
            }
            for phase in plan.phases
        ],
    }
