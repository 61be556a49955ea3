"""`rljob plan memory`: the memory of a die that each phase of a step needs, as a table or as JSON.

The arithmetic is in `rljob_runtime.planning.memory`, which validation uses too; this module only formats it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.core.launcher import Launcher
from rljob.core.spec.model_shape import known_shape
from rljob_runtime.planning.memory import Phase, Plan
from rljob_runtime.planning.shapes import BUILT_IN, Shape, ShapeError, shape_from_config
from rljob_runtime.planning.weights import Cut, model_elements

OUTPUTS = ("table", "json")
GIB = 1 << 30
NAME_WIDTH = 38


def read_config(path: Path) -> Shape:
    """Read a config.json. Raise UsageError if it cannot be read."""
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: not a JSON object; pass the config.json of a model")
    try:
        return shape_from_config(config, path.parent.name or str(path), str(path))
    except ShapeError as error:
        raise UsageError(f"{path}: {error}") from error


def memory_page(name: str, spec: RLJobSpec, shape: Shape | None, output: str, launcher: Launcher) -> tuple[str, bool]:
    """Return a job's page, and whether everything fits."""
    shape = shape or known_shape(spec)
    if shape is None:
        raise UsageError(
            f"{name}: the sizes of the model are unknown; set model.architecture to one of "
            f"{', '.join(sorted(BUILT_IN))}, or pass --model-config config.json"
        )
    plan = launcher.memory_plan(spec, shape)
    if plan is None:
        raise UsageError(
            f"{name}: class {spec.accelerator.class_} uses the host's memory; set accelerator.class to an Atlas class"
        )
    page = json.dumps(_document(name, plan), indent=2) if output == "json" else _table(name, spec, plan)
    return page, fits(plan)


def fits(plan: Plan) -> bool:
    """Return whether every phase and one sequence of full length fit."""
    return plan.peak.bytes <= plan.die.memory_bytes and plan.kv_bytes >= plan.kv_bytes_needed


def _table(name: str, spec: RLJobSpec, plan: Plan) -> str:
    billions = model_elements(plan.shape, Cut()).total / 1e9
    size = f"{plan.die.memory_bytes / GIB:.0f} GiB per die"
    tokens = f"{plan.full_sequences:.1f} sequences of {plan.sequence_tokens:,} tokens at the same time"
    lines = [
        f"{name}: {plan.shape.name} ({billions:.2f} billion parameters) on {spec.accelerator.class_}, {size}",
        "",
        f"{'on the fullest die':<{NAME_WIDTH}}{'GiB':>9}  share",
    ]
    for phase in plan.phases:
        lines.append(f"{phase.name.value:<{NAME_WIDTH}}{phase.bytes / GIB:>9.2f}  {_share(phase, plan)}")
        lines += [
            f"  {'~ ' if part.estimated else ''}{part.name:<{NAME_WIDTH - (4 if part.estimated else 2)}}"
            f"{part.bytes / GIB:>9.2f}"
            for part in phase.parts
        ]
    lines += [
        "",
        f"KV cache: {plan.kv_bytes_per_token / 1024:.1f} KiB per token and die, {plan.kv_tokens:,} tokens; {tokens}",
        "~ marks an estimate; the other values follow from the model's sizes",
    ]
    return "\n".join(lines)


def _share(phase: Phase, plan: Plan) -> str:
    share = f"{phase.bytes / plan.die.memory_bytes:.0%}"
    return f"{share}  does not fit" if phase.bytes > plan.die.memory_bytes else share


def _document(name: str, plan: Plan) -> dict[str, Any]:
    return {
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
                "bytes": phase.bytes,
                "parts": [{"name": p.name, "bytes": p.bytes, "estimated": p.estimated} for p in phase.parts],
            }
            for phase in plan.phases
        ],
    }
