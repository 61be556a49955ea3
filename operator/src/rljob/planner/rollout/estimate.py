"""The engine of a job, as far as the simulator needs it: how long its steps take and what a cache holds.

Two layouts have published step times: DeepSeek-V3 with two dies a rank and Qwen3-235B-A22B with four. For other models
and sizes these are scaled: the fixed part of a step by layers and by the weights that a die reads, the part of a row by
the bytes that a token has in the cache of a die. Both published models agree on the latter within 10 % (15 and 17
microseconds for each KiB), although one has latent attention and the other grouped queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob.planner.rollout import published
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.step_time import MILLISECOND, LinearStepTime, StepTime
from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import BF16, Cut, kv_bytes_per_token, model_elements

MEMORY_BYTES_A_SECOND = 0.9e12
"""At which a die reads its weights in a step. Published for Qwen3-235B with few responses: 1,614 s with one die a rank,
1,369 s with four. The 18 % are 13 ms of a step for 12 GB more on a die."""
PREFILL_RATE = 27e12
"""Floating-point operations a second of a die for prompts: as in a pass for log-probabilities (`planning.stages`)."""


@dataclass(frozen=True)
class ReplicaSize:
    """How one replica of the engine is split."""

    tensor: int
    data: int
    expert: int

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.tensor * self.data


@dataclass(frozen=True)
class _Case:
    """A published layout, from which others are scaled."""

    layers: int
    fixed: float
    """Milliseconds of a step without rows."""
    row: float
    """Milliseconds for each row."""
    cache_bytes: int
    """Of a token, on a die."""
    weight_bytes: float
    """Of a die."""


# 4 to 32 rows of the published table, linearly: (94 - 64.5) / 28 ms for each row.
_LATENT = _Case(61, 64.5 - 4 * 29.5 / 28, 29.5 / 28, published.DEEPSEEK_CACHE_BYTES, 23.3e9)
_GROUPED = _Case(94, published.QWEN_STEP_TIME.fixed, published.QWEN_STEP_TIME.row, published.QWEN_CACHE_BYTES, 7.6e9)


def step_time(shape: Shape, size: ReplicaSize) -> StepTime:
    """Return the published step time of a layout, or one scaled from the nearest."""
    spread = size.expert > 1
    if shape.name in ("DeepSeek-V3", "DeepSeek-R1") and size.tensor == 2 and spread:
        return published.DEEPSEEK_STEP_TIME
    if shape.name == "Qwen3-235B-A22B" and size.tensor == 4 and spread:
        return published.QWEN_STEP_TIME
    case, name = (_LATENT, "DeepSeek-V3") if shape.latent else (_GROUPED, "Qwen3-235B-A22B")
    own = _read_milliseconds(weight_bytes(shape, size))
    layers = shape.layers / case.layers
    fixed = (case.fixed - _read_milliseconds(case.weight_bytes)) * layers + own
    row = case.row * kv_bytes_per_token(shape, size.tensor) / case.cache_bytes
    return LinearStepTime(
        fixed=fixed,
        row=row,
        cached_million=0.0,
        source=f"{fixed:.1f} ms and {row:.2f} ms for each row, scaled from the published times of {name} by layers, "
        "weights and cache of a die; never measured for this model and layout",
    )


def _read_milliseconds(size: float) -> float:
    return size / MEMORY_BYTES_A_SECOND / MILLISECOND


def weight_bytes(shape: Shape, size: ReplicaSize) -> float:
    """Return the bytes of the weights on a die of the engine."""
    expert_tensor = 1 if size.expert > 1 else size.tensor
    return model_elements(shape, Cut(size.tensor, size.expert, expert_tensor)).total * BF16


def active_elements(shape: Shape) -> float:
    """Return the elements of the weights that one token uses, without the input embedding."""
    total = model_elements(shape, Cut()).total - (0 if shape.tied else shape.vocabulary * shape.hidden)
    if (moe := shape.experts) is None:
        return total
    layers = sum(shape.has_experts(layer) for layer in range(shape.layers))
    return total - layers * (moe.count - moe.chosen) * 3 * shape.hidden * moe.width


def engine(shape: Shape, size: ReplicaSize, sequences: int, cache_tokens: int | None) -> Engine:
    """Return the engine of a replica of which each rank decodes up to `sequences` responses at a time."""
    return Engine(
        ranks=size.data,
        sequences=sequences,
        step_time=step_time(shape, size),
        cache_tokens=cache_tokens,
        prefill_seconds=2 * active_elements(shape) / (size.tensor * PREFILL_RATE),
        move_seconds=kv_bytes_per_token(shape, size.tensor) / published.LINK_BYTES_A_SECOND,
        check_seconds=published.CHECK_SECONDS,
    )
