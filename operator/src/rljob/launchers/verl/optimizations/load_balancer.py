"""How requests are distributed over the replicas."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer

LATE_BINDING, REQUEST_COUNT = "LateBinding", "RequestCount"


def decide(spec: RLJobSpec) -> Answer:
    """Return the way."""
    if spec.optimizations.load_balancer == REQUEST_COUNT:
        return Answer(REQUEST_COUNT, SET)
    return Answer(REQUEST_COUNT, "the runtime's router cannot hold requests back yet")
