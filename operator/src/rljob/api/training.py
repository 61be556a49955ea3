"""The training part of an RLJob: model, data, reward, algorithm, trainer, rollout and optimizations.

Typed fields are those that the operator computes with; every other setting of verl goes through `verl.overrides`. A
field that is not set keeps the default of verl 0.9.1, unless its description states another default.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from rljob.api import forms
from rljob.api.base import ATOMIC, Count, Decimal, MapAsText, Model, Path, Quantity, SignedDecimal, Switch
from rljob_runtime.contract.rewards import BuiltinReward

Factor = Annotated[int, Field(ge=1, le=65_536, json_schema_extra={"format": "int32"})]
"""Size of one dimension of parallelism."""
COLOCATE_ASYNC: Final = "ColocateAsync"
SEPARATE_ASYNC: Final = "SeparateAsync"
ASYNC_MODES: Final = (COLOCATE_ASYNC, SEPARATE_ASYNC)
"""The asynchronous values of trainer.mode."""


class MemoryCheck(enum.StrEnum):
    """What happens to a job whose model does not fit into device memory."""

    REFUSE = "Refuse"
    WARN = "Warn"


class ModelSource(Model):
    """The model to train."""

    path: Path
    """Folder with the model's Hugging Face files."""
    layers: Count | None = None
    """Number of transformer layers, used to validate pipeline stages. Defaults to that of config or architecture."""
    attention_heads: Count | None = None
    """Number of attention heads, used to validate tensor and sequence sizes. Defaults to that of config or
    architecture."""
    experts: Count | None = None
    """Number of experts per mixture-of-experts layer, used to validate expert parallelism. Defaults to that of config
    or architecture."""
    trust_remote_code: bool | None = None
    """Run the Python files that are stored with the weights."""
    architecture: Annotated[str, Field(max_length=63)] | None = None
    """Name of a built-in architecture, such as Qwen3-235B-A22B. The operator plans memory for it and compares its sizes
    with the parallel sizes."""
    config: Annotated[dict[str, Any], MapAsText(16_384)] = {}
    """Content of the model's config.json, as text in JSON or YAML: an alternative to architecture."""
    memory_check: MemoryCheck = MemoryCheck.REFUSE
    """What to do if the plan exceeds a die's memory: Refuse the job, or Warn. Defaults to Refuse."""


class Overlong(enum.StrEnum):
    """What happens to prompts that are longer than maxPromptTokens."""

    FILTER = "Filter"
    TRUNCATE = "Truncate"
    FAIL = "Fail"


