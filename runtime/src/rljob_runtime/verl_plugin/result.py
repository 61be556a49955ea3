"""How a training ended, as the trainer's process tells the launcher: the task runner returns it through Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rljob_runtime.contract import StopMode
from rljob_runtime.stop_rules import Match


class Ended(Protocol):
    """What is asked of a trainer whose loop has ended."""

    global_steps: int
    total_training_steps: int
    stopped_by: StopMode | None
    abandoned_step: int | None
    matched: Match | None
    evaluation: dict[str, float] | None


@dataclass(frozen=True)
class Result:
    """How the trainer's loop ended."""

    step: int
    stopped_by: StopMode | None
    matched: Match | None = None
    """The stop rule that ended it."""
    evaluation: dict[str, float] | None = None
    """Validation metrics of a run that only evaluates."""
    abandoned_step: int | None = None
    """The step after `step` whose rollout was given up."""

    @classmethod
    def of(cls, trainer: Ended) -> Result:
        """Ask a trainer."""
        # After its last step verl has counted one further; after a stop or a resume at the end it may not have.
        step = min(trainer.global_steps, trainer.total_training_steps)
        return cls(step, trainer.stopped_by, trainer.matched, trainer.evaluation, trainer.abandoned_step)
