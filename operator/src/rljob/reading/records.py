"""The records of a run: steps.jsonl as the trainer wrote it, and the metrics shown from it. Pure.

`rljob run --local` and `make demo` show them at the end; `rljob report` plots them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rljob.reading import figures as shown
from rljob_runtime.contract import StepMetric, parse_foreign_json


@dataclass(frozen=True)
class Record:
    """One line of steps.jsonl."""

    attempt: int
    step: int
    time: float
    """Unix time in seconds."""
    metrics: Mapping[str, float]

    @property
    def trained(self) -> bool:
        """Return whether a step was trained; a validation before the training is recorded too."""
        return StepMetric.REWARD in self.metrics or StepMetric.STEP_SECONDS in self.metrics


def read_records(text: str, attempt: int) -> list[Record]:
    """Read the records of an attempt; a line that is no record, or was cut off by a crash, is skipped."""
    records = []
    for line in text.splitlines():
        try:
            raw = parse_foreign_json(line)
            metrics = {str(key): float(value) for key, value in raw["metrics"].items()}
            records.append(Record(attempt, int(raw["step"]), float(raw.get("time", math.nan)), metrics))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
    return records


def kept(records: Iterable[Record]) -> list[Record]:
    """Return the steps that produced the model, in order; a step that was repeated counts for the later attempt."""
    steps = {record.step: record for record in sorted(records, key=lambda record: record.attempt) if record.trained}
    return [steps[number] for number in sorted(steps)]


@dataclass(frozen=True)
class Step:
    """The values shown for one step; NaN if the trainer did not report one."""

    number: int
    reward: float
    seconds: float
    tokens_per_second_card: float
    cluster_idle: float
    first_idle: float


def figures(records: Iterable[Record]) -> list[Step]:
    """Return the values of the steps that produced the model."""
    return [
        Step(
            number=record.step,
            reward=record.metrics.get(StepMetric.REWARD, math.nan),
            seconds=record.metrics.get(StepMetric.STEP_SECONDS, math.nan),
            tokens_per_second_card=record.metrics.get(StepMetric.STEP_TPS_PER_CARD, math.nan),
            cluster_idle=record.metrics.get(StepMetric.CLUSTER_IDLE, math.nan),
            first_idle=record.metrics.get(StepMetric.FIRST_DP_IDLE, math.nan),
        )
        for record in kept(records)
    ]


def figure_table(steps: Sequence[Step]) -> list[tuple[str, str, str, str, str]]:
    """Return the rows of the table: metric, first five steps, last five steps, median, unit."""
    rows = [("", "first 5", "last 5", "median", "unit")]
    for label, name, unit, form in (
        ("reward", "reward", "mean of responses", shown.reward),
        ("step time", "seconds", "of a step", shown.seconds),
        ("TPS per card", "tokens_per_second_card", "tokens/s", shown.rate),
        ("DP idle, cluster", "cluster_idle", "of the rollout", shown.share),
        ("DP idle, first", "first_idle", "of the rollout", shown.share),
    ):
        values = [getattr(step, name) for step in steps]
        means = (_mean(values[:5]), _mean(values[-5:]), _median(values))
        first, last, median = (form(value) if math.isfinite(value) else shown.ABSENT for value in means)
        rows.append((label, first, last, median, unit))
    return rows


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _mean(values: Sequence[float]) -> float:
    found = _finite(values)
    return fmean(found) if found else math.nan


def _median(values: Sequence[float]) -> float:
    found = sorted(_finite(values))
    return found[len(found) // 2] if found else math.nan


def number(value: float, digits: int) -> str:
    """Return a number for a table; a dash if there is none."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
