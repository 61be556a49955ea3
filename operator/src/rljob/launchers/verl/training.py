"""Rows of model, data, reward, algorithm and trainer."""

from __future__ import annotations

from rljob.api.training import GroupFilter, Overlong
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.algorithms import algorithm_of
from rljob.launchers.verl.rows import (
    ACTOR,
    DAPO,
    DYNAMIC,
    EVALUATE,
    FSDP2,
    MEGATRON,
    MODEL,
    PPO,
    REF,
    ROLLOUT,
    OverrideRow,
    both,
    number,
)
from rljob.launchers.verl.sizes import micro_batch, mini_batch, uses_megatron
from rljob.render.accelerators import facts_of

PPO_YAML = "trainer/config/ppo_trainer.yaml"
ACTOR_YAML = "trainer/config/actor/actor.yaml"
FSDP_YAML = "trainer/config/engine/fsdp.yaml"
MEGATRON_YAML = "trainer/config/engine/megatron.yaml"
OPTIMIZER = "workers/config/optimizer.py"
REWARD_YAML = "trainer/config/reward/reward.yaml"
DATA_YAML = "trainer/config/data/legacy_data.yaml"

DAPO_CLIP_HIGH = 0.28
"""https://arxiv.org/abs/2503.14476, section 4.1."""


def _filter(spec: RLJobSpec) -> GroupFilter:
    return spec.algorithm.group_filter or GroupFilter()


def _clip_high(spec: RLJobSpec) -> float | None:
    default = DAPO_CLIP_HIGH if DAPO.holds(spec) else None
    return default if spec.algorithm.clip_ratio_high is None else float(spec.algorithm.clip_ratio_high)


def _ulysses(spec: RLJobSpec) -> int | None:
    size = spec.trainer.parallelism.sequence
    return size if size > 1 else None


def _strategy(spec: RLJobSpec) -> str:
    return "megatron" if uses_megatron(spec) else "fsdp2"


def _reward(spec: RLJobSpec) -> str | None:
    return spec.reward.builtin.location if spec.reward.builtin is not None else spec.reward.path


MODEL_ROWS = (
    OverrideRow(f"{MODEL}.path", "model.path", "trainer/config/model/hf_model.yaml", lambda s: s.model.path),
    OverrideRow(
        f"{MODEL}.trust_remote_code",
        "model.trustRemoteCode",
        "trainer/config/model/hf_model.yaml",
        lambda s: s.model.trust_remote_code,
    ),
    OverrideRow("data.train_files", "data.train", DATA_YAML, lambda s: list(s.data.train)),
    OverrideRow("data.val_files", "data.validation", DATA_YAML, lambda s: list(s.data.validation or s.data.train)),
    OverrideRow("data.max_prompt_length", "data.maxPromptTokens", DATA_YAML, lambda s: s.data.max_prompt_tokens),
    OverrideRow(
        "data.filter_overlong_prompts",
        "data.overlong",
        "utils/dataset/rl_dataset.py",
        lambda s: s.data.overlong is Overlong.FILTER,
    ),
    # verl 0.9.1 reads the key and cuts on the left whatever it says (experimental/agent_loop/agent_loop.py:437-446).
    # The runtime's trainer enforces "error" (rljob_runtime.verl_plugin.trainer.overlong).
    OverrideRow(
        "data.truncation",
        "data.overlong",
        "utils/dataset/rl_dataset.py",
        lambda s: "left" if s.data.overlong is Overlong.TRUNCATE else "error",
    ),
    OverrideRow("data.max_response_length", "data.maxResponseTokens", DATA_YAML, lambda s: s.data.max_response_tokens),
    OverrideRow("reward.custom_reward_function.path", "reward.path", REWARD_YAML, _reward),
    OverrideRow("reward.custom_reward_function.name", "reward.function", REWARD_YAML, lambda s: s.reward.function),
)

