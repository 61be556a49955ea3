"""What is accepted and told: fields without effect, and settings that are allowed and doubtful.

Told by `rljob validate`, in the message of the condition Validated (reason ValidWithWarnings) and by one event.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.policies import hardware, hccl, memory, topology
from rljob.core.policies.unacted import warnings_of
from rljob.core.policies.violation import Check, Violation

CAUTIONS: tuple[Check, ...] = (*hardware.CAUTIONS, *hccl.CAUTIONS, *topology.CAUTIONS, memory.memory_warnings)


def cautions_of(spec: RLJobSpec) -> tuple[Violation, ...]:
    """Give every warning about a spec whose class is known."""
    return (*warnings_of(spec), *(caution for judge in CAUTIONS for caution in judge(spec)))
