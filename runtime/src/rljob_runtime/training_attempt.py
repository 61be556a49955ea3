"""One attempt from the trainer's view: progress, stop requests, and the checkpoints that it saves and resumes.

Every trainer behind `trainer.Trainer` uses it in the process that runs the training loop. For frameworks that pass only
a configuration to their trainer, as verl does, `install` and `current` make it available there.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rljob_runtime.checkpoints import claims, saved_steps
from rljob_runtime.checkpoints.data_identity import DataIdentity
from rljob_runtime.checkpoints.saved_steps import step_folder
from rljob_runtime.contract import (
    NOTE_LIMIT,
    NOTES_MAX,
    ContractError,
    JobConfig,
    Phase,
    Role,
    Sample,
    SampleSource,
    StepMetric,
    StopMode,
    TrainerMode,
    legible,
    sample_file,
)
from rljob_runtime.export.source import write_score
from rljob_runtime.files import folder_bytes, run_with_timeout
from rljob_runtime.outcomes import FencedError
from rljob_runtime.spool import step_metrics
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import STRENGTH, Spool, StepRecord
from rljob_runtime.spool.start_report import StartReport

STEPS_OF_MEDIAN = 1000
SIZE_SECONDS = 2.0
"""Limit for measuring a checkpoint, which blocks the trainer."""
SPOOL_SAMPLES = 32
"""Files of samples that the head pod keeps, where every byte counts against the node's disk; a volume keeps all."""
DELETE_SECONDS = 30.0
"""How long the trainer waits for a deletion, which then continues in the background."""
SCORE_SECONDS = 5.0
"""Limit for writing a step's score."""
DELETE_SECONDS_OF_A_STOP = 1.0
"""The same during the grace period of a stop. It is enough to move steps away, which is a rename."""

_installed: list[TrainingAttempt] = []


