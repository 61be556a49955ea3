"""Whether the pass for old log-probabilities is skipped.

The rules are the runtime's (`rljob_runtime.planning.on_policy`), whose trainer applies them again to the composed
configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.asynchronous import with_mode
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.optimizations.switch import DISABLED, ENABLED
from rljob.launchers.verl.rows import ASYNC
from rljob_runtime.planning.on_policy import Obstacle, obstacles

FIELD = "spec.optimizations.skipOldLogProb"
SAME = "one update of a batch makes the ratio 1"
OLDER = "responses come from older weights: the ratio is not 1"


def decide(spec: RLJobSpec) -> Answer:
    """Return whether the pass is skipped."""
    asked = spec.optimizations.skip_old_log_prob
    if asked is Switch.DISABLED:
        return Answer(DISABLED, SET)
    if spec.trainer.mode == "Evaluate":
        return Answer(DISABLED, "trainer.mode Evaluate trains nothing")
    if ASYNC.holds(spec):
        return Answer(DISABLED, f"{with_mode(spec)} {OLDER}")
    if (found := next(_obstacles(spec), None)) is not None:
        return Answer(DISABLED, found.reason)
    return Answer(ENABLED, SET if asked is Switch.ENABLED else SAME)


def check(spec: RLJobSpec) -> Iterator[Violation]:
    """A pass that is needed cannot be skipped."""
    if spec.optimizations.skip_old_log_prob is not Switch.ENABLED or spec.trainer.mode == "Evaluate":
        return
    if ASYNC.holds(spec):
        yield Violation(FIELD, f"Enabled, but {with_mode(spec)} {OLDER}; set it to Auto, or trainer.mode to Sync")
    else:
        for one in _obstacles(spec):
            field = effective(spec).field(one.key)
            yield Violation(FIELD, f"{one.reason} ({field}); {one.fix}, or set {FIELD} to Auto")


def _obstacles(spec: RLJobSpec) -> Iterator[Obstacle]:
    seen = effective(spec)

    def below(section: str) -> Iterable[tuple[str, object]]:
        return ((setting.key, setting.value) for setting in seen.below(section))

    return obstacles(seen.value, below)
