"""What is accepted and told: fields without effect, and settings that are allowed and doubtful.

Told by `rljob validate`, in the message of the condition Validated (reason ValidWithWarnings) and by one event.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import Launcher
from rljob.core.validation import accelerator, hccl, topology
from rljob.core.validation.unimplemented import unimplemented_fields
from rljob.core.validation.violation import Check, Violation

WARNINGS: tuple[Check, ...] = (*accelerator.WARNINGS, *hccl.WARNINGS, *topology.WARNINGS)


def warnings_of(spec: RLJobSpec, launcher: Launcher) -> tuple[Violation, ...]:
    """Return every warning about a spec whose class is known."""
    found = (warning for check in (*WARNINGS, *launcher.warnings) for warning in check(spec))
    return (*unimplemented_fields(spec), *found)
