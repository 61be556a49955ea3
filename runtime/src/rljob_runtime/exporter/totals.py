"""Totals over all attempts on this head pod, so that counters continue when a restarted driver starts from zero.

Each call reads the lines appended to the attempts' `steps.jsonl` since the last call; after a restart of the exporter,
all of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.contract import SpoolFile, StepMetric
from rljob_runtime.spool import step_metrics
from rljob_runtime.spool.spool import Spool, StepRecord, read_line

TOKENS = f"{step_metrics.PREFIX}/tokens/"
REPLICA = f"{step_metrics.PREFIX}/replica/"
FINISH = "/finish_seconds"
VALIDATION = (step_metrics.VALIDATION_SCORE, "val-core/", "val-aux/")
"""Key prefixes of validation metrics."""


@dataclass
class Totals:
    """The totals so far."""

    spool: Spool
    steps: int = 0
    attempts: set[str] = field(default_factory=set)
    tokens: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stage_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    replica_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """busy, idle."""
    first_dp_idle_seconds: float = 0.0
    validation: StepRecord | None = None
    """The last validation. Other steps do not repeat its metrics."""
    _read: dict[Path, int] = field(default_factory=dict)
    """Number of bytes read from each file."""

    def catch_up(self) -> None:
        """Read new records."""
        for path in sorted(self.spool.root.glob(f"attempt-*/{SpoolFile.STEPS.value}")):
            for record in self._new_records(path):
                self._add(path, record)

    def _new_records(self, path: Path) -> Iterator[StepRecord]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return  # the line is still being written
                self._read[path] = self._read.get(path, 0) + len(line)
                if (record := read_line(line)) is not None:
                    yield record

    def _add(self, path: Path, record: StepRecord) -> None:
        metrics = {key: value for key, value in record.metrics.items() if math.isfinite(value)}
        # Files are sorted by name: attempt-10 comes before attempt-2.
        newer = self.validation is None or record.time >= self.validation.time
        if newer and any(key.startswith(VALIDATION) for key in metrics):
            kept = {key: value for key, value in record.metrics.items() if key.startswith(VALIDATION)}
            self.validation = StepRecord(record.step, record.time, kept)
        if StepMetric.STEP_SECONDS not in metrics:
            return  # a validation before training
        self.steps += 1
        self.attempts.add(path.parent.name)
        for key, value in metrics.items():
            if key.startswith(TOKENS):
                self.tokens[key.removeprefix(TOKENS)] += value
        for stage, seconds in stage_seconds(metrics).items():
            self.stage_seconds[stage] += seconds
        self._add_rollout(metrics)

    def _add_rollout(self, metrics: Mapping[str, float]) -> None:
        seconds = metrics.get(step_metrics.ROLLOUT_SECONDS, 0.0)
        for key, finish in metrics.items():
            if key.startswith(REPLICA) and key.endswith(FINISH):
                self.replica_seconds["busy"] += finish
                self.replica_seconds["idle"] += seconds - finish
        self.first_dp_idle_seconds += metrics.get(step_metrics.FIRST_DP_IDLE, 0.0) * seconds


def stage_seconds(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the duration of a step's stages, including our own."""
    stages = {
        key.removeprefix(step_metrics.STAGE_PREFIX): value
        for key, value in metrics.items()
        if key.startswith(step_metrics.STAGE_PREFIX)
    }
    own = {"rollout": step_metrics.ROLLOUT_SECONDS, step_metrics.OTHER: step_metrics.OTHER_SECONDS}
    return stages | {stage: metrics[key] for stage, key in own.items() if key in metrics}