ALGORITHM_ROWS = (
    OverrideRow("algorithm.adv_estimator", "algorithm.name", PPO_YAML, lambda s: algorithm_of(s).estimator),
    OverrideRow(
        f"{ACTOR}.use_kl_loss", "algorithm.klCoefficient", ACTOR_YAML, lambda s: float(s.algorithm.kl_coefficient) > 0
    ),
    OverrideRow(
        f"{ACTOR}.kl_loss_coef", "algorithm.klCoefficient", ACTOR_YAML, lambda s: float(s.algorithm.kl_coefficient)
    ),
    OverrideRow(
        f"{ACTOR}.clip_ratio_low", "algorithm.clipRatioLow", ACTOR_YAML, lambda s: number(s.algorithm.clip_ratio_low)
    ),
    OverrideRow(f"{ACTOR}.clip_ratio_high", "algorithm.clipRatioHigh", ACTOR_YAML, _clip_high),
    OverrideRow(
        f"{ACTOR}.entropy_coeff",
        "algorithm.entropyCoefficient",
        ACTOR_YAML,
        lambda s: number(s.algorithm.entropy_coefficient),
    ),
    OverrideRow("algorithm.gamma", "algorithm.discount", PPO_YAML, lambda s: number(s.algorithm.discount)),
    OverrideRow("algorithm.lam", "algorithm.gaeLambda", PPO_YAML, lambda s: number(s.algorithm.gae_lambda)),
    OverrideRow("algorithm.filter_groups.enable", "algorithm.name", PPO_YAML, lambda _: True, DAPO),
    OverrideRow(
        "algorithm.filter_groups.metric", "algorithm.groupFilter.metric", PPO_YAML, lambda s: _filter(s).metric, DAPO
    ),
    OverrideRow(
        "algorithm.filter_groups.max_inflight_gen_batches",
        "algorithm.groupFilter.maxInflightBatches",
        PPO_YAML,
        lambda s: _filter(s).max_inflight_batches,
        DAPO,
    ),
    OverrideRow(f"{ACTOR}.loss_agg_mode", "algorithm.name", ACTOR_YAML, lambda _: "token-mean", DAPO, own=False),
    # It adds the metric `acc` to each sample, by which groups are filtered (experimental/reward_loop/reward_manager).
    OverrideRow("reward.reward_manager.name", "algorithm.name", REWARD_YAML, lambda _: "dapo", DAPO, own=False),
)

BATCH_ROWS = (
    OverrideRow("data.train_batch_size", "trainer.globalBatchSize", DATA_YAML, lambda s: s.trainer.global_batch_size),
    OverrideRow(f"{ACTOR}.ppo_mini_batch_size", "trainer.miniBatchSize", ACTOR_YAML, mini_batch),
    OverrideRow(f"{ACTOR}.ppo_micro_batch_size_per_gpu", "trainer.microBatchSizePerDevice", ACTOR_YAML, micro_batch),
    # Passes without gradients may be larger than passes with gradients; the field is only their default.
    OverrideRow(
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
        "trainer.microBatchSizePerDevice",
        "trainer/config/rollout/rollout.yaml",
        micro_batch,
        own=False,
    ),
    OverrideRow(
        f"{REF}.log_prob_micro_batch_size_per_gpu",
        "trainer.microBatchSizePerDevice",
        "trainer/config/ref/ref.yaml",
        micro_batch,
        own=False,
    ),
    # Reference and log-probabilities follow both keys (trainer/config/ref/ref.yaml, rollout/rollout.yaml).
    OverrideRow(f"{ACTOR}.use_dynamic_bsz", "trainer.maxTokensPerDevice", ACTOR_YAML, lambda _: True, DYNAMIC),
    OverrideRow(
        f"{ACTOR}.ppo_max_token_len_per_gpu",
        "trainer.maxTokensPerDevice",
        ACTOR_YAML,
        lambda s: s.trainer.max_tokens_per_device,
    ),
    OverrideRow(
        f"{ROLLOUT}.n",
        "trainer.samplesPerPrompt",
        "trainer/config/rollout/rollout.yaml",
        lambda s: s.trainer.samples_per_prompt,
    ),
)

TRAINER_ROWS = (
    OverrideRow("model_engine", "trainer.backend", PPO_YAML, lambda _: "megatron", MEGATRON),
    OverrideRow(f"{ACTOR}.strategy", "trainer.backend", "workers/config/actor.py", _strategy),
    OverrideRow(f"{REF}.strategy", "trainer.backend", "workers/config/actor.py", _strategy),
    # Padded batches are slower on Ascend, and needed only for gated delta layers (checks/limits.py).
    OverrideRow(
        f"{MODEL}.use_remove_padding",
        "trainer.backend",
        "trainer/config/model/hf_model.yaml",
        lambda _: True,
        MEGATRON,
        own=False,
    ),
    # The Ascend image has mbridge; verl's default imports Megatron-Bridge (verl/models/mcore/bridge.py, 0.9.1).
    OverrideRow(
        f"{ACTOR}.megatron.vanilla_mbridge", "trainer.backend", MEGATRON_YAML, lambda _: True, MEGATRON, own=False
    ),
    OverrideRow(
        "critic.megatron.vanilla_mbridge",
        "trainer.backend",
        MEGATRON_YAML,
        lambda _: True,
        both(PPO, MEGATRON),
        own=False,
    ),
    OverrideRow(f"{ACTOR}.optim.lr", "trainer.learningRate", OPTIMIZER, lambda s: float(s.trainer.learning_rate)),
    OverrideRow(
        f"{ACTOR}.optim.clip_grad", "trainer.gradientClip", OPTIMIZER, lambda s: number(s.trainer.gradient_clip)
    ),
    OverrideRow("trainer.device", "accelerator.class", PPO_YAML, lambda s: facts_of(s).platform.value),
    OverrideRow("trainer.nnodes", "workerGroups[].nodes", PPO_YAML, lambda s: s.trainer_group.nodes),
    OverrideRow(
        "trainer.n_gpus_per_node",
        "workerGroups[].devicesPerNode",
        PPO_YAML,
        lambda s: s.trainer_group.devices_per_node,
    ),
    OverrideRow("trainer.total_training_steps", "trainer.steps", PPO_YAML, lambda s: s.trainer.steps),
    # The number of steps ends the run. An epoch has at least one step, so this many epochs always suffice.
    OverrideRow("trainer.total_epochs", "trainer.steps", PPO_YAML, lambda s: s.trainer.steps),
    OverrideRow(
        "trainer.test_freq", "trainer.evaluateEverySteps", PPO_YAML, lambda s: s.trainer.evaluate_every_steps or -1
    ),
    OverrideRow("trainer.val_only", "trainer.mode", PPO_YAML, lambda _: True, EVALUATE),
    OverrideRow(
        "trainer.val_before_train",
        "trainer.evaluateBeforeTraining",
        PPO_YAML,
        lambda s: True if EVALUATE.holds(s) else s.trainer.evaluate_before_training,
    ),
)

