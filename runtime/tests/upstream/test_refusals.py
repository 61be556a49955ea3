"""verl's own code on both sides of the rules in launchers/verl/checks/upstream.

Each case is named like its rule: verl refuses the first settings and accepts the second ones. test_rules.py does the
same for the rules of the other checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rljob_runtime import hydra_config
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, OverrideValue, Platform
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool

SPOOL, SCRATCH = Spool(Path("/spool")), Path("/scratch")
ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
Settings = dict[str, OverrideValue]
MINIMAL: Settings = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 32,
    f"{ACTOR}.ppo_mini_batch_size": 32,
    f"{ROLLOUT}.n": 8,
    f"{ROLLOUT}.tensor_model_parallel_size": 1,
    "actor_rollout_ref.model.path": "/model",
}
MEGATRON: Settings = {
    "model_engine": "megatron",
    f"{ACTOR}.strategy": "megatron",
    f"{REF}.strategy": "megatron",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4,
    f"{ROLLOUT}.name": "vllm",
}
KL: Settings = {f"{ACTOR}.use_kl_loss": True}
TOKENS: Settings = {f"{ACTOR}.use_dynamic_bsz": True}
REPLAY, BYPASS = f"{ACTOR}.megatron.router_replay.mode", "algorithm.rollout_correction.bypass_mode"
LENGTH = "+reward.reward_kwargs.max_resp_len"
BUFFER = "+reward.reward_kwargs.overlong_buffer_cfg"

CASES: dict[str, tuple[Settings, Settings]] = {
    "actor-micro-batch": (
        {f"{ACTOR}.ppo_micro_batch_size": 4},
        {f"{ACTOR}.ppo_micro_batch_size": 4} | TOKENS,
    ),
    "rollout-micro-batch": (
        {f"{ROLLOUT}.log_prob_micro_batch_size": 4},
        TOKENS | {f"{ROLLOUT}.log_prob_micro_batch_size": 4},
    ),
    "reference-micro-batch": (
        KL | {f"{REF}.log_prob_micro_batch_size": 4},
        {f"{REF}.log_prob_micro_batch_size": 4},
    ),
    "reference-micro-batch-missing": (
        KL | {f"{REF}.log_prob_micro_batch_size_per_gpu": None},
        {f"{REF}.log_prob_micro_batch_size_per_gpu": None},
    ),
    "loss-aggregation": ({f"{ACTOR}.loss_agg_mode": "mean"}, {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}),
    "replay-mode": (MEGATRON | {REPLAY: "R1"}, MEGATRON | {REPLAY: "R2"}),
    "replay-bypass": (MEGATRON | {REPLAY: "R2", BYPASS: True}, MEGATRON | {REPLAY: "R3", BYPASS: True}),
    "schedule": ({f"{ACTOR}.optim.lr_scheduler_type": "linear"}, {f"{ACTOR}.optim.lr_scheduler_type": "cosine"}),
    "warmup-style": ({f"{ACTOR}.optim.warmup_style": "wsd"}, {f"{ACTOR}.optim.warmup_style": "constant"}),
    "megatron-type": (
        MEGATRON | {f"{ACTOR}.megatron.dtype": "float32"},
        MEGATRON | {f"{ACTOR}.megatron.dtype": "float16"},
    ),
    "megatron-main_grads_dtype": (
        MEGATRON | {f"{ACTOR}.optim.main_grads_dtype": "fp8"},
        MEGATRON | {f"{ACTOR}.optim.main_grads_dtype": "bf16"},
    ),
    "reward-manager": ({"reward.reward_manager.name": "prime"}, {"reward.reward_manager.name": "rate_limited"}),
}


def judged(settings: Settings) -> None:
    """Compose a configuration and let verl judge it as it does before and in its workers."""
    from verl.trainer.ppo.reward import resolve_reward_manager_cls
    from verl.utils.config import omega_conf_to_dataclass

    job = JobConfig(
        version=CONTRACT_VERSION,
        namespace="ns",
        name="job",
        uid="u",
        cluster_name="c",
        cluster_generation=1,
        platform=Platform.NPU if "model_engine" in settings else Platform.CPU,
        nodes=1,
        devices=2,
        dies_per_card=2,
        total_steps=40,
        overrides=MINIMAL | settings,
    )
    config = hydra_config.compose(job, SPOOL, SCRATCH)
    hydra_config.validate(config)
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    resolve_reward_manager_cls(config)


@pytest.fixture(autouse=True)
def _any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep trainer.device: without an NPU, verl would set it to the device that it finds."""
    from verl.utils import device

    monkeypatch.setattr(device, "auto_set_device", lambda _: None)