@dataclass
class TrainingAttempt:
    """One attempt in the trainer's process."""

    job: JobConfig
    attempt: int
    spool: Spool
    called: StopMode | None = field(default=None, init=False)
    """A stop requested by an actor call. Requests through the spool are read from there."""
    reported: StopMode | None = field(default=None, init=False)
    mirror: Mirror = field(init=False)
    start: StartReport = field(init=False)
    """Reports what the start is doing, until the first step is recorded."""
    keep: int | None = field(default=None, init=False)
    """Number of newest complete checkpoints to keep in the folder; None keeps all."""
    split: dict[str, int | None] = field(default_factory=dict, init=False)
    """Megatron's parallelism of the model; empty for other engines."""
    data: DataIdentity | None = field(default=None, init=False)
    """The training data, once it was read; None for a run that only evaluates."""
    _deleting: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Held during a deletion."""
    _whole: set[int] = field(default_factory=set, init=False)
    """Steps whose parts were verified; used only by the deletion."""
    _first_step: int | None = field(default=None, init=False)
    _step_begun: float | None = field(default=None, init=False)
    _last_step: int | None = field(default=None, init=False)
    """The last one that was recorded: a command may record every tenth."""
    _step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_OF_MEDIAN), init=False)
    _record_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_OF_MEDIAN), init=False)
    _rollout_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_OF_MEDIAN), init=False)
    _waits: list[tuple[float, float]] = field(default_factory=list, init=False)
    """Seconds of the last steps, and those of them that a trainer that stands apart waits."""
    _unpublished: tuple[int, float, float | None] | None = field(default=None, init=False)
    """Step, duration and time of the end of a save that verl's tracker does not name yet."""
    _behind: tuple[int, Mapping[str, float] | None] | None = field(default=None, init=False)
    """A step that is saved while the run continues, and its metrics once they are known."""
    _interval: int | None = field(default=None, init=False)
    """Steps between checkpoints, as reported last."""
    _saved_step: int | None = field(default=None, init=False)
    """The last step that was reported as saved."""

    def __post_init__(self) -> None:
        """Open the attempt's folder on the log volume."""
        self.mirror = Mirror(self.job, self.attempt)
        self.start = StartReport(self.spool, self.attempt)

    def request_stop(self, mode: StopMode) -> None:
        """Record a stop requested by an actor call."""
        if self.called is None or STRENGTH[mode] > STRENGTH[self.called]:
            self.called = mode

    def stop_mode(self) -> StopMode | None:
        """Return the requested stop mode, or None. The first request sets the phase to Stopping."""
        request = self.spool.stop_request(self.attempt)
        asked = [mode for mode in (self.called, request.mode if request else None) if mode is not None]
        mode = max(asked, key=STRENGTH.__getitem__, default=None)
        if mode is not None and self.reported is None:
            self.reported = mode
            with contextlib.suppress(OSError):  # the save matters more than the phase
                self.spool.update_progress(phase=Phase.STOPPING)
        return mode

    def note(self, text: str) -> None:
        """Report what people should know although the attempt continues. Further notes are only in the log."""
        print(f"rljob: {text}", file=sys.stderr, flush=True)  # noqa: T201
        text = legible(" ".join(text.split()))
        text = text if len(text) <= NOTE_LIMIT else f"{text[: NOTE_LIMIT - 1]}…"
        with contextlib.suppress(OSError, ContractError):  # the run matters more than a note
            progress = self.spool.progress()
            if progress is not None and text not in progress.notes and len(progress.notes) < NOTES_MAX:
                self.spool.update_progress(notes=(*progress.notes, text))

    def count_replicas(self, serving: int, wanted: int) -> None:
        """Report how many replicas generate, of a rollout with workers of its own."""
        with contextlib.suppress(OSError, ContractError):  # as a note
            self.spool.update_progress(replicas_serving=serving, replicas_wanted=wanted)

    @property
    def checkpoint_folder(self) -> Path | None:
        """Folder of the job's checkpoints; None if the job keeps none."""
        return Path(self.job.checkpoint_path) if self.job.checkpoint_path else None

    def check_owner(self) -> None:
        """Raise FencedError if the checkpoint folder has another owner."""
        if self.checkpoint_folder is not None:
            claims.check(self.checkpoint_folder, claims.Owner.of(self.job, self.attempt))

    def clear(self, step: int) -> None:
        """Prepare the folder for a save of `step`. Raises FencedError if the folder has another owner."""
        self.check_owner()
        if self.checkpoint_folder is not None:
            saved_steps.retire(self.checkpoint_folder, step, self.check_owner)
            # Also before the save: remains of an interrupted save may occupy the space that this one needs.
            self._drop(self.checkpoint_folder, step - 1)

    def _drop(self, folder: Path, last: int) -> None:
        """Delete the steps up to `last` beyond `keep`. A failing volume costs space, but never ends the run.

        One deletion runs at a time, in the background: on a hanging volume they would accumulate. A process that has
        lost the folder deletes nothing; the trainer detects the loss when it saves.
        """

        def drop() -> None:
            try:
                self._move_away(folder, last)
                saved_steps.delete_retired(folder)
            except FencedError as error:
                print(f"rljob: old checkpoints in {folder} were not deleted: {error}", file=sys.stderr, flush=True)  # noqa: T201
            finally:
                self._deleting.release()

        pending = f"old checkpoints in {folder} are not deleted yet"
        ends = time.monotonic() + (DELETE_SECONDS if self.stop_mode() is None else DELETE_SECONDS_OF_A_STOP)
        if self._deleting.acquire(timeout=max(0.0, ends - time.monotonic())):
            run_with_timeout(max(0.0, ends - time.monotonic()), drop, pending)
        else:
            print(f"rljob: {pending}: an earlier deletion is still running", file=sys.stderr, flush=True)  # noqa: T201

    def _move_away(self, folder: Path, last: int) -> None:
        try:
            for step in saved_steps.deletable_steps(folder, self.keep, last, self._whole) if self.keep else ():
                saved_steps.retire(folder, step, self.check_owner)
        except OSError as error:
            print(f"rljob: old checkpoints in {folder} were not deleted: {error}", file=sys.stderr, flush=True)  # noqa: T201

    def new_place(self) -> Path | None:
        """Return a new folder name for a save; None if the job keeps no checkpoints."""
        folder = self.checkpoint_folder
        return None if folder is None else saved_steps.new_place(folder, self.job.uid, self.attempt)

    def publish(self, step: int, made: Path) -> Path:
        """Rename a saved step to its final name, and point verl's tracker to it.

        Raises FencedError if the folder has another owner.
        """
        folder = made.parent.parent
        saved_steps.rename_step(folder, step, made, self.check_owner)
        claims.publish(folder, claims.Owner.of(self.job, self.attempt), step)
        return step_folder(folder, step)

    def saves_behind(self, step: int) -> None:
        """Expect the report of a save after further steps."""
        self._behind = (step, None)

    def saved(self, step: int, seconds: float, completed: float | None = None) -> None:
        """Report a checkpoint and delete old ones as soon as verl's tracker names it.

        After an asynchronous save, that happens in a later step.
        """
        self._unpublished = (step, seconds, completed)
        self._show_saved()

    def _show_saved(self) -> None:
        folder = self.checkpoint_folder
        if folder is None or self._unpublished is None or saved_steps.tracked_step(folder) != self._unpublished[0]:
            return
        (step, seconds, completed), self._unpublished = self._unpublished, None
        size = folder_bytes(step_folder(folder, step), SIZE_SECONDS)
        self.spool.update_progress(
            checkpoint_step=step,
            checkpoint_time=completed or time.time(),
            checkpoint_seconds=seconds,
            checkpoint_bytes=size,
        )
        length = "" if size is None else f", {size} bytes"
        print(f"rljob: step {step} is saved in {step_folder(folder, step)}: {seconds:.1f} s{length}", flush=True)  # noqa: T201
        self._drop(folder, step)
        self._saved_step = step
        if self._behind is not None and self._behind[0] == step and self._behind[1] is not None:
            self._write_score(step, self._behind[1])
            self._behind = None

    def resumed(self, step: int) -> None:
        """Report the step that was loaded. It counts as a checkpoint of this job only in the job's own folder."""
        shown: dict[str, Any] = {"resumed_from_step": step}
        if step > 0:
            shown["step"] = step
        folder = self.checkpoint_folder
        if folder is not None and saved_steps.is_complete(made := step_folder(folder, step)):
            shown |= {
                "checkpoint_step": step,
                "checkpoint_time": saved_steps.saved_time(made),
                "checkpoint_bytes": folder_bytes(made, SIZE_SECONDS),
            }
        self.spool.update_progress(**shown)

    @property
    def step_seconds(self) -> float | None:
        """The median over the last steps, from the start of a step to its record, which includes saves."""
        return statistics.median(self._step_seconds) if self._step_seconds else None

    @property
    def record_seconds(self) -> float | None:
        """The median time between two records, if the trainer does not record every step."""
        if not self._record_seconds or (median := statistics.median(self._record_seconds)) == self.step_seconds:
            return None
        return median

    def show_interval(self, steps: int) -> None:
        """Report after how many steps the next checkpoint is saved."""
        if steps != self._interval:
            self._interval = steps
            with contextlib.suppress(OSError):  # as the phase
                self.spool.update_progress(save_every_steps=steps)

    @property
    def has_begun(self) -> bool:
        """Whether the attempt has started a step. Until then the launcher may end it at any time."""
        return self._step_begun is not None

    def step_began(self) -> None:
        """Start the clock of a step."""
        if not self.has_begun:
            self.spool.note_begun(self.attempt)
        self._step_begun = time.monotonic()

    def own_metrics(
        self, metrics: Mapping[str, float], window: step_metrics.RolloutWindow, batch: step_metrics.Batch
    ) -> dict[str, float]:
        """Return our own metrics of a step, computed from verl's metrics, the replicas' times and the batch."""
        try:
            dies = self.job.dies_per_card
            figures = step_metrics.compute(metrics, window, batch, devices=self.job.devices, dies_per_card=dies)
            return figures | (self._trainer_metrics(metrics) if self.job.mode is TrainerMode.SEPARATE_ASYNC else {})
        except Exception as error:  # noqa: BLE001 - a failure to compute metrics must not end the training
            print(f"rljob: cannot compute this step's own metrics: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
            return {}

    def _trainer_metrics(self, metrics: Mapping[str, float]) -> dict[str, float]:
        seconds = (metrics[StepMetric.STEP_SECONDS.value], metrics[step_metrics.WAIT_SECONDS])
        self._waits = [*self._waits, seconds][-step_metrics.WAIT_STEPS :]
        devices = self.job.devices_of(Role.TRAINER)
        return step_metrics.trainer_metrics(metrics, self._waits, devices=devices, dies_per_card=self.job.dies_per_card)

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a step's line and publish its metrics."""
        record = StepRecord(step=step, time=time.time(), metrics=metrics)
        self.spool.append_step(self.attempt, record)
        self.start.finish()
        self._first_step = step if self._first_step is None else self._first_step
        if self._step_begun is not None:
            made = 1 if self._last_step is None else max(step - self._last_step, 1)
            self._record_seconds.append(time.monotonic() - self._step_begun)
            self._step_seconds.append(self._record_seconds[-1] / made)
        self._last_step = step
        is_sync = self.job.mode is TrainerMode.SYNC
        if (rollout := metrics.get(step_metrics.ROLLOUT_SECONDS if is_sync else step_metrics.WAIT_SECONDS)) is not None:
            self._rollout_seconds.append(rollout)
        if self._behind is not None and self._behind[0] == step:
            self._behind = (step, metrics)
        self._show_saved()
        self._write_score(step, metrics)
        finite = functools.partial(_finite, metrics)
        self.spool.update_progress(
            phase=Phase.STOPPING if self.reported else Phase.TRAINING,
            step=step,
            reward=finite("critic/score/mean"),
            response_tokens_mean=finite("response_length/mean"),
            tokens_per_second_per_card=finite(step_metrics.STEP_TPS_PER_CARD),
            first_dp_idle_ratio=finite(step_metrics.FIRST_DP_IDLE),
            cluster_idle_ratio=finite(step_metrics.CLUSTER_IDLE),
            step_seconds=finite("timing_s/step"),
            step_time=record.time,
            first_step=self._first_step,
            median_step_seconds=self.step_seconds,
            record_seconds=self.record_seconds,
            median_rollout_seconds=statistics.median(self._rollout_seconds) if self._rollout_seconds else None,
        )
        self.mirror.append_step(record)

    def _write_score(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the score of a step that was saved beside it, for `export.when: Best`. The run never waits for it."""
        folder = self.checkpoint_folder
        if folder is None or self._saved_step != step:
            return
        reward, validation = (_finite(metrics, key) for key in ("critic/score/mean", step_metrics.VALIDATION_SCORE))
        made, text = step_folder(folder, step), f"the score of step {step} was not written"
        run_with_timeout(SCORE_SECONDS, lambda: write_score(made, reward, validation), text)

    def record_lengths(self, lines: Iterable[str]) -> None:
        """Record the lengths of the step's responses, in place of those of earlier steps."""
        self.spool.write_lengths(self.attempt, lines)

    def record_samples(self, source: SampleSource, samples: Sequence[Sample]) -> None:
        """Record answers of one step. They never end the training."""
        if not samples:
            return
        name, data = sample_file(samples[0].step, source), b"".join(each.to_json() + b"\n" for each in samples)
        with contextlib.suppress(OSError):
            self.spool.write_samples(self.attempt, name, data, SPOOL_SAMPLES)
        self.mirror.write_samples(name, data)

    def record_validation(self, step: int, metrics: Mapping[str, float], *, only: bool) -> None:
        """Append the line of a validation before training. An evaluation-only run reports its score as the reward."""
        record = StepRecord(step=step, time=time.time(), metrics=metrics)
        self.spool.append_step(self.attempt, record)
        if only:
            self.spool.update_progress(reward=_finite(metrics, step_metrics.VALIDATION_SCORE))
        self.mirror.append_step(record)

    def close(self) -> None:
        """Wait, with a limit, until the last records are on the log volume: the process ends with the training."""
        self.mirror.drain()


def _finite(metrics: Mapping[str, float], key: str) -> float | None:
    """Return a metric if it is finite, because JSON has no NaN or infinity."""
    value = metrics.get(key)
    return value if value is not None and math.isfinite(value) else None


def install(attempt: TrainingAttempt) -> None:
    """Set the attempt of this process."""
    _installed[:] = [attempt]


def current() -> TrainingAttempt:
    """Return the attempt of this process."""
    if not _installed:
        raise RuntimeError("no attempt in this process: start the rljob trainer by rljob_runtime's task runner")
    return _installed[0]
