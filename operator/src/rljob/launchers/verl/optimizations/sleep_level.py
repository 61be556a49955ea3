"""What vLLM does with its weights during training."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Answer

KEEP, DISCARD = 1, 2


def decide(spec: RLJobSpec) -> Answer:
    """Return the level of sleep."""
    if spec.optimizations.sleep_level == DISCARD:
        return Answer(str(KEEP), "the runtime cannot choose the level yet")
    return Answer(str(KEEP), "the weights stay in host memory")
