"""A run's own records: steps.jsonl as the trainer wrote it, and the figures that people see of it. Pure.

`rljob run --local` and `make demo` end with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rljob_runtime.contract import StepMetric


@dataclass(frozen=True)
class Step:
    """What is shown of one step; NaN where the trainer gave nothing."""

    number: int
    reward: float
    seconds: float
    tokens_per_second_card: float
    cluster_idle: float
    first_idle: float


def parse(text: str) -> list[Step]:
    """Read the lines of steps.jsonl, in the order of the steps; a line that a crash cut off is passed over."""
    steps: dict[int, Step] = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
            metrics = record["metrics"]
            number = int(record["step"])
        except (ValueError, KeyError, TypeError):
            continue
        steps[number] = Step(
            number=number,
            reward=float(metrics.get(StepMetric.REWARD, math.nan)),
            seconds=float(metrics.get(StepMetric.STEP_SECONDS, math.nan)),
            tokens_per_second_card=float(metrics.get(StepMetric.STEP_TPS_PER_CARD, math.nan)),
            cluster_idle=float(metrics.get(StepMetric.CLUSTER_IDLE, math.nan)),
            first_idle=float(metrics.get(StepMetric.FIRST_DP_IDLE, math.nan)),
        )
    return [steps[number] for number in sorted(steps)]


def mean_reward(steps: Sequence[Step]) -> float:
    """Mean of the rewards that are numbers."""
    rewards = [step.reward for step in steps if math.isfinite(step.reward)]
    return fmean(rewards) if rewards else math.nan


def figure_table(steps: Sequence[Step]) -> list[tuple[str, str, str, str, str]]:
    """Rows of the table: figure, first five steps, last five steps, best, unit."""
    rows = [("", "first 5", "last 5", "median", "unit")]
    for label, name, unit, digits in (
        ("reward", "reward", "mean of answers", 3),
        ("step time", "seconds", "s", 2),
        ("TPS per card", "tokens_per_second_card", "tokens/s", 0),
        ("DP idle, cluster", "cluster_idle", "of the rollout", 3),
        ("DP idle, first", "first_idle", "of the rollout", 3),
    ):
        values = [getattr(step, name) for step in steps]
        rows.append(
            (
                label,
                _number(_mean(values[:5]), digits),
                _number(_mean(values[-5:]), digits),
                _number(_median(values), digits),
                unit,
            )
        )
    return rows


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _mean(values: Sequence[float]) -> float:
    found = _finite(values)
    return fmean(found) if found else math.nan


def _median(values: Sequence[float]) -> float:
    found = sorted(_finite(values))
    return found[len(found) // 2] if found else math.nan


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
