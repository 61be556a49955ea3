"""The bound on what verl's profiler writes to the log volume, and the note that says where it is.

verl traces the steps of `global_profiler.steps` and has no bound of its own (0.9.1, trainer/ppo/v1/trainer_base.py,
_start_profiling).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rljob_runtime.files import folder_bytes

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rljob_runtime.training_attempt import TrainingAttempt

FOLDER_BYTES = 16 << 30
"""Sixteen traces of a rank and a step on an NPU. The first step is always traced, whatever it needs."""
SIZE_SECONDS = 2.0
"""Limit for measuring the folder, which blocks the trainer."""


def may_trace(config: DictConfig, run: TrainingAttempt, step: int) -> bool:
    """Return whether there is room for the traces of a step; note it otherwise. A folder that hangs gets no more."""
    folder = Path(config.global_profiler.save_path)
    if not folder.exists():
        return True
    size = folder_bytes(folder, SIZE_SECONDS)
    if size is not None and size < FOLDER_BYTES:
        return True
    seen = "could not be measured" if size is None else f"has {size >> 30} GiB of at most {FOLDER_BYTES >> 30}"
    run.note(f"step {step} and further steps are not profiled: {folder} {seen}")
    return False


def tell(config: DictConfig, run: TrainingAttempt) -> None:
    """Say where the traces are, in the same words after each step: a run has few notes."""
    steps = config.global_profiler.steps
    told = f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))}"
    run.note(f"traces of {told} are written to {config.global_profiler.save_path}")
