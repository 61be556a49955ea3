"""The learning part of an RLJob: model, data, reward, algorithm, trainer, rollout and their optimisations.

Typed is what the operator computes with; every other setting of verl goes through `verl.overrides`. A field that is
not set is left to the default of verl 0.9.1, unless its text says another one.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import Field

from rljob.api.base import ATOMIC, Anything, Count, Decimal, Model, Path, SignedDecimal, Switch

Factor = Annotated[int, Field(ge=1, le=65_536, json_schema_extra={"format": "int32"})]
"""A parallel size."""


class MemoryCheck(enum.StrEnum):
    """What becomes of a job whose model does not fit."""

    REFUSE = "Refuse"
    WARN = "Warn"


class ModelSource(Model):
    """The model to train."""

    path: Path
    """Folder with the Hugging Face files."""
    layers: Count | None = None
    """Transformer layers, for the arithmetic of pipeline stages."""
    attention_heads: Count | None = None
    """Attention heads, for the arithmetic of tensor and context sizes."""
    experts: Count | None = None
    """Experts of a mixture-of-experts layer, for the arithmetic of expert parallelism."""
    trust_remote_code: bool | None = None
    """Run the Python files that lie beside the weights."""
    architecture: Annotated[str, Field(max_length=63)] | None = None
    """A model whose memory is planned, such as Qwen3-235B-A22B."""
    config: Annotated[dict[str, Anything], Field(max_length=256)] = {}
    """Or its config.json."""
    memory_check: MemoryCheck = MemoryCheck.REFUSE
    """What if a die's memory is exceeded."""


class Data(Model):
    """Prompts."""

    train: Annotated[list[Path], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)]
    """Parquet files."""
    validation: Annotated[list[Path], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Parquet files; default: those of train."""
    max_prompt_tokens: Count = 1024
    """Longest prompt."""
    max_response_tokens: Count = 1024
    """Longest response."""


class Reward(Model):
    """The rule that scores a response."""

    path: Path
    """Python file."""
    function: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "compute_score"
    """Function in that file, with verl's signature (data_source, solution_str, ground_truth, extra_info)."""


class AlgorithmName(enum.StrEnum):
    """Learning rules."""

    GRPO = "GRPO"
    DAPO = "DAPO"
    """GRPO with a filter for prompts whose responses all score alike, a higher upper clip and the loss per token."""
    PPO = "PPO"
    """Generalised advantage estimation with a critic."""
    REINFORCE_PLUS_PLUS = "ReinforcePlusPlus"
    RLOO = "RLOO"
    REMAX = "ReMax"
    """The baseline is the score of a greedy answer to the same prompt, which is generated beside the others."""


class GroupFilter(Model):
    """Which prompts DAPO leaves out."""

    metric: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_./-]*$")] = "acc"
    """`reward`, or a key of what the reward function returns; responses that are all equal in it teach nothing."""
    max_inflight_batches: Count | None = None
    """Generation batches under way at a time while prompts are replaced."""


class Algorithm(Model):
    """The learning rule."""

    name: AlgorithmName = AlgorithmName.GRPO
    """How advantages are estimated."""
    kl_coefficient: Decimal = "0"
    """Weight of the KL loss against the reference policy; 0 leaves the reference model out."""
    clip_ratio_low: Decimal | None = None
    """Lower clip of the probability ratio; verl: 0.2."""
    clip_ratio_high: Decimal | None = None
    """Upper clip of the probability ratio; verl: 0.2, DAPO: 0.28."""
    entropy_coefficient: Decimal | None = None
    """Weight of the entropy bonus; verl: 0."""
    discount: Decimal | None = None
    """Discount of later rewards (gamma); verl: 1."""
    gae_lambda: Decimal | None = None
    """Trade of bias against variance in PPO's advantages; verl: 1."""
    group_filter: GroupFilter | None = None
    """Only with DAPO."""


class Critic(Model):
    """The value model of PPO."""

    path: Path | None = None
    """Folder with the Hugging Face files; default: model.path."""
    learning_rate: Decimal | None = None
    """Of the critic's optimizer; verl: 1e-5."""
    micro_batch_size_per_device: Count | None = None
    """Samples of one pass on a device; default: trainer.microBatchSizePerDevice."""


class TrainerParallelism(Model):
    """How the training model is spread; what is left of the devices is data parallelism."""

    tensor: Factor = 1
    """Devices that share each layer."""
    pipeline: Factor = 1
    """Stages of layers."""
    context: Factor = 1
    """Devices that share a sequence in ring attention."""
    expert: Factor = 1
    """Devices that share the experts."""
    expert_tensor: Factor | None = None
    """Devices that share each expert; Megatron's default is tensor."""
    sequence: Factor = 1
    """Devices that share a sequence by Ulysses, with FSDP2 only."""


