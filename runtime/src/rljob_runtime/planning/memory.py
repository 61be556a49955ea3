"""How much of a die's memory each phase of a step takes, reckoned before any die is held.

`rljob plan memory` prints it and validation refuses a job that cannot fit. verl's colocated trainer gives the same dies
to generation, log-probabilities, update and weight transfer in turn, so each phase is a sum of its own and the largest
decides. Weights, gradients, optimizer state and cache follow from the sizes alone; activations, communicators and what
an engine works in are estimates, and say so. docs/reference/memory.md has every formula with its source.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import (
    BF16,
    FP32,
    MATRICES,
    Cut,
    Elements,
    absorbed_elements,
    embedding_elements,
    kv_bytes_per_token,
    kv_heads_of_rank,
    layer_elements,
    model_elements,
)

ADAM = 2 * FP32
"""First and second moment, in fp32 (verl 0.9.1: workers/engine/megatron and torch.optim.AdamW)."""
LOGIT_FORWARD = BF16 + FP32
"""Bytes a logit: as computed, and as the log-probabilities need it (verl 0.9.1, utils/torch_functional.py)."""
LOGIT_BACKWARD = LOGIT_FORWARD + BF16
"""And its gradient."""
PREFETCHED_LAYERS = 2
"""FSDP2 holds the layer at work and the next one whole (torch.distributed.fsdp.fully_shard)."""


class Engine(enum.Enum):
    """How the trainer lays out the model."""

    MEGATRON = "Megatron"
    FSDP2 = "FSDP2"


class Recompute(enum.Enum):
    """What of a layer is computed again in the backward pass."""

    NONE = "none"
    BLOCK = "block"
    """The first layers of a stage."""
    UNIFORM = "uniform"
    """Every layer, kept in groups."""


class PhaseName(enum.Enum):
    """Parts of a step that share the dies one after another."""

    GENERATE = "generate"
    LOG_PROBABILITIES = "log probabilities"
    UPDATE = "update"
    TRANSFER = "weight transfer"


@dataclass(frozen=True)
class Die:
    """One device."""

    memory_bytes: int
    """HBM, as npu-smi shows it."""
    visible_bytes: int
    """What is left to processes once the driver has taken its part."""
    communicator_bytes: int
    """Of one communicator: twice HCCL_BUFFSIZE."""


@dataclass(frozen=True)
class Trainer:
    """Layout and switches of the update; the sizes divide the devices."""

    engine: Engine
    devices: int
    stage_layers: tuple[int, ...]
    """Layers of each pipeline stage, in order; one entry with FSDP2."""
    tokens: int
    """Tokens of a micro batch on a die, after context or Ulysses parallelism."""
    micro_batches: int
    """Of one data-parallel rank and update."""
    cut: Cut = field(default_factory=Cut)
    context: int = 1
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = 1
    kept_experts: float = 1.0
    """Share of the experts' activations that is kept (MindSpeed's moe_zero_memory)."""
    host_optimizer: bool = False
    """The state never lies on the die as a whole (MindSpeed's swap_optimizer, Megatron's optimizer_cpu_offload)."""
    offload_weights: bool = False
    offload_optimizer: bool = False
    offload_reference: bool = False
    reference: bool = False
    critic: bool = False

    @property
    def pipeline(self) -> int:
        """Stages."""
        return len(self.stage_layers)


@dataclass(frozen=True)
class Rollout:
    """Layout and switches of the generation."""

    tensor: int
    data: int
    expert: int
    memory_fraction: float
    sequences: int
    """Decoded at a time on a rank."""
    batched_tokens: int
    sequence_tokens: int
    """Longest prompt and response."""
    bucket_bytes: int
    """Of the weight transfer."""


@dataclass(frozen=True)
class Part:
    """One thing in memory."""

    name: str
    bytes: int
    estimated: bool = False
    """Not a sum of sizes but a model of them."""


@dataclass(frozen=True)
class Phase:
    """What lies on the fullest die in one phase."""

    name: PhaseName
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Plan:
    """Memory of a job's dies."""

    shape: Shape
    die: Die
    phases: tuple[Phase, ...]
    kv_bytes_per_token: int
    """On one die."""
    kv_bytes_needed: int
    """For one sequence of full length, the least that vLLM starts with."""
    kv_bytes: int
    """What is left for the cache; negative where the rest does not fit."""
    sequence_tokens: int

    @property
    def peak(self) -> Phase:
        """The fullest phase."""
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def kv_tokens(self) -> int:
        """Tokens in the cache of one data-parallel rank."""
        return max(0, self.kv_bytes) // self.kv_bytes_per_token

    @property
    def full_sequences(self) -> float:
        """Sequences of full length that fit at a time."""
        return self.kv_tokens / self.sequence_tokens


