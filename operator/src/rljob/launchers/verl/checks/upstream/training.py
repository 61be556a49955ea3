"""Settings that verl 0.9.1 refuses in its configuration classes and workers, after the pods have started."""

from __future__ import annotations

from rljob.launchers.verl.algorithms import has_critic
from rljob.launchers.verl.checks.upstream.rule import Rule, Table
from rljob.launchers.verl.checks.upstream.settings import Settings
from rljob.launchers.verl.effective import VLLM
from rljob.launchers.verl.rows import ACTOR, REF, ROLLOUT
from rljob_runtime.planning import dynamic_context

LOSS_MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
SCHEDULES = ("constant", "cosine")
QUANTIZATIONS = ("fp8", "torchao", "ascend")
REPLAYS = ("disabled", "R2", "R3")
MOMENT_TYPES = ("fp32", "float32", "32", "bf16", "bfloat16")
MANAGERS = ("naive", "dapo", "gdpo", "remote", "rate_limited")
"""verl/experimental/reward_loop/reward_manager: what its modules register."""
REWARD, MANAGER = "reward.reward_kwargs", "reward.reward_manager"
LENGTH = f"{VLLM}.max_model_len"
MEGATRON = f"{ACTOR}.megatron"
DYNAMIC = f"{MEGATRON}.{dynamic_context.SETTING}"
STATIC_SIZE = "verl refuses it beside the size per device, which spec.trainer.microBatchSizePerDevice sets; remove it"
NO_SIZE = "null: verl needs a micro batch size per device unless spec.trainer.maxTokensPerDevice is set; remove it"


def _has_reference(s: Settings) -> bool:
    return s.on(f"{ACTOR}.use_kl_loss") or s.on("algorithm.use_kl_in_reward")


def _has_critic(s: Settings) -> bool:
    return has_critic(s.spec)


def _penalizes_length(s: Settings) -> bool:
    return s.get("reward.reward_manager.name") == "dapo" and s.on(f"{REWARD}.overlong_buffer_cfg.enable")


def _replay(s: Settings) -> object:
    return s.get(f"{MEGATRON}.router_replay.mode", REPLAYS[0]) if s.megatron else REPLAYS[0]


