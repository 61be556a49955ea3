"""Settings that the API accepts and verl 0.9.1 does not support, as a table with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective, given
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.values import PACKING, has_delta_layers
from rljob.render.accelerators import facts_of
from rljob_runtime.planning import ascend, megatron


@dataclass(frozen=True)
class Limit:
    """A setting that verl does not support."""

    field: str
    applies: Callable[[RLJobSpec], bool]
    message: str
    """What is wrong and how to fix it."""
    case: str = "any job"
    """For which jobs, in the reference."""
    warns: bool = False
    """Whether the job runs all the same, so that the limit is only reported."""


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
    # verl chooses the layout of a batch by it (workers/engine/megatron/transformer_impl.py:1364). Padded batches run on
    # NPUs since verl's pull request 5768 (0.9.1, models/mcore/util.py:649-656). Models with gated delta layers need
    # them: see the next row.
    Limit(
        f"verl.overrides[{PACKING}]",
        lambda s: uses_megatron(s) and facts_of(s).is_npu and not _packs(s) and not has_delta_layers(s),
        "false, so each batch is padded to its longest sequence, which is slower; remove the override unless the model "
        "has gated delta layers (Qwen3.5, Qwen3-Next)",
        case="Megatron or MindSpeed, on NPUs",
        warns=True,
    ),
    # megatron/core/ssm/gated_delta_net.py:295 (0.16.1) raises NotImplementedError for packed sequences.
    Limit(
        f"verl.overrides[{PACKING}]",
        lambda s: uses_megatron(s) and _packs(s) and has_delta_layers(s),
        "true, but megatron-core 0.16.1 cannot pack sequences for the model's gated delta layers; set it to false",
        case="Megatron or MindSpeed",
    ),
)


def _packs(spec: RLJobSpec) -> bool:
    return effective(spec).value(PACKING) is not False


def _table_is_kept(spec: RLJobSpec) -> Iterator[Violation]:
    yield from (_violation(limit, spec) for limit in LIMITS if not limit.warns and limit.applies(spec))


def _doubtful(spec: RLJobSpec) -> Iterator[Violation]:
    """Report settings that have failed for others."""
    yield from (_violation(limit, spec) for limit in LIMITS if limit.warns and limit.applies(spec))


def _violation(limit: Limit, spec: RLJobSpec) -> Violation:
    """Name the override as it is spelt in the job."""
    key = limit.field.removeprefix("verl.overrides[").removesuffix("]")
    setting = effective(spec).setting(key)
    return Violation(setting.field if setting and setting.by_override else f"spec.{limit.field}", limit.message)


def _frameworks_know_the_keys(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron-Core, MindSpeed and vllm-ascend ignore unknown options, or fail on them after the start."""
    problems = dict.fromkeys(
        (setting.field, problem)
        for setting in given(spec)
        for unknown in (megatron.unknown_keys, ascend.unknown_options)
        for problem in unknown([setting.key]).values()
    )
    yield from (Violation(field, problem) for field, problem in problems)


CHECKS: tuple[Check, ...] = (_table_is_kept, _frameworks_know_the_keys)
WARNINGS: tuple[Check, ...] = (_doubtful,)