class Offload(Model):
    """What lives in host memory while it is not needed."""

    parameters: bool | None = None
    """Weights of the actor."""
    gradients: bool | None = None
    """Gradients, with Megatron and MindSpeed only; verl moves them with the weights, so it must equal parameters."""
    optimizer: bool | None = None
    """State of the optimizer."""
    reference: bool | None = None
    """Weights of the reference model."""


class TrainerBackend(enum.StrEnum):
    """Engines of the update."""

    FSDP2 = "FSDP2"
    MEGATRON = "Megatron"
    MINDSPEED = "MindSpeed"
    """Megatron-Core with MindSpeed's kernels for Ascend."""


class Trainer(Model):
    """The update."""

    backend: TrainerBackend = TrainerBackend.FSDP2
    """Engine of the update."""
    mode: Literal["Train", "Evaluate"] = "Train"
    """Evaluate: one pass over data.validation and the end; nothing is trained."""
    steps: Count
    """Steps of the whole run; may grow while the job runs, for its next attempt."""
    global_batch_size: Count
    """Prompts of a step."""
    mini_batch_size: Count | None = None
    """Prompts of an optimizer update; default: globalBatchSize."""
    micro_batch_size_per_device: Count | None = None
    """Samples of one forward and backward pass on a device; default: all of the device's share of a mini batch."""
    max_tokens_per_device: Count | None = None
    """Turns on dynamic micro batches with this many tokens on a device at a time."""
    samples_per_prompt: Count = 8
    """Responses of a prompt: the group of GRPO."""
    learning_rate: Decimal = "1e-6"
    """Of the actor's optimizer."""
    gradient_clip: Decimal | None = None
    """Largest norm of the gradient; verl: 1."""
    parallelism: TrainerParallelism = TrainerParallelism()
    """How the model is spread."""
    offload: Offload = Offload()
    """What lives in host memory."""
    evaluate_every_steps: Count | None = None
    """Steps between passes over data.validation; default: none."""
    evaluate_before_training: bool | None = None
    """One pass over data.validation before the first step."""


class RolloutParallelism(Model):
    """How a replica of the engine is spread; what is left of the devices is further replicas."""

    tensor: Factor = 1
    """Devices that share each layer."""
    data: Factor = 1
    """Data-parallel ranks of one replica."""
    expert: Factor = 1
    """Devices that share the experts: 1, or tensor × data."""


class SpeculativeDecoding(Model):
    """Draft tokens without a draft model: one would be stale after each step."""

    method: Literal["None", "NGram", "Suffix"] = "None"
    """NGram and Suffix look drafts up in the text so far."""
    tokens: Count = 3
    """Draft tokens of a step."""


class Rollout(Model):
    """The generation."""

    engine: Literal["vLLM"] = "vLLM"
    """Engine of the generation."""
    parallelism: RolloutParallelism = RolloutParallelism()
    """How a replica is spread."""
    max_sequences: Count | None = None
    """Sequences that a replica decodes at a time; default: the engine's."""
    max_batched_tokens: Count | None = None
    """Tokens of one forward pass of a replica."""
    memory_fraction: Decimal | None = None
    """Share of a device's memory for weights and KV cache; verl: 0.5."""
    capture_sizes: Annotated[list[Count], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Batch sizes whose graphs are captured."""
    eager: bool | None = None
    """No graphs."""
    chunked_prefill: bool | None = None
    """Split long prompts over several passes."""
    temperature: Decimal | None = None
    """Of the sampling; verl: 1."""
    top_p: Decimal | None = None
    """Share of probability to sample from; verl: 1."""
    top_k: SignedDecimal | None = None
    """Tokens to sample from; -1: all."""
    speculative: SpeculativeDecoding = SpeculativeDecoding()
    """Draft tokens."""


class Optimizations(Model):
    """What makes a job faster; Auto is decided once, with its reason in status.resolved.decisions."""

    skip_old_log_prob: Switch = Switch.AUTO
    """Leave out the pass for the old log-probabilities where one update per batch makes the ratio 1."""
    core_binding: Switch = Switch.AUTO
    """Bind each worker to cores near its device."""
    gc_freeze: Switch = Switch.AUTO
    """Keep Python's garbage collector out of decoding."""
    load_balancer: Literal["Auto", "TokenAware", "RequestCount"] = "Auto"
    """How requests are given to replicas."""


class Verl(Model):
    """The rest of verl's configuration."""

    overrides: Annotated[dict[str, Anything], Field(max_length=256)] = {}
    """Hydra key -> JSON scalar or list; keys that a typed field sets are refused."""
