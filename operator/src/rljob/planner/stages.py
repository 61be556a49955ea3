"""How long the stages of a step take beside the rollout: passes for log-probabilities, the update, and the rest.

Floating-point operations follow from the sizes of the model and the lengths. The rates with which a die of Atlas A3
executes them were derived from published runs (`PUBLISHED`), which agree on the update within 6 % and on a forward
pass within 13 %. A pass takes the same time for the reference model and for old log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rljob.planner.rollout.estimate import active_elements
from rljob.planner.rollout.traces import RolloutRequest
from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import BF16, Cut, model_elements

FORWARD_RATE = 27.3e12
"""Operations of a forward pass a second and die: the mean of what follows from the published passes of the reference,
with what their layouts lose (`slowdown`) taken out."""
UPDATE_RATE = 41.1e12
"""The same of an update, counted as three forward passes, recomputation included in the rate."""
CONTEXT_TOKENS = 70
"""What a further rank of context parallelism costs a sequence, in tokens. From two published comparisons with hybrid
data parallelism, which avoids it: 34 % with size 8 and 1,437 tokens (DeepSeek-V3), about 5 % with size 4 and 7,345."""
OTHER_SECONDS_A_MILLION_TOKENS = 1.64
"""Rewards, advantages, transfer of weights and offloading: 99.1 s with 60.8 million tokens (Qwen3-235B), 22.2 s with
13.5 million (DeepSeek-V3)."""
LINK_BYTES_A_SECOND = 100e9
"""Between dies, for the trainer's collectives: an assumption. Only differences between layouts depend on it."""
TRANSFER_BYTES_A_SECOND = 5.3e9
"""At which the trainer sends all weights to a rollout that stands apart: the dense HCCL engine, Qwen3-30B-A3B on 2 x 16
Ascend 910C, about 11 s (verl-project/verl#7787)."""
PASSES = 3
"""An update is a forward pass and a backward pass of twice the work."""


@dataclass(frozen=True)
class PublishedStep:
    """A published step of cann-recipes-train, in seconds; 0 for stages that it does not have."""

    name: str
    architecture: str
    devices: int
    lengths: str
    """Name of the trace of the same moments."""
    prompts: int
    samples: int
    mean: float
    """Mean tokens of a prompt and a response."""
    rollout: float
    reference: float
    update: float
    total: float
    rounds: int = 1
    """Rollouts of a step: DAPO generates again for prompts that its filter removes."""

    @property
    def tokens(self) -> float:
        """Tokens of the batch."""
        return self.prompts * self.samples * self.mean


PUBLISHED = (
    PublishedStep(
        name="GRPO on Qwen3-235B",
        architecture="Qwen3-235B-A22B",
        devices=128,
        lengths="deepscaler-32k",
        prompts=512,
        samples=16,
        mean=73.7 + 7344.97,
        rollout=4065.71,
        reference=1262.27,
        update=2353.23,
        total=7780.36,
    ),
    PublishedStep(
        name="GRPO on DeepSeek-V3",
        architecture="DeepSeek-V3",
        devices=256,
        lengths="deepscaler-3k",
        prompts=512,
        samples=16,
        mean=1654.3,
        rollout=373.65,
        reference=144.5,
        update=319.3,
        total=859.68,
    ),
    PublishedStep(
        name="DAPO on Qwen3-235B",
        architecture="Qwen3-235B-A22B",
        devices=128,
        lengths="dapo-34k",
        prompts=128,
        samples=16,
        mean=132.78 + 10_119.23,
        rollout=6619.78,
        reference=0.0,
        update=797.93,
        total=7833.16,
        rounds=2,
    ),
)
"""Both GRPO runs skip the pass for old log-probabilities."""


@dataclass(frozen=True)
class Work:
    """What a step computes."""

    tokens: int
    """Tokens of all prompts and responses; a prompt counts once per response."""
    sequences: int
    operations: float
    """Floating-point operations of one forward pass over them."""


def work(shape: Shape, requests: Sequence[RolloutRequest]) -> Work:
    """Return the work of a batch: two operations for each weight that a token uses, and causal attention."""
    lengths = [request.tokens + request.prompt_tokens for request in requests]
    tokens = sum(lengths)
    pairs = sum(length * length for length in lengths) / 2
    return Work(tokens, len(lengths), 2 * active_elements(shape) * tokens + _attention_operations(shape) * pairs)


def _attention_operations(shape: Shape) -> float:
    """Return the operations of all layers for one token and one token before it: scores and weighted values."""
    if latent := shape.latent:
        return 2 * shape.layers * shape.heads * (latent.plain_head + latent.rotary_head + latent.value_head)
    return 4 * shape.layers * shape.heads * shape.head


@dataclass(frozen=True)
class TrainerSize:
    """How the trainer is split over the devices; what remains is data parallelism."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1

    @property
    def model(self) -> int:
        """Devices that share a sample."""
        return self.tensor * self.pipeline * self.context


def slowdown(
    done: Work, devices: int, size: TrainerSize, stage_layers: Sequence[int], micro_batch_tokens: int
) -> float:
    """Return how much longer a pass takes than its operations: pipeline, uneven stages and split sequences.

    `micro_batch_tokens` are those of a micro batch on all dies that share a sample.
    """
    ranks = max(1, devices // size.model)
    micro_batches = max(1.0, done.tokens / ranks / micro_batch_tokens)
    bubble = 1 + (len(stage_layers) - 1) / micro_batches
    uneven = max(stage_layers) * len(stage_layers) / sum(stage_layers)
    split = 1 + CONTEXT_TOKENS * (size.context - 1) / (done.tokens / done.sequences)
    return bubble * uneven * split


def forward_seconds(done: Work, devices: int) -> float:
    """Return the seconds of a pass for log-probabilities, for a slowdown of 1."""
    return done.operations / (devices * FORWARD_RATE)


def update_seconds(done: Work, devices: int) -> float:
    """Return the seconds of all updates of a step, for a slowdown of 1."""
    return PASSES * done.operations / (devices * UPDATE_RATE)


def other_seconds(done: Work) -> float:
    """Return the seconds of everything else."""
    return OTHER_SECONDS_A_MILLION_TOKENS * done.tokens / 1e6


def transfer_seconds(shape: Shape) -> float:
    """Return the seconds in which weights reach a rollout that stands apart; one rank sends them to all at a time."""
    return model_elements(shape, Cut()).total * BF16 / TRANSFER_BYTES_A_SECOND


def communication_seconds(shape: Shape, done: Work, devices: int, size: TrainerSize) -> float:
    """Return the seconds of the update's collectives at the assumed rate, if nothing hides them.

    For each layer and token: tensor ranks gather and scatter the hidden state around attention and a dense MLP,
    context ranks pass keys and values on. The backward pass moves twice as much. What expert ranks exchange is left
    out: the published runs hide it behind the computation, by patches of MindSpeed (moe_alltoall_overlap_comm).
    """
    layers = done.tokens * shape.layers / devices
    blocks = 1 if shape.experts else 2
    tensor = blocks * 2 * 2 * (size.tensor - 1) * shape.hidden
    key_values = shape.latent.kv_rank + shape.latent.rotary_head if shape.latent else 2 * shape.kv_heads * shape.head
    context = (size.context - 1) * key_values
    return PASSES * layers * (tensor + context) * BF16 / LINK_BYTES_A_SECOND
