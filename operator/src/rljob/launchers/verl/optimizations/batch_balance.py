"""Whether samples are balanced over ranks and updates."""

from __future__ import annotations

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.launchers.verl.optimizations.switch import DISABLED


def decide(spec: RLJobSpec) -> Answer:
    """Return whether the runtime balances them."""
    if spec.optimizations.batch_balance is Switch.DISABLED:
        return Answer(DISABLED, SET)
    return Answer(DISABLED, "the runtime balances only the whole step yet, as verl does")
