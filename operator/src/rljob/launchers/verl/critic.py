"""Rows of PPO's value model, which shares devices, sizes and engine with the actor.

verl's V1 trainer reads neither batch size of the critic's own section: its engine takes dynamic micro batches of
`ppo_infer_max_token_len_per_gpu` tokens unless the engine's section says otherwise (trainer/ppo/v1/trainer_base.py,
`_setup`; workers/config/engine.py, EngineConfig). The fields are therefore written where they take effect.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import DYNAMIC, FSDP2, MEGATRON, PPO, OverrideRow, RowCondition, both, number
from rljob.launchers.verl.sizes import micro_batch, uses_megatron

CRITIC_YAML = "trainer/config/critic/critic.yaml"
CRITIC = "workers/config/critic.py"
ENGINE = "workers/config/engine.py"
STATIC = RowCondition("maxTokensPerDevice is not set", lambda s: not DYNAMIC.holds(s))


def critic_path(spec: RLJobSpec) -> str:
    """Return the folder with the critic's weights."""
    return (spec.critic and spec.critic.path) or spec.model.path


def critic_micro_batch(spec: RLJobSpec) -> int:
    """Return the samples of one pass of the critic on a device."""
    return (spec.critic and spec.critic.micro_batch_size_per_device) or micro_batch(spec)


def _learning_rate(spec: RLJobSpec) -> float | None:
    return number(spec.critic.learning_rate) if spec.critic else None


def _engine_rows(section: str, engine: RowCondition) -> tuple[OverrideRow, ...]:
    """Return the rows for the section of an engine."""
    here, size = both(PPO, engine), "critic.microBatchSizePerDevice"
    static = both(here, STATIC)
    return (
        OverrideRow(f"+critic.{section}.use_dynamic_bsz", size, ENGINE, lambda _: False, static),
        OverrideRow(f"+critic.{section}.micro_batch_size_per_gpu", size, ENGINE, critic_micro_batch, static),
        OverrideRow(f"+critic.{section}.infer_micro_batch_size_per_gpu", size, ENGINE, critic_micro_batch, static),
        OverrideRow(
            f"critic.{section}.param_offload",
            "trainer.offload.parameters",
            ENGINE,
            lambda s: s.trainer.offload.parameters,
            here,
            own=False,
        ),
        OverrideRow(
            f"critic.{section}.optimizer_offload",
            "trainer.offload.optimizer",
            ENGINE,
            lambda s: s.trainer.offload.optimizer,
            here,
            own=False,
        ),
    )


def _size_row(key: str, field: str, size: str) -> OverrideRow:
    return OverrideRow(
        f"critic.megatron.{key}",
        f"trainer.parallelism.{field}",
        ENGINE,
        lambda s: getattr(s.trainer.parallelism, size),
        both(PPO, MEGATRON),
        own=False,
    )


ROWS = (
    OverrideRow("critic.model.path", "critic.path", "trainer/config/model/hf_model.yaml", critic_path, PPO),
    OverrideRow(
        "critic.model.trust_remote_code",
        "model.trustRemoteCode",
        "trainer/config/model/hf_model.yaml",
        lambda s: s.model.trust_remote_code,
        PPO,
    ),
    OverrideRow(
        "critic.strategy", "trainer.backend", CRITIC, lambda s: "megatron" if uses_megatron(s) else "fsdp2", PPO
    ),
    OverrideRow("critic.optim.lr", "critic.learningRate", "workers/config/optimizer.py", _learning_rate, PPO),
    OverrideRow(
        "critic.optim.clip_grad",
        "trainer.gradientClip",
        "workers/config/optimizer.py",
        lambda s: number(s.trainer.gradient_clip),
        PPO,
        own=False,
    ),
    OverrideRow(
        "critic.ppo_micro_batch_size_per_gpu", "critic.microBatchSizePerDevice", CRITIC_YAML, critic_micro_batch, PPO
    ),
    OverrideRow(
        "critic.ppo_max_token_len_per_gpu",
        "trainer.maxTokensPerDevice",
        CRITIC_YAML,
        lambda s: s.trainer.max_tokens_per_device,
        both(PPO, DYNAMIC),
        own=False,
    ),
    OverrideRow(
        "+critic.ppo_infer_max_token_len_per_gpu",
        "trainer.maxTokensPerDevice",
        CRITIC,
        lambda s: s.trainer.max_tokens_per_device,
        both(PPO, DYNAMIC),
        own=False,
    ),
    OverrideRow(
        "critic.fsdp.ulysses_sequence_parallel_size",
        "trainer.parallelism.sequence",
        ENGINE,
        lambda s: s.trainer.parallelism.sequence,
        both(PPO, FSDP2),
        own=False,
    ),
    _size_row("tensor_model_parallel_size", "tensor", "tensor"),
    _size_row("pipeline_model_parallel_size", "pipeline", "pipeline"),
    _size_row("context_parallel_size", "context", "context"),
    _size_row("expert_model_parallel_size", "expert", "expert"),
    _size_row("expert_tensor_parallel_size", "expertTensor", "expert_tensor"),
    *_engine_rows("fsdp", FSDP2),
    *_engine_rows("megatron", MEGATRON),
)
