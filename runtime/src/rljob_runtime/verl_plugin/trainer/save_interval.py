"""How often a job without `checkpoint.everySteps` saves: as often as costs it least.

If a save costs C seconds and a loss is to be expected every M seconds, the least is lost with sqrt(2 C M) seconds of
work between two saves (Young, CACM 17(9), 1974, doi:10.1145/361147.361115). C and the length of a step are measured.
M is what other clusters have seen, and what this job has: each of its losses makes the next more likely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rljob_runtime.contract import AttemptVariable

PRIOR_DEVICE_SECONDS = 50_000 * 3600
"""Device-seconds for each loss where nothing is known: 16,384 GPUs were interrupted unexpectedly 419 times in 54 days
(The Llama 3 Herd of Models, arXiv:2407.21783, section 3.3.4)."""
FIRST_STEPS = 5
"""Steps before the first save, which measures what a save costs."""
LONGEST_SECONDS = 3600.0
"""No more work is at risk, whatever is expected: where every step takes an hour, every step is saved."""


def loss_seconds(devices: int, environ: Mapping[str, str]) -> float:
    """Return the seconds between two losses to expect, from what the operator knows of the job (AttemptVariable)."""
    losses, held = (
        float(environ.get(name) or 0) for name in (AttemptVariable.LOSSES, AttemptVariable.HELD_DEVICE_SECONDS)
    )
    return (PRIOR_DEVICE_SECONDS + held) / (1 + losses) / devices


@dataclass
class SaveInterval:
    """When to save next."""

    loss_seconds: float
    last: int | None = None
    """The step that was saved last; before, the one that the attempt starts from, once it is known."""
    cost: float | None = None
    """Seconds for which the last save stopped the run."""
    shortest: float = 0.0
    """Seconds that the ranks needed to write the last save while the run continued: two saves never overlap."""

    def saved(self, step: int, cost: float) -> None:
        """Note a save and the seconds for which the run has waited for it."""
        self.last, self.cost = step, cost

    def written(self, seconds: float) -> None:
        """Note how long the ranks needed in all to write a save, while the run continued."""
        self.shortest = seconds

    def steps(self, step_seconds: float | None) -> int:
        """Return the steps between two saves."""
        if self.cost is None or not step_seconds:
            return FIRST_STEPS
        wanted = min(math.sqrt(2 * self.cost * self.loss_seconds), LONGEST_SECONDS)
        return max(round(wanted / step_seconds), math.ceil(self.shortest / step_seconds), 1)

    def is_due(self, step: int, step_seconds: float | None) -> bool:
        """Return whether to save after a step."""
        self.last = step - 1 if self.last is None else self.last
        return step - self.last >= self.steps(step_seconds)
