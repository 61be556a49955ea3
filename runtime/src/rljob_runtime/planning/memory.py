"""Estimate how much of a die's memory each phase of a step uses, before any die is allocated.

`rljob plan memory` prints it and validation rejects a job that cannot fit. verl's colocated trainer uses the same dies
in turn for generation, log-probabilities, update and weight transfer, so each phase is summed separately and the
largest one decides. Where trainer and rollout have dies of their own, each phase is one of either. Weights, gradients,
optimizer state and cache follow exactly from the sizes. Activations, communicators and the engine's working memory are
estimates and marked as such. docs/reference/memory.md contains every formula with its source.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import (
    BF16,
    FP32,
    MATRICES,
    Cut,
    Elements,
    absorbed_elements,
    adapter_elements,
    embedding_elements,
    kv_bytes_per_token,
    kv_heads_of_rank,
    layer_elements,
    model_elements,
)

MOMENTS = 2
"""Adam's first and second moment: in fp32 with Megatron, in the type of the weights with FSDP2 (torch.optim.AdamW)."""
LOGIT_FORWARD = BF16 + FP32
"""Bytes per logit: as computed, and as needed for log-probabilities (verl 0.9.1, utils/torch_functional.py)."""
LOGIT_BACKWARD = LOGIT_FORWARD + BF16
"""Bytes per logit in the update, with its gradient."""
SENT_BUCKETS = 2
"""Buckets of each member of a weight transfer between dies, one on its way while the other one is filled (verl 0.9.1,
checkpoint_engine/hccl_checkpoint_engine.py:139-140)."""
PASSED_BUCKETS = 1
"""Buckets in which the receiver passes weights on to the engine's process (verl 0.9.1,
workers/rollout/vllm_rollout/bucketed_weight_transfer.py:183)."""
PREFETCHED_LAYERS = 2
"""FSDP2 holds the current layer and the next one unsharded (torch.distributed.fsdp.fully_shard)."""


class Engine(enum.Enum):
    """How the trainer lays out the model."""

    MEGATRON = "Megatron"
    FSDP2 = "FSDP2"


class Recompute(enum.Enum):
    """Which activations of a layer are recomputed in the backward pass."""

    NONE = "none"
    BLOCK = "block"
    """The first layers of a stage."""
    UNIFORM = "uniform"
    """Every layer, checkpointed in groups."""


class PhaseName(enum.Enum):
    """Phases of a step, which use the dies one after another."""

    GENERATE = "generate"
    LOG_PROBABILITIES = "log probabilities"
    UPDATE = "update"
    TRANSFER = "weight transfer"
    RECEIVE = "weight reception"
    """The other end of the transfer, where trainer and rollout stand apart."""


OF_THE_ROLLOUT = frozenset({PhaseName.GENERATE, PhaseName.RECEIVE})
"""Phases on dies of the rollout, where trainer and rollout stand apart."""


@dataclass(frozen=True)
class Die:
    """One device."""

    memory_bytes: int
    """HBM as shown by npu-smi."""
    visible_bytes: int
    """Memory available to processes, without the driver's share."""
    communicator_bytes: int
    """Memory of one communicator: twice HCCL_BUFFSIZE."""


@dataclass(frozen=True)
class Trainer:
    """Layout and settings of the update. The sizes divide the devices."""

    engine: Engine
    devices: int
    stage_layers: tuple[int, ...]
    """Layers in each pipeline stage, in order; one entry for FSDP2."""
    tokens: int
    """Tokens of a micro batch on a die, after context or Ulysses parallelism."""
    micro_batches: int
    """Micro batches per data-parallel rank and update."""
    cut: Cut = field(default_factory=Cut)
    context: int = 1
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = 1
    kept_experts: float = 1.0
    """Share of the experts' activations that is kept (MindSpeed's moe_zero_memory)."""
    host_optimizer: bool = False
    """The optimizer state is never on the die as a whole (MindSpeed's swap_optimizer, Megatron's
    optimizer_cpu_offload)."""
    offload_weights: bool = False
    offload_optimizer: bool = False
    offload_reference: bool = False
    reference: bool = False
    critic: bool = False
    adapter_rank: int = 0
    """Rank of the LoRA adapter that is trained; 0 where the whole model is."""
    critic_adapter_rank: int = 0
    element_bytes: int = FP32
    """Size of an element of FSDP2's shards, and so of its gradients and moments."""
    evaluates: bool = False
    """Whether the run only validates (verl's trainer.val_only): it generates once, and trains nothing."""

    @property
    def pipeline(self) -> int:
        """Number of pipeline stages."""
        return len(self.stage_layers)