@pytest.mark.parametrize(("refused", "accepted"), CASES.values(), ids=CASES.keys())
def test_verl_refuses_one_side_and_accepts_the_other(refused: Settings, accepted: Settings) -> None:
    from hydra.errors import InstantiationException

    judged(accepted)
    with pytest.raises((RefusedError, InstantiationException, ValueError)):
        judged(refused)


def test_a_reward_manager_from_a_file_needs_its_path(tmp_path: Path) -> None:
    (tmp_path / "manager.py").write_text("class Mine:\n    pass\n")
    settings: Settings = {"reward.reward_manager.source": "importlib", "reward.reward_manager.name": "Mine"}
    judged(settings | {"reward.reward_manager.module.path": str(tmp_path / "manager.py")})
    with pytest.raises(AssertionError, match="Module path is required"):
        judged(settings)
    with pytest.raises(ValueError, match="Unknown reward manager source: file"):
        judged({"reward.reward_manager.source": "file"})


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [
        ({"enable": True, "len": 16, "max": None}, False),
        ({"enable": True, "len": 65, "max": 64}, False),
        ({"enable": True, "len": 0, "max": 64}, False),
        ({"enable": True, "len": 64, "max": 64}, True),
        ({"enable": False, "len": 0, "max": None}, True),
    ],
)
def test_the_penalty_for_overlong_responses_needs_a_length_and_a_buffer(
    settings: dict[str, Any], accepted: bool
) -> None:
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager

    buffer = {"enable": settings["enable"], "len": settings["len"], "penalty_factor": 1.0, "log": False}
    kwargs = {"overlong_buffer_cfg": buffer, "max_resp_len": settings["max"]}
    config = OmegaConf.create({"reward": {"reward_kwargs": kwargs}})

    def made() -> object:
        return DAPORewardManager(config, None, lambda **_: 0.0)

    if accepted:
        made()
    else:
        with pytest.raises(AssertionError):
            made()


def test_the_loss_needs_a_bound_of_its_dual_clip_above_1() -> None:
    import torch
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig

    one = torch.ones(1, 1)

    def loss(bound: float) -> object:
        config = ActorConfig(
            strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, clip_ratio_c=bound
        )
        return get_policy_loss_fn("vanilla")(one, one, one, one, config=config)

    loss(3.0)
    with pytest.raises(AssertionError):
        loss(1.0)


FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
TENSOR = {"tensor_model_parallel_size": 2, "sequence_parallel": True}
STAGES = {"pipeline_model_parallel_size": 2, "pipeline_dtype": "bf16"}
DELTA = {
    "experimental_attention_variant": "gated_delta_net",
    "linear_attention_freq": 1,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
}
MOE = {"num_moe_experts": 4, "moe_ffn_hidden_size": 16, "add_bias_linear": False}
OVERLAP = {"overlap_moe_expert_parallel_comm": True, "bf16": True}
LAST = {"num_layers_in_last_pipeline_stage": 2}
SPLIT = "account_for_{}_in_pipeline_split"
CORE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "recompute-modules": (
        {"recompute_granularity": "selective", "recompute_modules": ["all"]},
        {"recompute_granularity": "selective", "recompute_modules": ["mlp"]},
    ),
    "recompute-distributed": (
        FULL | TENSOR | {"distribute_saved_activations": True},
        FULL | {"distribute_saved_activations": True},
    ),
    "offload-pipeline": (STAGES | {"cpu_offloading": True}, {"cpu_offloading": True, "cpu_offloading_num_layers": 1}),
    "offload-recompute": (FULL | {"cpu_offloading": True}, FULL | {"cpu_offloading": False}),
    "dispatcher-allgather": (
        MOE | {"moe_token_dispatcher_type": "allgather", "variable_seq_lengths": True},
        MOE | {"moe_token_dispatcher_type": "allgather", "variable_seq_lengths": False},
    ),
    "deepep": (
        MOE | {"moe_enable_deepep": True, "moe_token_dispatcher_type": "alltoall"},
        MOE | {"moe_enable_deepep": True, "moe_token_dispatcher_type": "flex"},
    ),
    "capacity-missing": (
        MOE | {"moe_pad_expert_input_to_capacity": True},
        MOE | {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.5},
    ),
    "dense-experts": ({"expert_model_parallel_size": 2}, MOE | {"expert_model_parallel_size": 2}),
    "overlap-experts": (
        MOE | OVERLAP | {"moe_token_dispatcher_type": "alltoall"},
        MOE | OVERLAP | {"moe_token_dispatcher_type": "alltoall", "expert_model_parallel_size": 2},
    ),
    "overlap-recompute": (
        MOE | OVERLAP | FULL | {"moe_token_dispatcher_type": "alltoall", "expert_model_parallel_size": 2},
        MOE | OVERLAP | {"moe_token_dispatcher_type": "alltoall", "expert_model_parallel_size": 2},
    ),
    "delayed-gradients": (
        MOE | {"delay_wgrad_compute": True},
        MOE
        | OVERLAP
        | {"delay_wgrad_compute": True, "moe_token_dispatcher_type": "alltoall", "expert_model_parallel_size": 2},
    ),
    "delta-context": (DELTA | {"context_parallel_size": 2}, DELTA),
    "delta-key-heads": (DELTA | TENSOR | {"linear_num_key_heads": 3, "linear_num_value_heads": 6}, DELTA | TENSOR),
    "delta-value-heads": (DELTA | TENSOR | {"linear_num_key_heads": 1, "linear_num_value_heads": 3}, DELTA | TENSOR),
    "stage-empty-first": (STAGES | {"num_layers_in_first_pipeline_stage": 0}, STAGES),
    "stage-empty-last": (STAGES | {"num_layers_in_last_pipeline_stage": 0}, STAGES),
    "layout-embedding": (STAGES | LAST | {SPLIT.format("embedding"): True}, STAGES | LAST),
    "layout-loss": (STAGES | LAST | {SPLIT.format("loss"): True}, STAGES | LAST),
    "layout-twice": (
        STAGES | LAST | {"pipeline_model_parallel_layout": "Et*2|t*2L"},
        STAGES | {"pipeline_model_parallel_layout": "Et*2|t*2L"},
    ),
    "embedding-gradients": (
        {"defer_embedding_wgrad_compute": True, "gradient_accumulation_fusion": True},
        STAGES | {"defer_embedding_wgrad_compute": True, "gradient_accumulation_fusion": True},
    ),
}


@pytest.mark.usefixtures("megatron")
@pytest.mark.parametrize(("refused", "accepted"), CORE.values(), ids=CORE.keys())
def test_megatron_refuses_one_side_and_accepts_the_other(refused: dict[str, Any], accepted: dict[str, Any]) -> None:
    module = pytest.importorskip("megatron.core.transformer.transformer_config", exc_type=ImportError)
    sizes = {"num_layers": 4, "hidden_size": 16, "num_attention_heads": 4}
    module.TransformerConfig(**sizes, **accepted)
    with pytest.raises((AssertionError, ValueError)):
        module.TransformerConfig(**sizes, **refused)
