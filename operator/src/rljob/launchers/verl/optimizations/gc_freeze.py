"""Whether engines and trainer freeze what lives after their start."""

from __future__ import annotations

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.launchers.verl.optimizations.switch import DISABLED


def decide(spec: RLJobSpec) -> Answer:
    """Return whether they do."""
    if spec.optimizations.gc_freeze is Switch.DISABLED:
        return Answer(DISABLED, SET)
    return Answer(DISABLED, "the runtime has no hook for it in vLLM's engine yet")
