"""What the API can say and verl 0.9.1 does not do: told before anything is spent, in a table with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import MODEL
from rljob.launchers.verl.sizes import uses_megatron
from rljob_runtime.planning import ascend, megatron


@dataclass(frozen=True)
class Limit:
    """One thing that verl does not do."""

    field: str
    applies: Callable[[RLJobSpec], bool]
    message: str
    """What is wrong and what to do."""


LIMITS = (
    # McoreEngineConfig: gradient buffers are released together with the parameters (workers/config/engine.py).
    Limit(
        "trainer.offload.gradients",
        lambda s: (
            s.trainer.offload.gradients is not None and s.trainer.offload.gradients != s.trainer.offload.parameters
        ),
        "verl 0.9.1 has no switch of its own for gradients: Megatron releases them together with the weights; leave "
        "the field out, or set it as offload.parameters",
    ),
    Limit(
        f"verl.overrides[{MODEL}.use_remove_padding]",
        lambda s: uses_megatron(s) and s.verl.overrides.get(f"{MODEL}.use_remove_padding") is False,
        "false, but Megatron runs packed sequences only on Ascend (verl issue 5704); take the override out",
    ),
)


def refusals(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    """Give field and message of everything that verl would not do."""
    yield from ((limit.field, limit.message) for limit in LIMITS if limit.applies(spec))
    overrides = spec.verl.overrides
    for key, problem in (megatron.unknown_keys(overrides) | ascend.unknown_options(overrides)).items():
        yield f"verl.overrides[{key}]", problem
