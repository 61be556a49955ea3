"""What lowers the memory of a phase, as rows: a message names only what the job can still change.

A row that another check would refuse, such as a tensor size under FSDP2, or that changes nothing, such as offloading a
reference that there is not, applies to no job. The effects are those of `rljob_runtime.planning.memory`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.memory import BUCKET_KEY
from rljob.launchers.verl.sizes import micro_batch, uses_megatron
from rljob_runtime.planning.memory import OF_THE_ROLLOUT, MemoryPlan, PhaseName, Recompute, Trainer

GENERATE, LOG_PROBABILITIES, UPDATE, TRANSFER, RECEIVE = PhaseName
OF_THE_TRAINER = frozenset(PhaseName) - OF_THE_ROLLOUT
PASSES = frozenset({LOG_PROBABILITIES, UPDATE})
"""Phases in which the trainer computes; the others hold only what rests on the die."""
RESTING = frozenset({LOG_PROBABILITIES, TRANSFER})
"""Phases in which the parts that trainer.offload moves to the host are not needed; on shared dies GENERATE is one."""


@dataclass(frozen=True)
class Situation:
    """A job and its estimate."""

    spec: RLJobSpec
    plan: MemoryPlan

    @property
    def trainer(self) -> Trainer:
        """The layout of the trainer."""
        return self.plan.trainer

    @property
    def apart(self) -> bool:
        """Whether trainer and rollout have dies of their own."""
        return self.plan.apart

    @property
    def megatron(self) -> bool:
        """Whether Megatron-Core trains."""
        return uses_megatron(self.spec)

    @property
    def has_experts(self) -> bool:
        """Whether an expert size would split anything."""
        return self.plan.shape.experts is not None

    @property
    def weights_rest(self) -> bool:
        """Whether weights and gradients stay on the die in phases that do not need them."""
        return not self.trainer.offload_weights

    @property
    def optimizer_rests(self) -> bool:
        """Whether the optimizer state stays on the die in phases that do not need it."""
        return not (self.trainer.offload_optimizer or self.trainer.host_optimizer)

    @property
    def reference_rests(self) -> bool:
        """Whether the reference stays on the die in phases that do not need it."""
        return self.trainer.reference and not self.trainer.offload_reference

    @property
    def samples(self) -> int:
        """Samples of a pass; 1 where a pass is bounded in tokens."""
        return micro_batch(self.spec) if self.spec.trainer.max_tokens_per_device is None else 1

    @property
    def tokens_are_least(self) -> bool:
        """Whether a lower bound in tokens could not hold a sequence."""
        sizes, tokens = self.spec.trainer.parallelism, self.spec.trainer.max_tokens_per_device
        group = sizes.context if self.megatron else sizes.sequence
        return tokens is not None and (tokens - 1) * group < self.plan.sequence_tokens


@dataclass(frozen=True)
class Fix:
    """A change that lowers the memory of some phases."""

    phases: frozenset[PhaseName]
    applies: Callable[[Situation], bool]
    text: str


FIXES = (
    Fix(frozenset({GENERATE}), lambda s: s.plan.kv_bytes > s.plan.kv_bytes_needed, "lower it"),
    Fix(
        PASSES,
        lambda s: s.samples > 1 and s.spec.trainer.micro_batch_size_per_device is None,
        "set trainer.microBatchSizePerDevice (else a pass is a device's whole share of a batch)",
    ),
    Fix(
        PASSES,
        lambda s: s.samples > 1 and s.spec.trainer.micro_batch_size_per_device is not None,
        "lower trainer.microBatchSizePerDevice",
    ),
    Fix(
        PASSES,
        lambda s: s.spec.trainer.max_tokens_per_device is not None and not s.tokens_are_least,
        "lower trainer.maxTokensPerDevice",
    ),
    # With a bound in tokens, Ulysses only allows a lower one; with a share of the batch, it makes the share larger.
    Fix(
        PASSES,
        lambda s: not s.megatron and s.tokens_are_least,
        "raise trainer.parallelism.sequence and lower trainer.maxTokensPerDevice",
    ),
    Fix(
        PASSES,
        lambda s: (
            not s.megatron
            and s.spec.trainer.max_tokens_per_device is None
            and s.spec.trainer.micro_batch_size_per_device is not None
        ),
        "raise trainer.parallelism.sequence",
    ),
    Fix(PASSES, lambda s: s.megatron and not s.has_experts, "raise tensor, pipeline or context"),
    Fix(PASSES, lambda s: s.megatron and s.has_experts, "raise tensor, pipeline, context or expert"),
    Fix(frozenset({TRANSFER}), lambda s: not s.apart and not s.has_experts, "raise tensor"),
    Fix(frozenset({TRANSFER}), lambda s: not s.apart and s.has_experts, "raise tensor or expert"),
    Fix(frozenset({TRANSFER, RECEIVE}), lambda s: s.apart, f"lower verl.overrides[{BUCKET_KEY}]"),
    Fix(RESTING, lambda s: s.weights_rest, "set trainer.offload.parameters"),
    Fix(frozenset({GENERATE}), lambda s: not s.apart and s.weights_rest, "set trainer.offload.parameters"),
    Fix(RESTING, lambda s: s.optimizer_rests, "set trainer.offload.optimizer"),
    Fix(frozenset({GENERATE}), lambda s: not s.apart and s.optimizer_rests, "set trainer.offload.optimizer"),
    # The actor needs its own parts in an update; those of the critic can leave.
    Fix(frozenset({UPDATE}), lambda s: s.trainer.critic and s.weights_rest, "set trainer.offload.parameters"),
    Fix(frozenset({UPDATE}), lambda s: s.trainer.critic and s.optimizer_rests, "set trainer.offload.optimizer"),
    Fix(OF_THE_TRAINER, lambda s: s.reference_rests, "set trainer.offload.reference"),
    Fix(frozenset({GENERATE}), lambda s: not s.apart and s.reference_rests, "set trainer.offload.reference"),
    Fix(OF_THE_ROLLOUT, lambda s: not s.has_experts, "raise rollout.parallelism.tensor"),
    Fix(
        OF_THE_ROLLOUT,
        lambda s: s.has_experts,
        "raise rollout.parallelism.tensor or expert",
    ),
    Fix(
        frozenset({UPDATE}),
        lambda s: s.megatron and s.trainer.recompute is Recompute.NONE,
        "recompute layers (recompute_granularity)",
    ),
    Fix(
        frozenset({UPDATE}),
        lambda s: s.megatron and not s.trainer.host_optimizer,
        "keep the optimizer on the host (swap_optimizer with use_distributed_optimizer)",
    ),
    # FSDP2 shards weights, gradients and optimizer over all devices.
    Fix(PASSES, lambda s: not s.megatron, "add nodes"),
)


def fixes(phase: PhaseName, spec: RLJobSpec, plan: MemoryPlan) -> str:
    """Return what the job can change about a phase, as the end of a sentence."""
    situation = Situation(spec, plan)
    *others, last = [row.text for row in FIXES if phase in row.phases and row.applies(situation)]
    return f"{', '.join(others)}, or {last}" if others else last
