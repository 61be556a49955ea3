"""How a training ended. The task runner returns it from the trainer's process through Ray."""

from __future__ import annotations

from typing import Protocol

from rljob_runtime.contract import StopMode
from rljob_runtime.spool.stop_rules import Match
from rljob_runtime.trainer import Result


class Ended(Protocol):
    """Attributes of a trainer whose loop has ended."""

    global_steps: int
    total_training_steps: int
    stopped_by: StopMode | None
    abandoned_step: int | None
    matched: Match | None
    evaluation: dict[str, float] | None


def result_of(trainer: Ended) -> Result:
    """Return how a trainer's loop ended."""
    # After its last step, verl has incremented the counter; after a stop or a resume at the end, it may not have.
    step = min(trainer.global_steps, trainer.total_training_steps)
    return Result(step, trainer.stopped_by, trainer.matched, trainer.evaluation, trainer.abandoned_step)