@functools.lru_cache(maxsize=256)
def plan(shape: Shape, die: Die, trainer: Trainer, rollout: Rollout) -> Plan:
    """Reckon every phase on the die that holds most; a job is judged more than once, and always to the same end."""
    at_rest = {stage: _states(shape, trainer, stage) for stage in range(trainer.pipeline)}
    engine = _engine(shape, die, rollout)
    budget = int(rollout.memory_fraction * die.visible_bytes)
    cache = budget - sum(part.bytes for part in engine)
    needed = kv_bytes_per_token(shape, rollout.tensor) * rollout.sequence_tokens
    shared = (
        Part("driver and firmware", die.memory_bytes - die.visible_bytes),
        Part("communicators of the trainer", _trainer_groups(trainer) * die.communicator_bytes, estimated=True),
    )
    stages = range(trainer.pipeline)
    generate = [*shared, *engine, Part("KV cache", max(cache, needed))]
    phases = (
        _fullest(PhaseName.GENERATE, [[*generate, *at_rest[stage].resting()] for stage in stages]),
        _fullest(
            PhaseName.LOG_PROBABILITIES,
            [[*shared, *at_rest[stage].reading(), *_forward(shape, trainer, stage)] for stage in stages],
        ),
        _fullest(
            PhaseName.UPDATE,
            [[*shared, *at_rest[stage].updating(), *_backward(shape, trainer, stage)] for stage in stages],
        ),
        _fullest(
            PhaseName.TRANSFER,
            [[*shared, *at_rest[stage].sending(), *_transfer(shape, rollout), *engine[:1]] for stage in stages],
        ),
    )
    return Plan(shape, die, phases, kv_bytes_per_token(shape, rollout.tensor), needed, cache, rollout.sequence_tokens)


def _fullest(name: PhaseName, stages: list[list[Part]]) -> Phase:
    return max((Phase(name, tuple(part for part in parts if part.bytes)) for parts in stages), key=lambda p: p.bytes)


@dataclass(frozen=True)
class _States:
    """Weights and what belongs to them on one die, and which of it stays while others work."""

    trainer: Trainer
    weights: int
    gathered: int
    """Layers that FSDP2 holds whole while it computes."""
    gradients: int
    optimizer: int

    def resting(self) -> Iterator[Part]:
        """What stays on the die while others work."""
        if not self.trainer.offload_weights:
            yield Part("trainer weights", self.weights)
            yield Part("gradients", self.gradients)
        if not (self.trainer.offload_optimizer or self.trainer.host_optimizer):
            yield Part("optimizer state", self.optimizer)
        yield from self._others()

    def _others(self) -> Iterator[Part]:
        """What the reference and the critic leave on the die; a critic has the sizes of the actor."""
        if self.trainer.reference and not self.trainer.offload_reference:
            yield Part("reference weights", self.weights)
        if self.trainer.critic:
            kept = 0 if self.trainer.offload_weights else self.weights + self.gradients
            kept += 0 if self.trainer.offload_optimizer or self.trainer.host_optimizer else self.optimizer
            yield Part("critic", kept)

    def reading(self) -> Iterator[Part]:
        """What lies there for a forward pass of the actor or the reference, whichever finds more of the other."""
        parts = {part.name: part for part in self.resting()}
        names = ["trainer weights", *(["reference weights"] if self.trainer.reference else [])]
        if not any(name in parts for name in names):
            names = names[:1]
        yield from (Part(name, self.weights) for name in names)
        yield from (part for part in parts.values() if part.name not in names)
        yield Part("gathered layers", self.gathered)

    def updating(self) -> Iterator[Part]:
        """What lies there for forward, backward and the optimizer's step."""
        yield Part("trainer weights", self.weights)
        yield Part("gathered layers", self.gathered)
        yield Part("gradients", self.gradients)
        if not self.trainer.host_optimizer:
            yield Part("optimizer state", self.optimizer)
        yield from self._others()

    def sending(self) -> Iterator[Part]:
        """What lies there while weights go to vLLM; verl offloads the actor afterwards (workers/engine_workers.py)."""
        yield Part("trainer weights", self.weights)
        yield from (part for part in self.resting() if part.name != "trainer weights")


def stage_elements(shape: Shape, trainer: Trainer, stage: int) -> Elements:
    """Give the elements on a die of a pipeline stage."""
    first = sum(trainer.stage_layers[:stage])
    total = Elements()
    for layer in range(first, first + trainer.stage_layers[stage]):
        total += layer_elements(shape, layer, trainer.cut)
    last = stage == trainer.pipeline - 1
    if stage == 0:
        total += embedding_elements(shape, trainer.cut)
    if last:
        total += Elements(whole=shape.hidden)
        # Shared weights exist once on a stage that is first and last, and twice where the ends lie apart.
        if not (shape.tied and stage == 0):
            total += embedding_elements(shape, trainer.cut)
    return total


