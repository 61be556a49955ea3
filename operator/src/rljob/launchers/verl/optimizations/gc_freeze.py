"""Whether engines and trainer freeze what lives after their start."""

from __future__ import annotations

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.launchers.verl.optimizations.switch import ENABLED


def decide(spec: RLJobSpec) -> Answer:
    """Return whether they do."""
    asked = spec.optimizations.gc_freeze
    if asked is not Switch.AUTO:
        return Answer(asked.value, SET)
    return Answer(ENABLED, "what a process creates during its start lives as long as the process")
