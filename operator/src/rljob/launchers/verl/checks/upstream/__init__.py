"""Settings on which the pinned releases of verl, Megatron-Core, MindSpeed, vllm-ascend and vLLM are known to fail.

Each row is a condition of upstream code with file and line; upstream/conditions has the table of all such
conditions, with a verdict on each that a spec reaches.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.checks.upstream import ascend, environment, megatron, mindspeed, training
from rljob.launchers.verl.checks.upstream.settings import Settings


def _upstream_accepts(spec: RLJobSpec) -> Iterator[Violation]:
    """A run that upstream refuses ends after its pods have started."""
    settings = Settings(spec)
    for table in (training.REFUSED, megatron.REFUSED, mindspeed.REFUSED, ascend.REFUSED):
        yield from table.judge(settings)
    yield from environment.variables_that_fail(settings)


def _upstream_has_no_doubts(spec: RLJobSpec) -> Iterator[Violation]:
    """What fails in some runs only, or what upstream would refuse if it checked, is reported."""
    settings = Settings(spec)
    yield from training.DOUBTS.judge(settings)
    yield from environment.variables_in_the_wrong_place(settings)


CHECKS: tuple[Check, ...] = (_upstream_accepts,)
WARNINGS: tuple[Check, ...] = (_upstream_has_no_doubts,)