def _states(shape: Shape, trainer: Trainer, stage: int) -> _States:
    if trainer.engine is Engine.FSDP2:
        share = model_elements(shape, Cut()).total / trainer.devices
        layer = max(layer_elements(shape, number, Cut()).total for number in range(shape.layers))
        ends = embedding_elements(shape, Cut()).total * (1 if shape.tied else 2)
        # verl 0.9.1 trains fp32 shards (fsdp.yaml, model_dtype) and computes in bf16 (param_dtype).
        return _States(
            trainer,
            weights=int(share * FP32),
            gathered=int((layer * PREFETCHED_LAYERS + ends) * BF16),
            gradients=int(share * FP32),
            optimizer=int(share * ADAM),
        )
    held = stage_elements(shape, trainer, stage)
    dense_ranks = max(1, trainer.devices // (trainer.cut.tensor * trainer.pipeline))
    expert_ranks = max(1, trainer.devices // (trainer.cut.expert_tensor * trainer.cut.expert * trainer.pipeline))
    # Master weights and moments are spread over the ranks that hold the same weights (use_distributed_optimizer).
    state = (held.dense / dense_ranks + held.experts / expert_ranks) * (FP32 + ADAM)
    return _States(
        trainer,
        weights=int(held.total * BF16),
        gathered=0,
        # verl 0.9.1 reduces gradients in fp32 (utils/megatron_utils.py, make_megatron_module).
        gradients=int(held.total * FP32),
        optimizer=int(state),
    )


def layer_activations(shape: Shape, trainer: Trainer) -> float:
    """Bytes a token that one layer keeps for the backward pass on a die, with flash attention, in bf16.

    What each matrix product and norm takes as its input, as in arXiv 2205.05198, section 4, for gated MLPs and grouped
    queries; Megatron's sequence parallelism cuts all of it by the tensor size.
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
    # Routed tokens come in and go out once an expert; experts are taken to be equally loaded.
    routed = moe.chosen * (2 * shape.hidden + MATRICES * moe.width)
    return kept * routed + MATRICES * moe.shared_width


def _stage_activations(shape: Shape, trainer: Trainer, stage: int) -> float:
    """Bytes of all layers of a stage for the micro batches under way (1F1B: fewer, the later the stage)."""
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


def _transfer(shape: Shape, rollout: Rollout) -> Iterator[Part]:
    moe = shape.experts
    largest = max(shape.vocabulary, moe.width if moe else shape.width) * shape.hidden
    yield Part("bucket of the transfer", rollout.bucket_bytes)
    yield Part("largest tensor, gathered", largest * BF16)


def _engine(shape: Shape, die: Die, rollout: Rollout) -> tuple[Part, ...]:
    """Give what vLLM takes beside its cache: weights first."""
    spread = rollout.expert > 1
    cut = Cut(rollout.tensor, rollout.expert, 1 if spread else rollout.tensor)
    weights = model_elements(shape, cut).total + absorbed_elements(shape, rollout.tensor)
    # A replica whose experts are spread has groups for tensor, data and expert ranks, and a second one of the latter
    # for the fused dispatch (MC2); vllm_ascend/distributed/parallel_state.py, v0.23.0.
    groups = 1 + (rollout.tensor > 1) + (rollout.data > 1) + 2 * spread
    return (
        Part("rollout weights", int(weights * BF16)),
        Part("rollout's working memory", int(_working(shape, rollout)), estimated=True),
        Part("communicators of the rollout", groups * die.communicator_bytes, estimated=True),
    )


def _working(shape: Shape, rollout: Rollout) -> float:
    """Bytes of one forward pass over a full batch of tokens, and of the logits of all sequences."""
    moe, tensor = shape.experts, rollout.tensor
    heads = 2 * shape.heads / tensor + 2 * kv_heads_of_rank(shape, tensor)
    if moe is None:
        inner = MATRICES * shape.width / tensor
    else:
        # Tokens are dispatched by the tensor ranks in equal shares; without expert parallelism each expert is cut.
        tokens = moe.chosen * (2 * shape.hidden) / (tensor if rollout.expert > 1 else 1)
        inner = tokens + MATRICES * (moe.chosen * moe.width + moe.shared_width) / tensor
    per_token = (3 * shape.hidden + max(shape.head * heads, inner)) * BF16
    return rollout.batched_tokens * per_token + rollout.sequences * shape.vocabulary * LOGIT_FORWARD


def _trainer_groups(trainer: Trainer) -> int:
    """Communicators of the trainer with more than one rank; HCCL makes one when it is first used."""
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
