"""When a run evaluates and saves.

verl 0.9.1 does both after every interval and, whatever the interval is, after the last step
(verl/trainer/ppo/v1/trainer_base.py:468,481-485,491-493). An interval longer than the run is therefore no mistake.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation


def _first_save_is_the_last(spec: RLJobSpec) -> Iterator[Violation]:
    """A run that is interrupted before its only save has nothing to resume from."""
    every, steps = spec.checkpoint.every_steps if spec.checkpoint else None, spec.trainer.steps
    if every is not None and every >= steps > 1 and spec.trainer.mode != "Evaluate":
        yield Violation(
            "spec.checkpoint.everySteps",
            f"{every} with trainer.steps {steps}: the only checkpoint is that of the last step, and a "
            "restart before it begins at step 0; lower it",
        )


WARNINGS: tuple[Check, ...] = (_first_save_is_the_last,)
