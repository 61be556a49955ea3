"""Evaluations of checkpoints: something is saved that can be evaluated, and the jobs that do so would be accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import ValidationError

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.evaluation import evaluation_document

EVALUATION = "spec.evaluation"


def _something_can_be_evaluated(spec: RLJobSpec) -> Iterator[Violation]:
    if spec.evaluation is None:
        return
    if spec.trainer.mode == "Evaluate":
        yield Violation(EVALUATION, "trainer.mode is Evaluate, which saves nothing to evaluate; remove it")
    elif spec.checkpoint is None:
        yield Violation(EVALUATION, "requires spec.checkpoint, whose steps are evaluated; set path and everySteps")
    elif spec.auto_saves:
        every = "counts checkpoints of a fixed interval, and spec.checkpoint.everySteps is not set; set it"
        yield Violation(f"{EVALUATION}.every", every)


def job_spec(spec: RLJobSpec, accelerators: AcceleratorTable) -> RLJobSpec | Violation | None:
    """Return the spec of the jobs that evaluate checkpoints, or why it has none; None if nothing is evaluated.

    It is judged like any other; `spec` has no violations of its own.
    """
    if spec.evaluation is None:
        return None
    document = evaluation_document(spec, spec.evaluation, step=1)
    try:
        return RLJobSpec.model_validate_json(json.dumps(document), strict=True, context=accelerators)
    except ValidationError as error:
        # The folder of the model is longer than checkpoint.path.
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        return Violation(EVALUATION, f"its jobs would be refused: spec.{place}: {problem['msg']}")


def refused(found: Violation) -> Violation:
    """Return what is wrong with the jobs that evaluate checkpoints as a violation of the job that creates them."""
    return Violation(EVALUATION, f"its jobs would be refused: {found.field}: {found.message}")


CHECKS: tuple[Check, ...] = (_something_can_be_evaluated,)