class Data(Model):
    """The prompts to train and validate on."""

    train: Annotated[list[Path], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)]
    """Files with the training prompts: Parquet, JSON or JSON Lines, by the suffix."""
    validation: Annotated[list[Path], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Files with the validation prompts, like train. Defaults to the files of train."""
    max_prompt_tokens: Count = 1024
    """Maximum length of a prompt, in tokens. Defaults to 1024."""
    overlong: Overlong = Overlong.FILTER
    """What to do with longer prompts. Filter leaves them out, Truncate keeps the last maxPromptTokens tokens, and Fail
    ends the job before a model is loaded. Each reports their number. Defaults to Filter."""
    max_response_tokens: Count = 1024
    """Maximum length of a response, in tokens. Defaults to 1024."""


class Judge(Model):
    """A model that the reward function asks, served on the workers with role Judge."""

    path: Path
    """Folder with the judge's Hugging Face files."""
    tensor: Factor = 1
    """Tensor-parallel size of a replica, a divisor of the group's devicesPerNode. Defaults to 1."""
    max_tokens: Count
    """Maximum length of a question and its answer together, in tokens."""
    memory_fraction: Decimal = "0.8"
    """Share of a die's memory for weights and KV cache. Defaults to 0.8."""


class Reward(Model):
    """The function that scores a response: a file of yours, or one that the runtime brings."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("path", "builtin")

    path: Path | None = None
    """Path of the Python file."""
    builtin: BuiltinReward | None = None
    """A function of the runtime, which calls that of verl. GSM8K: 1 if the number after the last #### is the answer,
    otherwise 0. MATH: 1 if the content of the last \\boxed{} is the answer, otherwise 0; for MATH-lighteval and
    DeepScaleR. DAPOMath: 1 if the text after the last Answer: is the answer, otherwise -1; it also returns acc, by
    which DAPO filters. ByDataSource: what verl chooses for the column data_source."""
    function: Annotated[str, Field(max_length=253, pattern=forms.FUNCTION_NAME.pattern)] = "compute_score"
    """Name of a function in that file, with verl's signature (data_source, solution_str, ground_truth, extra_info).
    Defaults to compute_score."""
    judge: Judge | None = None
    """A model that the function asks, on a worker group with role Judge. The function also gets reward_router_address,
    where the judge answers the OpenAI API over HTTP, and reward_model_tokenizer."""


class AlgorithmName(enum.StrEnum):
    """Algorithms for reinforcement learning."""

    GRPO = "GRPO"
    DAPO = "DAPO"
    """GRPO that filters prompts whose responses all score alike, with a higher upper clip and a token-level loss."""
    PPO = "PPO"
    """Generalized advantage estimation with a critic."""
    REINFORCE_PLUS_PLUS = "ReinforcePlusPlus"
    RLOO = "RLOO"
    REMAX = "ReMax"
    """The baseline is the score of a greedy response to the same prompt, generated together with the others."""


class GroupFilter(Model):
    """The prompts that DAPO filters out."""

    metric: Annotated[str, Field(max_length=128, pattern=forms.METRIC_NAME.pattern)] = "acc"
    """`reward`, or a key of the reward function's result. Groups of responses that are equal in this metric are
    filtered out. Defaults to acc."""
    max_inflight_batches: Count | None = None
    """Maximum number of generation batches in flight while filtered prompts are replaced."""


class Algorithm(Model):
    """The reinforcement learning algorithm."""

    name: AlgorithmName = AlgorithmName.GRPO
    """Algorithm that estimates advantages. Defaults to GRPO."""
    kl_coefficient: Decimal = "0"
    """Weight of the KL loss against the reference policy. 0 disables the reference model. Defaults to 0."""
    clip_ratio_low: Decimal | None = None
    """Lower clip of the probability ratio. Defaults to verl's 0.2."""
    clip_ratio_high: Decimal | None = None
    """Upper clip of the probability ratio. Defaults to verl's 0.2, and to 0.28 for DAPO."""
    entropy_coefficient: Decimal | None = None
    """Weight of the entropy bonus. Defaults to verl's 0."""
    discount: Decimal | None = None
    """Discount factor of later rewards (gamma). Defaults to verl's 1."""
    gae_lambda: Decimal | None = None
    """Lambda of generalized advantage estimation, which trades bias against variance in PPO. Defaults to verl's 1."""
    group_filter: GroupFilter | None = None
    """Filter of prompt groups, for DAPO only."""


LORA_RANK_MAX = 512
"""The largest of vllm.config.lora.MaxLoRARanks (0.23.0), which verl asks for (vllm_rollout/utils.py:83-98, 0.9.1)."""
ModuleName = Annotated[str, Field(min_length=1, max_length=253)]


class Critic(Model):
    """The value model of PPO."""

    path: Path | None = None
    """Folder with the critic's Hugging Face files. Defaults to model.path."""
    learning_rate: Decimal | None = None
    """Learning rate of the critic's optimizer. Defaults to verl's 1e-5."""
    micro_batch_size_per_device: Count | None = None
    """Number of samples per forward and backward pass on a device. Defaults to trainer.microBatchSizePerDevice."""


class TrainerParallelism(Model):
    """How the model is sharded for training. The remaining factor of the devices is data parallelism."""

    tensor: Factor = 1
    """Number of devices that share each layer. Defaults to 1."""
    pipeline: Factor = 1
    """Number of pipeline stages. Defaults to 1."""
    context: Factor = 1
    """Number of devices that share a sequence by ring attention. Defaults to 1."""
    expert: Factor = 1
    """Number of devices that share the experts. Defaults to 1."""
    expert_tensor: Factor | None = None
    """Number of devices that share each expert. Defaults to Megatron's value, which is tensor."""
    sequence: Factor = 1
    """Number of devices that share a sequence by Ulysses, for FSDP2 only. Defaults to 1."""


class Offload(Model):
    """What is kept in host memory while it is not in use."""

    parameters: bool | None = None
    """Offload the weights of the actor."""
    gradients: bool | None = None
    """Offload the gradients, for Megatron and MindSpeed only. verl moves them together with the weights, so the value
    must equal parameters."""
    optimizer: bool | None = None
    """Offload the state of the optimizer."""
    reference: bool | None = None
    """Offload the weights of the reference model."""


class TrainerBackend(enum.StrEnum):
    """Training backends."""

    FSDP2 = "FSDP2"
    MEGATRON = "Megatron"
    MINDSPEED = "MindSpeed"
    """Megatron-Core with MindSpeed's kernels for Ascend."""


class AsyncTraining(Model):
    """How far generation runs ahead of training, and what is done about responses of older weights."""

    prefetch_batches: Decimal = "1"
    """Number of batches of prompts, 0 to 16, that are in flight beside the one of the step; fractions are allowed. A
    prompt waits as many steps for its turn. Defaults to 1."""
    max_staleness: Annotated[int, Field(ge=1, le=64, json_schema_extra={"format": "int32"})] = 7
    """Maximum number of updates of the weights between the time at which a prompt is sent and the step that trains its
    responses. Of these, prefetchBatches are used up by waiting; the rest is what long responses may take. Defaults to
    7."""
    stale: Literal["Wait", "Drop"] = "Wait"
    """What happens at this bound. Wait: the step waits until the prompt has ended, so that every prompt is trained.
    Drop: its responses are discarded and another prompt is sent, which loses prompts with long responses first.
    Defaults to Wait."""
    correction: Literal["None", "Token", "Sequence"] = "Token"
    """Importance sampling of responses of older weights. Token: each token is weighted by how much more probable it has
    become. Sequence: the whole response is, which has no bias and a larger variance. None: they are trained as if the
    present weights had generated them. Defaults to Token."""
    correction_threshold: Decimal = "2"
    """Largest weight; higher ones are cut to it. Defaults to 2."""


class LoRA(Model):
    """A low-rank adapter, which is trained in place of the model's weights."""

    rank: Annotated[int, Field(ge=1, le=LORA_RANK_MAX, json_schema_extra={"format": "int32"})]
    """Rank of the adapter, 1 to 512."""
    alpha: Count | None = None
    """Scale of the adapter times its rank. Defaults to rank, a scale of 1."""
    targets: Annotated[list[ModuleName], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)] | None = None
    """Modules that get an adapter, by the backend's names, such as q_proj (FSDP2) or linear_qkv (Megatron). Defaults to
    all linear layers but the output."""
    path: Path | None = None
    """Folder with an adapter in the format of peft, from which training begins; its own alpha and targets apply. Unset,
    a new adapter is trained."""


