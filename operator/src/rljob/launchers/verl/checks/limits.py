"""Settings that the API accepts and verl 0.9.1 does not support, as a table with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.rows import MODEL
from rljob.launchers.verl.sizes import uses_megatron
from rljob_runtime.planning import ascend, megatron


@dataclass(frozen=True)
class Limit:
    """A setting that verl does not support."""

    field: str
    applies: Callable[[RLJobSpec], bool]
    message: str
    """What is wrong and how to fix it."""


LIMITS = (
    # McoreEngineConfig: gradient buffers are released together with the parameters (workers/config/engine.py).
    Limit(
        "trainer.offload.gradients",
        lambda s: (
            s.trainer.offload.gradients is not None and s.trainer.offload.gradients != s.trainer.offload.parameters
        ),
        "verl 0.9.1 has no separate switch for gradients: Megatron releases them together with the weights; remove "
        "the field, or set it to the value of offload.parameters",
    ),
    Limit(
        f"verl.overrides[{MODEL}.use_remove_padding]",
        lambda s: uses_megatron(s) and s.verl.overrides.get(f"{MODEL}.use_remove_padding") is False,
        "false, but on Ascend Megatron supports packed sequences only (verl issue 5704); remove the override",
    ),
)


def _table_is_kept(spec: RLJobSpec) -> Iterator[Violation]:
    yield from (Violation(f"spec.{limit.field}", limit.message) for limit in LIMITS if limit.applies(spec))


def _frameworks_know_the_keys(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron-Core, MindSpeed and vllm-ascend ignore unknown options, or fail on them after the start."""
    overrides = spec.verl.overrides
    for key, problem in (megatron.unknown_keys(overrides) | ascend.unknown_options(overrides)).items():
        yield Violation(f"spec.verl.overrides[{key}]", problem)


CHECKS: tuple[Check, ...] = (_table_is_kept, _frameworks_know_the_keys)
