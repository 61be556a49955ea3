"""How a trainer is asked to stop where `stop.mode` is Auto: by the duration of its steps, rollouts and saves.

AfterStep loses nothing and waits for a whole step at worst. AbortRollout discards the rollout in progress and saves the
step before it; if the step is already being trained, it waits for its end. Whatever the mode, work that is not saved
when the grace period ends is lost back to the last checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rljob.api.lifecycle import Stop
from rljob.api.status import CheckpointStatus, Progress
from rljob.render.stopping import MODES
from rljob_runtime.contract import StopMode

DOMINATES = 0.5
"""Share of a step above which a stop most likely arrives during the rollout."""


@dataclass(frozen=True)
class Choice:
    """A mode and its reason."""

    mode: StopMode
    why: str


def choose_mode(stop: Stop, progress: Progress | None, checkpoint: CheckpointStatus | None) -> Choice:
    """Choose by the last known metrics of the job; those of an earlier attempt serve as well."""
    if stop.mode != "Auto":
        return Choice(MODES[stop.mode], f"stop.mode is {stop.mode}")
    step = _seconds(progress.median_step_seconds or progress.step_seconds) if progress else None
    if progress is None or step is None:
        return Choice(StopMode.AFTER_STEP, "no step has been measured yet")
    rollout, save = _seconds(progress.median_rollout_seconds), _seconds(checkpoint.seconds) if checkpoint else None
    grace, saving = stop.grace_seconds, save or 0.0
    takes = f"a step takes {step:.0f} s" + (f" and a save {save:.0f} s" if save is not None else "")
    if step + saving <= grace:
        return Choice(StopMode.AFTER_STEP, f"{takes}: both fit stop.graceSeconds {grace}")
    if rollout is not None and rollout >= DOMINATES * step and saving <= grace:
        return Choice(
            StopMode.ABORT_ROLLOUT,
            f"{takes}: more than stop.graceSeconds {grace}, but {rollout:.0f} s of it are rollout, which is discarded",
        )
    return Choice(
        StopMode.AFTER_STEP,
        f"{takes}: more than stop.graceSeconds {grace}, and discarding the rollout would not help; "
        "work that is not saved in time is repeated from the last checkpoint",
    )


def _seconds(text: str | None) -> float | None:
    seconds = float(text) if text is not None else 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else None