PARALLELISM_ROWS = (
    # The reference model follows the actor (trainer/config/ref/dp_ref.yaml and megatron_ref.yaml).
    OverrideRow(
        f"{ACTOR}.ulysses_sequence_parallel_size",
        "trainer.parallelism.sequence",
        "workers/config/actor.py",
        lambda s: s.trainer.parallelism.sequence,
        FSDP2,
    ),
    # The engine's own key takes effect where the key above is 1, so it must not say something else
    # (workers/config/actor.py:328, trainer/config/actor/dp_actor.yaml:33: the key above is the older of the two).
    OverrideRow(
        f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size",
        "trainer.parallelism.sequence",
        FSDP_YAML,
        _ulysses,
        FSDP2,
    ),
    OverrideRow(
        f"{REF}.fsdp_config.ulysses_sequence_parallel_size",
        "trainer.parallelism.sequence",
        FSDP_YAML,
        _ulysses,
        FSDP2,
        own=False,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.tensor_model_parallel_size",
        "trainer.parallelism.tensor",
        MEGATRON_YAML,
        lambda s: s.trainer.parallelism.tensor,
        MEGATRON,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.pipeline_model_parallel_size",
        "trainer.parallelism.pipeline",
        MEGATRON_YAML,
        lambda s: s.trainer.parallelism.pipeline,
        MEGATRON,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.context_parallel_size",
        "trainer.parallelism.context",
        MEGATRON_YAML,
        lambda s: s.trainer.parallelism.context,
        MEGATRON,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.expert_model_parallel_size",
        "trainer.parallelism.expert",
        MEGATRON_YAML,
        lambda s: s.trainer.parallelism.expert,
        MEGATRON,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.expert_tensor_parallel_size",
        "trainer.parallelism.expertTensor",
        MEGATRON_YAML,
        lambda s: s.trainer.parallelism.expert_tensor,
        MEGATRON,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.sequence_parallel", "trainer.backend", MEGATRON_YAML, lambda _: True, MEGATRON, own=False
    ),
    OverrideRow(
        f"{ACTOR}.fsdp_config.param_offload",
        "trainer.offload.parameters",
        FSDP_YAML,
        lambda s: s.trainer.offload.parameters,
        FSDP2,
    ),
    OverrideRow(
        f"{ACTOR}.fsdp_config.optimizer_offload",
        "trainer.offload.optimizer",
        FSDP_YAML,
        lambda s: s.trainer.offload.optimizer,
        FSDP2,
    ),
    OverrideRow(
        f"{REF}.fsdp_config.param_offload",
        "trainer.offload.reference",
        FSDP_YAML,
        lambda s: s.trainer.offload.reference,
        FSDP2,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.param_offload",
        "trainer.offload.parameters",
        MEGATRON_YAML,
        lambda s: s.trainer.offload.parameters,
        MEGATRON,
    ),
    OverrideRow(
        f"{ACTOR}.megatron.optimizer_offload",
        "trainer.offload.optimizer",
        MEGATRON_YAML,
        lambda s: s.trainer.offload.optimizer,
        MEGATRON,
    ),
    OverrideRow(
        f"{REF}.megatron.param_offload",
        "trainer.offload.reference",
        MEGATRON_YAML,
        lambda s: s.trainer.offload.reference,
        MEGATRON,
    ),
)

ROWS = (*MODEL_ROWS, *ALGORITHM_ROWS, *BATCH_ROWS, *TRAINER_ROWS, *PARALLELISM_ROWS)
