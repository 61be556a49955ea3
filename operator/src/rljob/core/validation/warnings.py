"""What is accepted and told: fields without effect, and settings that are allowed and doubtful.

Told by `rljob validate`, in the message of the condition Validated (reason ValidWithWarnings) and by one event.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import accelerator, hccl, topology
from rljob.core.validation.unimplemented import unimplemented_fields
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.checks import memory

WARNINGS: tuple[Check, ...] = (*accelerator.WARNINGS, *hccl.WARNINGS, *topology.WARNINGS, memory.memory_warnings)


def warnings_of(spec: RLJobSpec) -> tuple[Violation, ...]:
    """Give every warning about a spec whose class is known."""
    return (*unimplemented_fields(spec), *(warning for judge in WARNINGS for warning in judge(spec)))
