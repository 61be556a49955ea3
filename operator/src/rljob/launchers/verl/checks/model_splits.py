"""Does the model's architecture agree with the parallel sizes and lengths? And does the job state it once?

The rules are `rljob_runtime.planning.model_splits`; the launcher applies them again to the model's own config.json.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import contradictions, model_facts, shapeless, unreadable
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.job import overrides
from rljob_runtime.planning.findings import Finding
from rljob_runtime.planning.flattening import plain_keys
from rljob_runtime.planning.model_splits import judge
from rljob_runtime.planning.run_layout import read_layout


def _model_is_understood(spec: RLJobSpec) -> Iterator[Violation]:
    """An unknown name would silently disable the checks."""
    yield from (Violation(f"spec.{field}", message) for field, message in unreadable(spec))


def _model_is_stated_once(spec: RLJobSpec) -> Iterator[Violation]:
    """Two places that state one fact must agree, because every check uses one of them."""
    yield from (Violation(f"spec.{field}", message) for field, message in contradictions(spec))


def _model_can_be_split(spec: RLJobSpec) -> Iterator[Violation]:
    """The model's sizes are those that upstream divides by the parallel sizes."""
    yield from (Violation(f"spec.{one.field}", one.message) for one in _findings(spec) if one.refused)


def _model_may_not_fit(spec: RLJobSpec) -> Iterator[Violation]:
    """What may fail or silently cut responses is reported."""
    yield from (Violation(f"spec.{one.field}", one.message) for one in _findings(spec) if not one.refused)


def _family_is_not_known(spec: RLJobSpec) -> Iterator[Violation]:
    """Less is checked than the job seems to state."""
    yield from (Violation(f"spec.{field}", message) for field, message in shapeless(spec))


def _findings(spec: RLJobSpec) -> Iterator[Finding]:
    yield from judge(model_facts(spec), read_layout(plain_keys(overrides(spec))))


CHECKS: tuple[Check, ...] = (_model_is_understood, _model_is_stated_once, _model_can_be_split)
WARNINGS: tuple[Check, ...] = (_model_may_not_fit, _family_is_not_known)
