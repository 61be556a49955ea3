"""Whether the pass for old log-probabilities is skipped."""

from __future__ import annotations

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.launchers.verl.optimizations.switch import DISABLED
from rljob.launchers.verl.sizes import mini_batch


def decide(spec: RLJobSpec) -> Answer:
    """Return whether the pass is skipped."""
    asked, updates = spec.optimizations.skip_old_log_prob, -(-spec.trainer.global_batch_size // mini_batch(spec))
    if asked is Switch.DISABLED:
        return Answer(DISABLED, SET)
    if updates > 1:
        return Answer(DISABLED, f"{updates} updates of a batch: the ratio is not 1 after the first")
    return Answer(DISABLED, "one update of a batch makes the ratio 1, but the runtime cannot skip the pass yet")