@dataclass(frozen=True)
class Rollout:
    """Layout and settings of the generation."""

    tensor: int
    data: int
    expert: int
    memory_fraction: float
    sequences: int
    """Sequences decoded concurrently on a rank."""
    batched_tokens: int
    sequence_tokens: int
    """Longest prompt plus longest response."""
    bucket_bytes: int
    """Bucket of the weight transfer."""
    apart: bool = False
    """Whether it has dies of its own."""
    keeps_cache: bool = False
    """Whether the cache stays on such a die while weights arrive."""
    adapter_rank: int = 0
    """Rank of the LoRA adapter that the engine serves beside the weights."""


@dataclass(frozen=True)
class Part:
    """One component of a memory phase."""

    name: str
    bytes: int
    estimated: bool = False
    """True for a model instead of a sum of sizes."""


@dataclass(frozen=True)
class Phase:
    """Memory of the fullest die in one phase."""

    name: PhaseName
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """Total of all parts."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class MemoryPlan:
    """Memory plan of a job's dies."""

    shape: Shape
    die: Die
    phases: tuple[Phase, ...]
    kv_bytes_per_token: int
    """On one die."""
    kv_bytes_needed: int
    """For one sequence of full length, the minimum with which vLLM starts."""
    kv_bytes: int
    """Memory available for the cache; negative if the rest does not fit."""
    sequence_tokens: int
    trainer: Trainer

    @property
    def apart(self) -> bool:
        """Whether trainer and rollout have dies of their own."""
        return any(phase.name is PhaseName.RECEIVE for phase in self.phases)

    @property
    def peak(self) -> Phase:
        """The phase that uses most memory."""
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def kv_tokens(self) -> int:
        """Tokens in the cache of one data-parallel rank."""
        return max(0, self.kv_bytes) // self.kv_bytes_per_token

    @property
    def full_sequences(self) -> float:
        """Number of full-length sequences that fit at a time."""
        return self.kv_tokens / self.sequence_tokens


@functools.lru_cache(maxsize=256)
def plan(shape: Shape, die: Die, trainer: Trainer, rollout: Rollout) -> MemoryPlan:
    """Estimate every phase on the fullest die. Cached, because a job is validated more than once."""
    engine = _engine(shape, die, rollout)
    budget = int(rollout.memory_fraction * die.visible_bytes)
    cache = budget - sum(part.bytes for part in engine)
    per_token = kv_bytes_per_token(shape, rollout.tensor)
    needed = per_token * rollout.sequence_tokens
    kept = Part("KV cache", max(cache, needed))
    phases = tuple(_phases(shape, die, trainer, rollout, (*engine, kept)))
    return MemoryPlan(shape, die, phases, per_token, needed, cache, rollout.sequence_tokens, trainer)


def _phases(
    shape: Shape, die: Die, trainer: Trainer, rollout: Rollout, engine: tuple[Part, Part, Part, Part]
) -> Iterator[Phase]:
    """Yield the phases of a step. The parts of the engine are weights, working memory, communicators and cache."""
    stages = range(trainer.pipeline)
    at_rest = {stage: _states(shape, trainer, stage) for stage in stages}
    driver = Part("driver and firmware", die.memory_bytes - die.visible_bytes)
    groups = Part("communicators of the trainer", _trainer_groups(trainer) * die.communicator_bytes, estimated=True)
    shared = (driver, groups)
    if rollout.apart:
        yield _fullest(PhaseName.GENERATE, [[driver, *engine]])
    else:
        yield _fullest(PhaseName.GENERATE, [[*shared, *engine, *at_rest[stage].resting()] for stage in stages])
    if not trainer.evaluates:
        yield _fullest(
            PhaseName.LOG_PROBABILITIES,
            [[*shared, *at_rest[stage].reading(), *_forward(shape, trainer, stage)] for stage in stages],
        )
        yield _fullest(
            PhaseName.UPDATE,
            [[*shared, *at_rest[stage].updating(), *_backward(shape, trainer, stage)] for stage in stages],
        )
    weights, _, communicators, cache = engine
    gathered = _largest_tensor(shape)
    if not rollout.apart:
        there = [Part("bucket of the transfer", rollout.bucket_bytes), gathered, weights]
        yield _fullest(PhaseName.TRANSFER, [[*shared, *at_rest[stage].sending(), *there] for stage in stages])
        return
    # The group of a transfer has one rank of the trainer and all of the rollout (hccl_checkpoint_engine.py:162-174).
    group = Part("communicator of the transfer", die.communicator_bytes, estimated=True)
    sent = [Part("buckets of the transfer", SENT_BUCKETS * rollout.bucket_bytes), gathered, group]
    yield _fullest(PhaseName.TRANSFER, [[*shared, *at_rest[stage].sending(), *sent] for stage in stages])
    buckets = Part("buckets of the transfer", (SENT_BUCKETS + PASSED_BUCKETS) * rollout.bucket_bytes)
    received = [driver, weights, communicators, buckets, group]
    yield _fullest(PhaseName.RECEIVE, [received + ([cache] if rollout.keeps_cache else [])])


