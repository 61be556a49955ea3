"""How a trainer is asked to stop where `stop.mode` is Auto: by how long its steps, rollouts and saves take.

AfterStep loses nothing and waits for a whole step at worst. AbortRollout gives up the generation under way and saves
the step before it; asked while the step is already trained, it waits for the rest of it. What is not saved when the
grace ends is lost back to the last checkpoint, whatever the mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rljob.api.lifecycle import Stop
from rljob.api.status import CheckpointStatus, Progress
from rljob.render.stopping import MODES
from rljob_runtime.contract import StopMode

DOMINATES = 0.5
"""Share of a step from which on a stop most likely meets the rollout."""


@dataclass(frozen=True)
class Choice:
    """A mode, and why."""

    mode: StopMode
    why: str


def choose_mode(stop: Stop, progress: Progress | None, checkpoint: CheckpointStatus | None) -> Choice:
    """Choose by the last figures that are known of the job; those of an earlier attempt are as good."""
    if stop.mode != "Auto":
        return Choice(MODES[stop.mode], f"stop.mode is {stop.mode}")
    step = _seconds(progress.median_step_seconds or progress.step_seconds) if progress else None
    if progress is None or step is None:
        return Choice(StopMode.AFTER_STEP, "no step was measured yet")
    rollout, save = _seconds(progress.median_rollout_seconds), _seconds(checkpoint.seconds) if checkpoint else None
    grace, saving = stop.grace_seconds, save or 0.0
    takes = f"a step takes {step:.0f} s" + (f" and a save {save:.0f} s" if save is not None else "")
    if step + saving <= grace:
        return Choice(StopMode.AFTER_STEP, f"{takes}: both fit stop.graceSeconds {grace}")
    if rollout is not None and rollout >= DOMINATES * step and saving <= grace:
        return Choice(
            StopMode.ABORT_ROLLOUT,
            f"{takes}: more than stop.graceSeconds {grace}, but {rollout:.0f} s of it are rollout, which is given up",
        )
    return Choice(
        StopMode.AFTER_STEP,
        f"{takes}: more than stop.graceSeconds {grace}, and giving up the rollout would not help; "
        "what is not saved in time is done again from the last checkpoint",
    )


def _seconds(text: str | None) -> float | None:
    seconds = float(text) if text is not None else 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else None