class Trainer(Model):
    """How the policy is updated."""

    backend: TrainerBackend = TrainerBackend.FSDP2
    """Training backend. Defaults to FSDP2."""
    mode: Literal["Sync", "ColocateAsync", "SeparateAsync", "Evaluate"] = "Sync"
    """Sync: each step generates responses to its own prompts and trains them. ColocateAsync: on the same devices,
    prompts run ahead of the step, pause while it trains, and resume with the new weights. SeparateAsync: workers of
    role Rollout generate while those of role Trainer train, and pause only while they receive new weights. Evaluate:
    run one pass over data.validation and finish without training. Defaults to Sync."""
    async_: Annotated[AsyncTraining | None, Field(alias="async")] = None
    """How far generation runs ahead of training, for the modes ColocateAsync and SeparateAsync only."""
    steps: Count
    """Number of steps of the whole run. It may be increased while the job runs; the next attempt uses the new value."""
    global_batch_size: Count
    """Number of prompts per step."""
    mini_batch_size: Count | None = None
    """Number of prompts per optimizer update. Defaults to globalBatchSize."""
    micro_batch_size_per_device: Count | None = None
    """Number of samples per forward and backward pass on a device. Defaults to the device's whole share of a mini
    batch."""
    max_tokens_per_device: Count | None = None
    """Maximum number of tokens per forward and backward pass on a device. If set, enables dynamic micro batches."""
    samples_per_prompt: Count = 8
    """Number of responses per prompt, which is the group size of GRPO. Defaults to 8."""
    lora: LoRA | None = None
    """Train a LoRA adapter. Unset, all weights are trained. Exports and evaluations have it merged into the model."""
    learning_rate: Decimal = "1e-6"
    """Learning rate of the actor's optimizer. Defaults to 1e-6."""
    gradient_clip: Decimal | None = None
    """Maximum norm of the gradient. Defaults to verl's 1."""
    parallelism: TrainerParallelism = TrainerParallelism()
    """How the model is sharded for training."""
    offload: Offload = Offload()
    """What is kept in host memory while it is not in use."""
    evaluate_every_steps: Count | None = None
    """Number of steps between passes over data.validation; the last step has one as well. Unset, there are no such
    passes."""
    evaluate_before_training: bool | None = None
    """Run one pass over data.validation before the first step."""

    @model_validator(mode="before")
    @classmethod
    def _asynchronous_jobs_have_all_settings(cls, given: Any) -> Any:  # noqa: ANN401 - not validated yet
        """Fill in the settings of an asynchronous job, so that its snapshot holds their defaults."""
        if not isinstance(given, Mapping) or given.get("mode") not in ASYNC_MODES or given.keys() & {"async", "async_"}:
            return given
        return {**given, "async": {}}