def _fullest(name: PhaseName, stages: list[list[Part]]) -> Phase:
    return max((Phase(name, tuple(part for part in parts if part.bytes)) for parts in stages), key=lambda p: p.bytes)


@dataclass(frozen=True)
class _States:
    """Weights and dependent state on one die, and what of it stays on the die in other phases."""

    trainer: Trainer
    weights: int
    gathered: int
    """Layers that FSDP2 holds unsharded while it computes."""
    gradients: int
    optimizer: int
    critic: _States | None = None
    """Of the critic, which has the sizes of the actor and may be trained otherwise."""

    def resting(self) -> Iterator[Part]:
        """Parts that stay on the die during other phases."""
        if not self.trainer.offload_weights:
            yield Part("trainer weights", self.weights)
            yield Part("gradients", self.gradients)
        if not (self.trainer.offload_optimizer or self.trainer.host_optimizer):
            yield Part("optimizer state", self.optimizer)
        yield from self._others()

    def _others(self) -> Iterator[Part]:
        """Parts of the reference and the critic that stay on the die."""
        if self.trainer.reference and not self.trainer.offload_reference:
            yield Part("reference weights", self.weights)
        if critic := self.critic:
            kept = 0 if self.trainer.offload_weights else critic.weights + critic.gradients
            kept += 0 if self.trainer.offload_optimizer or self.trainer.host_optimizer else critic.optimizer
            yield Part("critic", kept)

    def reading(self) -> Iterator[Part]:
        """Parts during a forward pass of actor or reference, whichever leaves more of the other on the die."""
        parts = {part.name: part for part in self.resting()}
        names = ["trainer weights", *(["reference weights"] if self.trainer.reference else [])]
        if not any(name in parts for name in names):
            names = names[:1]
        yield from (Part(name, self.weights) for name in names)
        yield from (part for part in parts.values() if part.name not in names)
        yield Part("gathered layers", self.gathered)

    def updating(self) -> Iterator[Part]:
        """Parts during forward pass, backward pass and optimizer step."""
        yield Part("trainer weights", self.weights)
        yield Part("gathered layers", self.gathered)
        yield Part("gradients", self.gradients)
        if not self.trainer.host_optimizer:
            yield Part("optimizer state", self.optimizer)
        yield from self._others()

    def sending(self) -> Iterator[Part]:
        """Parts while weights are sent to vLLM; verl offloads the actor afterwards (workers/engine_workers.py)."""
        yield Part("trainer weights", self.weights)
        yield from (part for part in self.resting() if part.name != "trainer weights")


def stage_elements(shape: Shape, trainer: Trainer, stage: int) -> Elements:
    """Return the elements of a pipeline stage on one die."""
    first = sum(trainer.stage_layers[:stage])
    total = Elements()
    for layer in range(first, first + trainer.stage_layers[stage]):
        total += layer_elements(shape, layer, trainer.cut)
    last = stage == trainer.pipeline - 1
    if stage == 0:
        total += embedding_elements(shape, trainer.cut)
    if last:
        total += Elements(whole=shape.hidden)
        # Tied weights exist once on a stage that is both first and last, and twice otherwise.
        if not (shape.tied and stage == 0):
            total += embedding_elements(shape, trainer.cut)
    return total


