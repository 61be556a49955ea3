"""Exports: something is saved that can be exported, and the target outlives the pods."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.lifecycle import persistence_violations
from rljob.core.validation.pods import normal
from rljob.core.validation.violation import Check, Violation

EXPORT = "spec.export"


def export_violations(spec: RLJobSpec) -> Iterator[Violation]:
    """Yield what keeps an export from working."""
    export, checkpoint = spec.export, spec.checkpoint
    if export is None:
        return
    if spec.trainer.mode == "Evaluate":
        yield Violation(EXPORT, "trainer.mode is Evaluate, which trains nothing to export; remove it")
    elif checkpoint is None:
        yield Violation(EXPORT, "requires spec.checkpoint, from which exports are made; set path and everySteps")
    if (export.to.type == "Path") != (export.to.path is not None):
        yield Violation(
            f"{EXPORT}.to", f"type {export.to.type}: path requires type Path, and vice versa; set both or neither"
        )
    if export.to.path is None:
        return
    yield from persistence_violations(spec, f"{EXPORT}.to.path", export.to.path, fields.trainer_template(spec))
    if checkpoint is not None and normal(export.to.path) == normal(checkpoint.path):
        yield Violation(
            f"{EXPORT}.to.path",
            f"is checkpoint.path, whose folders have the same names; use {normal(checkpoint.path)}/export",
        )


CHECKS: tuple[Check, ...] = (export_violations,)