class RolloutParallelism(Model):
    """How one replica of the engine is sharded. The remaining factor of the devices is the number of replicas."""

    tensor: Factor = 1
    """Number of devices that share each layer. Defaults to 1."""
    data: Factor = 1
    """Number of data-parallel ranks per replica. Defaults to 1."""
    expert: Factor = 1
    """Number of devices that share the experts: 1, or tensor × data. Defaults to 1."""


class SpeculativeDecoding(Model):
    """Speculative decoding without a draft model, because a draft model would be out of date after each step."""

    method: Literal["None", "NGram", "Suffix"] = "None"
    """NGram and Suffix propose tokens from the text generated so far. None disables speculation. Defaults to None."""
    tokens: Count = 3
    """Number of tokens proposed per decoding step. Defaults to 3."""
    max_sequences: Factor = 32
    """Maximum number of running sequences with which an engine proposes tokens. With more, checking proposals costs
    more than it saves. Defaults to 32."""
    history: Literal["Disabled", "Enabled"] = "Disabled"
    """Also propose tokens from responses of earlier steps to the same prompt, those with high rewards first. Requires
    Suffix. Defaults to Disabled."""
    history_memory: Quantity = "1Gi"
    """Memory of each engine process for these responses, 64Mi to 64Gi. Defaults to 1Gi."""


