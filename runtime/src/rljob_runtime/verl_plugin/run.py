"""What the trainer knows about the attempt it runs, and how it talks to the spool.

The task runner installs one `Run` per process before verl builds the trainer, because verl hands a trainer nothing but
its configuration.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rljob_runtime import checkpoint, claims, figures
from rljob_runtime.contract import JobConfig, Phase, StopMode
from rljob_runtime.mirror import Mirror
from rljob_runtime.spool import STRENGTH, Spool, StepRecord

_installed: list[Run] = []


@dataclass
class Run:
    """One attempt inside the trainer's process."""

    job: JobConfig
    attempt: int
    spool: Spool
    called: StopMode | None = field(default=None, init=False)
    """A stop that came by an actor call; one that came through the spool is read there."""
    reported: StopMode | None = field(default=None, init=False)
    mirror: Mirror = field(init=False)

    def __post_init__(self) -> None:
        """Open the attempt's folder on the log volume."""
        self.mirror = Mirror(self.job, self.attempt)

    def request_stop(self, mode: StopMode) -> None:
        """Take a stop by an actor call."""
        if self.called is None or STRENGTH[mode] > STRENGTH[self.called]:
            self.called = mode

    def stop_mode(self) -> StopMode | None:
        """Tell how the attempt was asked to stop, if it was; the first time is shown as phase Stopping."""
        request = self.spool.stop_request(self.attempt)
        asked = [mode for mode in (self.called, request.mode if request else None) if mode is not None]
        mode = max(asked, key=STRENGTH.__getitem__, default=None)
        if mode is not None and self.reported is None:
            self.reported = mode
            self.spool.update_progress(phase=Phase.STOPPING)
        return mode

    @property
    def checkpoint_folder(self) -> Path | None:
        """Folder of the job's checkpoints; None if it keeps none."""
        return Path(self.job.checkpoint_path) if self.job.checkpoint_path else None

    def check_owner(self) -> None:
        """Raise FencedError if somebody else owns the checkpoints."""
        if self.checkpoint_folder is not None:
            claims.check(self.checkpoint_folder, claims.Owner.of(self.job, self.attempt))

    def publish(self, step: int) -> None:
        """Let verl's tracker name a step; raises FencedError if somebody else owns the checkpoints."""
        if self.checkpoint_folder is not None:
            claims.publish(self.checkpoint_folder, claims.Owner.of(self.job, self.attempt), step)

    def saved(self, step: int) -> None:
        """Show a checkpoint."""
        if self.checkpoint_folder is not None:
            self.spool.update_progress(checkpoint_step=step)

    def resumed(self, step: int) -> None:
        """Show the step from which the attempt goes on; it is a checkpoint of this job only in its own folder."""
        if step > 0:
            folder = self.checkpoint_folder
            own = folder is not None and step in checkpoint.complete_steps(folder)
            self.spool.update_progress(step=step, checkpoint_step=step if own else None)

    def own_figures(self, metrics: Mapping[str, float], window: figures.RolloutWindow) -> dict[str, float]:
        """Compute our figures of a step from verl's metrics and the replicas' times."""
        rollout = figures.rollout_figures(window)
        return rollout | figures.throughput_figures(
            metrics,
            rollout_seconds=rollout.get(figures.ROLLOUT_SECONDS),
            devices=self.job.devices,
            dies_per_card=self.job.dies_per_card,
        )

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a step's line and show its figures."""
        record = StepRecord(step=step, time=time.time(), metrics=metrics)
        self.spool.append_step(self.attempt, record)
        self.mirror.append_step(record)

        def finite(key: str) -> float | None:
            value = metrics.get(key)
            return value if value is not None and abs(value) < float("inf") else None

        self.spool.update_progress(
            phase=Phase.STOPPING if self.reported else Phase.TRAINING,
            step=step,
            reward=finite("critic/score/mean"),
            response_tokens_mean=finite("response_length/mean"),
            tokens_per_second_per_card=finite(figures.STEP_TPS_PER_CARD),
            first_dp_idle_ratio=finite(figures.FIRST_DP_IDLE),
            cluster_idle_ratio=finite(figures.CLUSTER_IDLE),
            step_seconds=finite("timing_s/step"),
        )

    def record_validation(self, step: int, metrics: Mapping[str, float], *, only: bool) -> None:
        """Append the line of a validation before training; an evaluation-only run shows its score as the reward."""
        record = StepRecord(step=step, time=time.time(), metrics=metrics)
        self.spool.append_step(self.attempt, record)
        self.mirror.append_step(record)
        if only:
            self.spool.update_progress(reward=metrics.get(figures.VALIDATION_SCORE))


def validation_figures(scores: Iterable[float | None]) -> dict[str, float]:
    """Give the mean score over all validation answers; verl's own figures are by data source."""
    known = [score for score in scores if score is not None]
    return {figures.VALIDATION_SCORE: sum(known) / len(known)} if known else {}


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep what is a number: verl mixes in numpy scalars and now and then a table."""
    kept = {}
    for key, value in metrics.items():
        try:
            kept[str(key)] = float(value)
        except (TypeError, ValueError):
            continue
    return kept


def install(run: Run) -> None:
    """Make `run` the process's attempt."""
    _installed[:] = [run]


def current() -> Run:
    """Give the process's attempt."""
    if not _installed:
        raise RuntimeError("the rljob trainer was started by something else than rljob_runtime's task runner")
    return _installed[0]
