"""The order of prompts in an epoch."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Answer

DEFAULT, LENGTH_AWARE = "Default", "LengthAware"


def decide(spec: RLJobSpec) -> Answer:
    """Return the order."""
    if spec.optimizations.prompt_order == LENGTH_AWARE:
        return Answer(DEFAULT, "the runtime's sampler cannot order by length yet")
    return Answer(DEFAULT, "verl's order")