class Agent(Model):
    """Tools that the model calls: each call is executed, and the model continues its response with the result."""

    tools: Path
    """Python file whose functions with verl's decorator function_tool are the tools, or a YAML file in the form of
    verl's tool_config_path."""
    format: Literal["DeepSeekV4", "GLM", "Gemma4", "GPTOSS", "Hermes", "Kimi", "MiniMax", "Qwen3Coder", "Seed"] = (
        "Hermes"
    )
    """How the model writes calls. Qwen2.5 and Qwen3 use Hermes. Defaults to Hermes."""
    max_turns: Count | None = None
    """Maximum number of times that the model writes in a response. By default only data.maxResponseTokens bounds it."""
    max_parallel_calls: Count = 1
    """Maximum number of calls executed in one turn; further ones are ignored. Defaults to 1."""
    max_result_characters: Count = 256
    """Maximum number of characters of a result that the model reads. Defaults to 256."""
    truncate: Literal["Left", "Middle", "Right"] = "Middle"
    """Where a longer result is cut. Defaults to Middle."""


class Rollout(Model):
    """How responses are generated."""

    engine: Literal["vLLM"] = "vLLM"
    """Inference engine. Defaults to vLLM."""
    parallelism: RolloutParallelism = RolloutParallelism()
    """How one replica of the engine is sharded."""
    max_sequences: Count | None = None
    """Maximum number of sequences that a replica decodes at the same time. Defaults to the engine's value."""
    max_batched_tokens: Count | None = None
    """Maximum number of tokens per forward pass of a replica. Defaults to verl's value."""
    memory_fraction: Decimal | None = None
    """Fraction of a device's memory for weights and KV cache. Defaults to verl's 0.5."""
    capture_sizes: Annotated[list[Count], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Batch sizes for which graphs are captured. Defaults to the engine's list."""
    eager: bool | None = None
    """Disable graph capture (eager mode)."""
    chunked_prefill: bool | None = None
    """Split long prompts over several forward passes."""
    temperature: Decimal | None = None
    """Sampling temperature. Defaults to verl's 1.0."""
    top_p: Decimal | None = None
    """Cumulative probability of the tokens to sample from. Defaults to verl's 1.0."""
    top_k: SignedDecimal | None = None
    """Number of most likely tokens to sample from; -1 samples from all tokens."""
    speculative: SpeculativeDecoding = SpeculativeDecoding()
    """Speculative decoding."""
    agent: Agent | None = None
    """Tools that the model may call. Unset, a response is one turn."""


class Optimizations(Model):
    """Optimizations of a run. Auto is decided once, and status.resolved.decisions records the reason."""

    skip_old_log_prob: Switch = Switch.AUTO
    """Skip the forward pass for old log-probabilities where a single update per batch makes the ratio 1. Defaults to
    Auto."""
    batch_balance: Switch = Switch.AUTO
    """Distribute samples so that all ranks compute equally long in each update, not only in the whole step. Defaults to
    Auto."""
    core_binding: Switch = Switch.AUTO
    """Bind each worker to CPU cores near its device. Auto enables it on NPUs. Defaults to Auto."""
    gc_freeze: Switch = Switch.AUTO
    """Exempt the objects that live after the start from Python's garbage collection, in engines and trainer. Defaults
    to Auto."""
    load_balancer: Literal["Auto", "LateBinding", "RequestCount"] = "Auto"
    """How requests are distributed over the replicas: RequestCount sends each at once to the replica with the fewest,
    LateBinding when a replica has room, the longest expected response first. Defaults to Auto."""
    sleep_level: Annotated[int, Field(ge=1, le=2, json_schema_extra={"format": "int32"})] = 1
    """What vLLM does with its weights during training: 1 keeps them in host memory, 2 discards them. Defaults to 1."""
    prompt_order: Literal["Default", "LengthAware"] = "Default"
    """Order of the prompts in an epoch: LengthAware puts prompts with responses of similar length, as measured in
    earlier epochs, into the same batch. Defaults to Default, verl's order."""


class Verl(Model):
    """Settings of verl that have no field."""

    overrides: Annotated[dict[str, Any], MapAsText(16_384)] = {}
    """Hydra key -> scalar or list, as text in YAML or JSON. Keys that a typed field sets are rejected. Recipe and job
    are merged key by key."""