MICRO_BATCHES = (
    Rule(
        "actor-micro-batch",
        "verl/workers/config/actor.py:201",
        f"{ACTOR}.ppo_micro_batch_size",
        lambda s: not s.dynamic and s.get(f"{ACTOR}.ppo_micro_batch_size") is not None,
        STATIC_SIZE,
    ),
    Rule(
        "critic-micro-batch",
        "verl/workers/config/critic.py:153",
        "critic.ppo_micro_batch_size",
        lambda s: (
            _has_critic(s)
            and not s.on("critic.use_dynamic_bsz", default=s.dynamic)
            and s.get("critic.ppo_micro_batch_size") is not None
        ),
        "verl refuses it beside the size per device, which spec.critic.microBatchSizePerDevice sets; remove it",
    ),
    Rule(
        "rollout-micro-batch",
        "verl/utils/config.py:158",
        f"{ROLLOUT}.log_prob_micro_batch_size",
        lambda s: (
            not s.dynamic
            and s.get(f"{ROLLOUT}.log_prob_micro_batch_size") is not None
            and s.get(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", 1) is not None
        ),
        STATIC_SIZE,
    ),
    Rule(
        "reference-micro-batch",
        "verl/utils/config.py:158",
        f"{REF}.log_prob_micro_batch_size",
        lambda s: (
            not s.dynamic
            and _has_reference(s)
            and s.get(f"{REF}.log_prob_micro_batch_size") is not None
            and s.get(f"{REF}.log_prob_micro_batch_size_per_gpu", 1) is not None
        ),
        STATIC_SIZE,
    ),
    Rule(
        "rollout-micro-batch-missing",
        "verl/workers/engine_workers.py:636",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
        lambda s: not s.dynamic and s.get(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", 1) is None,
        NO_SIZE,
    ),
    Rule(
        "reference-micro-batch-missing",
        "verl/utils/config.py:155",
        f"{REF}.log_prob_micro_batch_size_per_gpu",
        lambda s: (
            not s.dynamic
            and _has_reference(s)
            and s.get(f"{REF}.log_prob_micro_batch_size_per_gpu", 1) is None
            and s.get(f"{REF}.log_prob_micro_batch_size") is None
        ),
        NO_SIZE,
    ),
    Rule(
        "log-prob-tokens",
        "verl/workers/engine_workers.py:633",
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
        lambda s: s.dynamic and s.get(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", 1) is None,
        "null: with spec.trainer.maxTokensPerDevice verl needs a number of tokens; remove it",
    ),
)

ALGORITHM = (
    Rule(
        "loss-aggregation",
        "verl/workers/config/actor.py:220",
        f"{ACTOR}.loss_agg_mode",
        lambda s: s.get(f"{ACTOR}.loss_agg_mode", LOSS_MODES[0]) not in LOSS_MODES,
        f"{{value}} is not a mode of verl 0.9.1; use one of {', '.join(LOSS_MODES)}",
    ),
    Rule(
        "dual-clip",
        "verl/trainer/ppo/core_algos.py:1331",
        f"{ACTOR}.clip_ratio_c",
        lambda s: (
            s.number(f"{ACTOR}.clip_ratio_c", 3) <= 1
            and s.get(f"{ACTOR}.policy_loss.loss_mode", "vanilla") == "vanilla"
        ),
        "{value}: the lower bound of dual-clip PPO must be above 1; 3 is usual",
    ),
    Rule(
        "replay-mode",
        "verl/workers/config/engine.py:73",
        f"{MEGATRON}.router_replay.mode",
        lambda s: _replay(s) not in REPLAYS,
        f"{{value}} is not a mode of router replay; use one of {', '.join(REPLAYS)}",
    ),
    Rule(
        "replay-bypass",
        "verl/utils/config.py:82",
        "algorithm.rollout_correction.bypass_mode",
        lambda s: _replay(s) == "R2" and s.on("algorithm.rollout_correction.bypass_mode"),
        "router_replay.mode R2 records routes in the pass for old log-probabilities, which bypass mode skips; set it "
        "to false, or use R3",
    ),
    Rule(
        "overlong-length",
        "verl/experimental/reward_loop/reward_manager/dapo.py:40",
        f"{REWARD}.overlong_buffer_cfg.enable",
        lambda s: _penalizes_length(s) and s.get(f"{REWARD}.max_resp_len") is None,
        f"the penalty for overlong responses needs +{REWARD}.max_resp_len; set it to spec.data.maxResponseTokens",
    ),
    Rule(
        "overlong-buffer-long",
        "verl/experimental/reward_loop/reward_manager/dapo.py:43",
        f"{REWARD}.overlong_buffer_cfg.len",
        lambda s: (
            _penalizes_length(s)
            and s.get(f"{REWARD}.max_resp_len") is not None
            and s.number(f"{REWARD}.max_resp_len") < s.number(f"{REWARD}.overlong_buffer_cfg.len")
        ),
        "{value} is more than max_resp_len; lower it",
    ),
    Rule(
        "overlong-buffer-empty",
        "verl/experimental/reward_loop/reward_manager/dapo.py:46",
        f"{REWARD}.overlong_buffer_cfg.len",
        lambda s: _penalizes_length(s) and s.number(f"{REWARD}.overlong_buffer_cfg.len") <= 0,
        "{value}: the penalty for overlong responses needs a buffer of 1 token or more; set it, or disable the penalty",
    ),
    Rule(
        "filter-needs-rewards",
        "verl/trainer/ppo/v1/trainer_base.py:200",
        "reward.reward_model.enable",
        lambda s: (
            s.on("algorithm.filter_groups.enable")
            and s.on("reward.reward_model.enable")
            and not s.on("reward.reward_model.enable_resource_pool")
        ),
        "DAPO filters groups while it samples, but a reward model on the trainer's devices scores afterwards; use a "
        "reward function",
    ),
)

MANAGEMENT = (
    Rule(
        "reward-module",
        "verl/trainer/ppo/reward.py:100",
        f"{MANAGER}.source",
        lambda s: s.get(f"{MANAGER}.source") == "importlib" and s.get(f"{MANAGER}.module.path") is None,
        f"{{value}} needs {MANAGER}.module.path; set it, or use register",
    ),
    Rule(
        "reward-source",
        "verl/trainer/ppo/reward.py:108",
        f"{MANAGER}.source",
        lambda s: s.get(f"{MANAGER}.source", "register") not in ("register", "importlib"),
        "{value} is no source of a reward manager; use register or importlib",
    ),
)

ENGINES = (
    Rule(
        "schedule",
        "verl/workers/config/optimizer.py:123",
        f"{ACTOR}.optim.lr_scheduler_type",
        lambda s: not s.megatron and s.get(f"{ACTOR}.optim.lr_scheduler_type", SCHEDULES[0]) not in SCHEDULES,
        "{value} is not a schedule of verl's FSDP optimizer; use constant or cosine",
    ),
    Rule(
        "warmup-style",
        "verl/workers/config/optimizer.py:118",
        f"{ACTOR}.optim.warmup_style",
        lambda s: not s.megatron and s.get(f"{ACTOR}.optim.warmup_style") not in (None, *SCHEDULES),
        "{value} is not a schedule of verl's FSDP optimizer; use optim.lr_scheduler_type constant or cosine",
    ),
    Rule(
        "megatron-type",
        "verl/workers/config/engine.py:218",
        f"{MEGATRON}.dtype",
        lambda s: s.megatron and s.get(f"{MEGATRON}.dtype", "bfloat16") not in ("bfloat16", "float16"),
        "{value} is not supported; use bfloat16 or float16",
    ),
    *(
        Rule(
            f"megatron-{name}",
            "verl/workers/config/optimizer.py:231",
            f"{ACTOR}.optim.{name}",
            lambda s, name=name: s.megatron and str(s.get(f"{ACTOR}.optim.{name}", "fp32")) not in MOMENT_TYPES,  # type: ignore[misc]
            "{value} is not supported; use fp32 or bf16",
        )
        for name in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    ),
    Rule(
        "megatron-bridge",
        "verl/workers/engine/megatron/transformer_impl.py:191",
        f"{MEGATRON}.use_mbridge",
        lambda s: s.megatron and not s.on(f"{MEGATRON}.use_mbridge", default=True),
        "{value}, but verl 0.9.1 loads weights through Megatron-Bridge only; remove it",
    ),
    *(
        Rule(
            name,
            "verl/workers/engine/megatron/transformer_impl.py:261",
            f"{section}.megatron.{dynamic_context.SETTING}",
            lambda s, section=section, built=built: (  # type: ignore[misc]
                s.megatron and built(s) and s.on(f"{section}.megatron.{dynamic_context.SETTING}")
            ),
            f"verl needs {dynamic_context.NEEDS}; set it to false, and set spec.trainer.parallelism.context so that "
            "the longest sequence fits",
        )
        for name, section, built in (
            ("dynamic-context", ACTOR, lambda _: True),
            # Without a value of its own the reference has the actor's, which is reported there.
            ("dynamic-context-reference", REF, lambda s: _has_reference(s) and not s.on(DYNAMIC)),
            ("dynamic-context-critic", "critic", _has_critic),
        )
    ),
    Rule(
        "quantization",
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py:1242",
        f"{ROLLOUT}.quantization",
        lambda s: s.get(f"{ROLLOUT}.quantization") not in (None, *QUANTIZATIONS),
        f"{{value}} is not supported by verl 0.9.1; use one of {', '.join(QUANTIZATIONS)}",
    ),
)

DOUBTFUL = (
    Rule(
        "reward-manager",
        "verl/experimental/reward_loop/reward_manager/registry.py:52",
        f"{MANAGER}.name",
        lambda s: s.get(f"{MANAGER}.source", "register") == "register" and s.get(f"{MANAGER}.name") not in MANAGERS,
        f"{{value}} is none of verl's reward managers ({', '.join(MANAGERS)}), so the run ends unless a module of the "
        "image registers it",
    ),
)

RULES = (*MICRO_BATCHES, *ALGORITHM, *MANAGEMENT, *ENGINES)
REFUSED = Table(RULES)
DOUBTS = Table(DOUBTFUL)