def _states(shape: Shape, trainer: Trainer, stage: int) -> _States:
    actor = _states_of(shape, trainer, stage, trainer.adapter_rank)
    if not trainer.critic:
        return actor
    return replace(actor, critic=_states_of(shape, trainer, stage, trainer.critic_adapter_rank))


def _states_of(shape: Shape, trainer: Trainer, stage: int, adapter_rank: int) -> _States:
    """Return the states of a model of which all is trained, or an adapter of this rank."""
    adapter = adapter_elements(shape, adapter_rank)
    if trainer.engine is Engine.FSDP2:
        share = (model_elements(shape, Cut()).total + adapter) / trainer.devices
        # PyTorch makes gradients in the first backward pass, and the moments in the first step of the optimizer.
        # Megatron makes both when it builds the model.
        trained = 0.0 if trainer.evaluates else adapter / trainer.devices if adapter else share
        layer = max(layer_elements(shape, number, Cut()).total for number in range(shape.layers))
        ends = embedding_elements(shape, Cut()).total * (1 if shape.tied else 2)
        # verl 0.9.1 trains fp32 shards (fsdp.yaml, model_dtype) and computes in bf16 (param_dtype). An adapter has the
        # type of its base model (workers/engine/fsdp/transformer_impl.py:370-382).
        return _States(
            trainer,
            weights=int(share * trainer.element_bytes),
            gathered=int((layer * PREFETCHED_LAYERS + ends) * BF16),
            gradients=int(trained * trainer.element_bytes),
            optimizer=int(trained * MOMENTS * trainer.element_bytes),
        )
    held = stage_elements(shape, trainer, stage)
    dense_ranks = max(1, trainer.devices // (trainer.cut.tensor * trainer.pipeline))
    expert_ranks = max(1, trainer.devices // (trainer.cut.expert_tensor * trainer.cut.expert * trainer.pipeline))
    # Master weights and moments are distributed over the ranks with the same weights (use_distributed_optimizer).
    share = adapter / trainer.cut.tensor / trainer.pipeline
    state = share / dense_ranks if adapter else held.dense / dense_ranks + held.experts / expert_ranks
    return _States(
        trainer,
        weights=int((held.total + share) * BF16),
        gathered=0,
        # verl 0.9.1 reduces gradients in fp32 (utils/megatron_utils.py, make_megatron_module).
        gradients=int((share if adapter else held.total) * FP32),
        optimizer=int(state * (FP32 + MOMENTS * FP32)),
    )


def layer_activations(shape: Shape, trainer: Trainer) -> float:
    """Return the bytes per token that one layer keeps for the backward pass on a die, with flash attention, in bf16.

    Counts the input of each matrix product and norm, as in arXiv 2205.05198, section 4, for gated MLPs and grouped
    queries. Megatron's sequence parallelism divides all of it by the tensor size.
    """
    ranks = trainer.cut.tensor if trainer.engine is Engine.MEGATRON else 1
    if latent := shape.latent:
        query_head = latent.plain_head + latent.rotary_head
        attention = (latent.query_rank or 0) + latent.kv_rank + latent.rotary_head
        attention += shape.heads * (2 * query_head + 2 * latent.value_head)
    else:
        attention = shape.head * (2 * shape.heads + 2 * shape.kv_heads)
    return (4 * shape.hidden + attention + _mlp_activations(shape, trainer.kept_experts)) * BF16 / ranks


def _mlp_activations(shape: Shape, kept: float) -> float:
    if (moe := shape.experts) is None:
        return MATRICES * shape.width
    # Routed tokens are counted once per expert, before and after it. Experts are assumed to be equally loaded.
    routed = moe.chosen * (2 * shape.hidden + MATRICES * moe.width)
    return kept * routed + MATRICES * moe.shared_width


def _stage_activations(shape: Shape, trainer: Trainer, stage: int) -> float:
    """Return the bytes of all layers of a stage for the micro batches in flight (1F1B: fewer in later stages)."""
    layers = trainer.stage_layers[stage]
    under_way = min(trainer.pipeline - stage, trainer.micro_batches)
    ranks = trainer.cut.tensor if trainer.engine is Engine.MEGATRON else 1
    whole, border = layer_activations(shape, trainer), shape.hidden * BF16 / ranks
    match trainer.recompute:
        case Recompute.NONE:
            kept, again = layers * whole, 0.0
        case Recompute.UNIFORM:
            group = min(trainer.recompute_layers, layers)
            kept, again = math.ceil(layers / group) * border, group * whole
        case Recompute.BLOCK:
            group = min(trainer.recompute_layers, layers)
            kept, again = group * border + (layers - group) * whole, whole if group else 0.0
    return trainer.tokens * (under_way * kept + again)


def _backward(shape: Shape, trainer: Trainer, stage: int) -> Iterator[Part]:
    yield Part("activations", int(_stage_activations(shape, trainer, stage)), estimated=True)
    if stage == trainer.pipeline - 1:
        yield Part("logits", _logits(shape, trainer, LOGIT_BACKWARD), estimated=True)


def _forward(shape: Shape, trainer: Trainer, stage: int) -> Iterator[Part]:
    yield Part("activations", int(trainer.tokens * layer_activations(shape, trainer)), estimated=True)
    if stage == trainer.pipeline - 1:
        yield Part("logits", _logits(shape, trainer, LOGIT_FORWARD), estimated=True)


def _logits(shape: Shape, trainer: Trainer, size: int) -> int:
    return trainer.tokens * shape.vocabulary // trainer.cut.tensor * size


def _largest_tensor(shape: Shape) -> Part:
    moe = shape.experts
    largest = max(shape.vocabulary, moe.width if moe else shape.width) * shape.hidden
    return Part("largest tensor, gathered", largest * BF16)


def _engine(shape: Shape, die: Die, rollout: Rollout) -> tuple[Part, Part, Part]:
    """Return vLLM's memory without its cache, weights first."""
    spread = rollout.expert > 1
    cut = Cut(rollout.tensor, rollout.expert, 1 if spread else rollout.tensor)
    weights = model_elements(shape, cut).total + absorbed_elements(shape, rollout.tensor)
    # Matrices A are whole on each rank (vllm/lora/layers), and B is sharded; all is counted as whole.
    weights += adapter_elements(shape, rollout.adapter_rank)
    # A replica with expert parallelism has groups for tensor, data and expert ranks, and a second expert group for the
    # fused dispatch (MC2); vllm_ascend/distributed/parallel_state.py, v0.23.0.
    groups = 1 + (rollout.tensor > 1) + (rollout.data > 1) + 2 * spread
    return (
        Part("rollout weights", int(weights * BF16)),
        Part("rollout's working memory", int(_working(shape, rollout)), estimated=True),
        Part("communicators of the rollout", groups * die.communicator_bytes, estimated=True),
    )


def _working(shape: Shape, rollout: Rollout) -> float:
    """Return the bytes of one forward pass over a full batch of tokens, and of the logits of all sequences."""
    moe, tensor = shape.experts, rollout.tensor
    heads = 2 * shape.heads / tensor + 2 * kv_heads_of_rank(shape, tensor)
    if moe is None:
        inner = MATRICES * shape.width / tensor
    else:
        # The tensor ranks dispatch equal shares of the tokens. Without expert parallelism each expert is sharded.
        tokens = moe.chosen * (2 * shape.hidden) / (tensor if rollout.expert > 1 else 1)
        inner = tokens + MATRICES * (moe.chosen * moe.width + moe.shared_width) / tensor
    per_token = (3 * shape.hidden + max(shape.head * heads, inner)) * BF16
    return rollout.batched_tokens * per_token + rollout.sequences * shape.vocabulary * LOGIT_FORWARD


def _trainer_groups(trainer: Trainer) -> int:
    """Return the number of the trainer's communicators with more than one rank; HCCL creates them on first use."""
    if trainer.engine is Engine.FSDP2:
        return int(trainer.devices > 1)
    dense = trainer.devices // (trainer.cut.tensor * trainer.pipeline * trainer.context)
    expert = trainer.devices // (trainer.cut.expert_tensor * trainer.cut.expert * trainer.pipeline)
    sizes = (
        trainer.devices,
        trainer.cut.tensor,
        trainer.pipeline,
        trainer.context,
        dense * trainer.context,
        trainer.cut.expert,
        expert if trainer.cut.expert > 1 else 1,
    )
    return sum(size > 1 for size in sizes)
