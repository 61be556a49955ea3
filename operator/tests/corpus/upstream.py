"""Settings on which pinned upstream releases fail: a refused manifest for each rule, and one that just passes.

A case is named like its rule (rljob.launchers.verl.checks.upstream).
"""

from __future__ import annotations

from collections.abc import Mapping

from builders import group, judged

from corpus.bad import Bad, Json, key, megatron, merged, template, trainer

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"
OPTIONS = f"{ENGINE}.additional_config"
RUNTIME_ENV = "+ray_kwargs.ray_init.runtime_env.env_vars"
WORKERS = "spec.workerGroups[0].template.env[0]"

NPU: Json = {"accelerator": {"class": "atlas-a3-superpod"}}
MEGATRON = megatron({})
TENSOR = megatron({"tensor": 2})
STAGES = megatron({"pipeline": 2})
KL: Json = {"algorithm": {"klCoefficient": "0.001"}}
DAPO: Json = {"algorithm": {"name": "DAPO"}}
PPO: Json = {"algorithm": {"name": "PPO"}}
TOKENS = trainer(maxTokensPerDevice=2048)
DENSE: Json = {"model": {"architecture": "Qwen2.5-0.5B", "memoryCheck": "Warn"}}
DEEPSEEK: Json = {"architecture": "DeepSeek-V3", "memoryCheck": "Warn"}
MIXED: Json = {"model": {"experts": 128}}


SMALL = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "max_position_embeddings": 4096,
}


def sets(values: Mapping[str, object], *changes: Json) -> Json:
    """Return changes of a manifest with overrides."""
    change: Json = {"verl": {"overrides": dict(values)}}
    for more in changes:
        change = merged(change, more)
    return change


def config(**values: object) -> dict[str, object]:
    """Return overrides of the transformer's configuration."""
    return {f"+{TRANSFORMER}.{name}": value for name, value in values.items()}


def options(**values: object) -> dict[str, object]:
    """Return overrides of vllm-ascend's options; two underscores stand for a dot."""
    return {f"+{OPTIONS}.{name.replace('__', '.')}": value for name, value in values.items()}


def variables(**values: str) -> Json:
    """Set variables of the worker pods on NPUs."""
    return NPU | template({"env": [{"name": name, "value": value} for name, value in values.items()]})


def rollout(**values: object) -> Json:
    """Change the rollout on a whole node of NPUs."""
    return merged(NPU | group({"devicesPerNode": 16}) | trainer(globalBatchSize=16), {"rollout": values})


def delta(change: Json, **keys: object) -> Json:
    """Train a model with gated delta layers, which verl does not pack."""
    named = SMALL | {"layer_types": ["linear_attention", "full_attention"]} | keys
    model = {"model": {"config": named, "memoryCheck": "Warn"}}
    return sets({"actor_rollout_ref.model.use_remove_padding": False}, change, model)


def _override(name: str) -> str:
    return f"spec.verl.overrides[{name}]"


def _case(name: str, value: object, message: str, *changes: Json, **more: object) -> Bad:
    """Return a refused override of the key of `name`, beside other overrides."""
    others = {str(key): member for key, member in more.items()}
    return Bad(sets({name: value} | others, *changes), _override(name), message)


def _config(name: str, value: object, message: str, *changes: Json, **more: object) -> Bad:
    """Return a refused field of the transformer's configuration; Megatron is the default backend."""
    key_ = f"+{TRANSFORMER}.{name}"
    return Bad(sets({key_: value} | config(**more), *(changes or (MEGATRON,))), _override(key_), message)


def _option(name: str, value: object, message: str, *changes: Json, **more: object) -> Bad:
    """Return a refused option of vllm-ascend."""
    key_ = f"+{OPTIONS}.{name}"
    return Bad(sets({key_: value} | options(**more), *(changes or (NPU,))), _override(key_), message)


MICRO = f"{ACTOR}.ppo_micro_batch_size"
LOG_PROB = f"{ROLLOUT}.log_prob_micro_batch_size"
REF_PROB = f"{REF}.log_prob_micro_batch_size"
DYNAMIC = f"{ROLLOUT}.log_prob_use_dynamic_bsz"
BUFFER, RESPONSE = "+reward.reward_kwargs.overlong_buffer_cfg", "+reward.reward_kwargs.max_resp_len"
REPLAY, BYPASS = f"{ACTOR}.megatron.router_replay.mode", "algorithm.rollout_correction.bypass_mode"
MANAGER = "reward.reward_manager"
CONTEXTS = "dynamic_context_parallel"

TRAINING = {
    "actor-micro-batch": _case(MICRO, 4, "verl refuses it beside the size per device"),
    "critic-micro-batch": _case("critic.ppo_micro_batch_size", 4, "spec.critic.microBatchSizePerDevice", PPO),
    "rollout-micro-batch": _case(LOG_PROB, 4, "verl refuses it beside the size per device"),
    "reference-micro-batch": _case(REF_PROB, 4, "verl refuses it beside the size per device", KL),
    "rollout-micro-batch-missing": _case(f"{LOG_PROB}_per_gpu", None, "null: verl needs a micro batch size"),
    "reference-micro-batch-missing": _case(f"{REF_PROB}_per_gpu", None, "null: verl needs a micro batch size", KL),
    "log-prob-tokens": _case(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", None, "needs a number of tokens", TOKENS),
    "loss-aggregation": _case(f"{ACTOR}.loss_agg_mode", "mean", "mean is not a mode of verl 0.9.1; use one of token"),
    "dual-clip": _case(f"{ACTOR}.clip_ratio_c", 1, "1: the lower bound of dual-clip PPO must be above 1"),
    "replay-mode": _case(REPLAY, "R1", "R1 is not a mode of router replay", MEGATRON),
    "replay-bypass": _case(BYPASS, True, "which bypass mode skips", sets({REPLAY: "R2"}, MEGATRON)),
    "overlong-length": _case(f"{BUFFER}.enable", True, "set it to spec.data.max", sets({f"{BUFFER}.len": 16}, DAPO)),
    "overlong-buffer-long": _case(
        f"{BUFFER}.len", 65, "65 is more than max_resp_len", sets({f"{BUFFER}.enable": True, RESPONSE: 64}, DAPO)
    ),
    "overlong-buffer-empty": _case(
        f"{BUFFER}.len", 0, "needs a buffer of 1 token", sets({f"{BUFFER}.enable": True, RESPONSE: 64}, DAPO)
    ),
    "filter-needs-rewards": _case(
        "reward.reward_model.enable",
        True,
        "use a reward function",
        DAPO,
        **{"reward.reward_model.model_path": "/judge"},
    ),
    "reward-module": _case(f"{MANAGER}.source", "importlib", "needs reward.reward_manager.module.path"),
    "reward-source": _case(f"{MANAGER}.source", "file", "file is no source of a reward manager"),
    "schedule": _case(f"{ACTOR}.optim.lr_scheduler_type", "linear", "linear is not a schedule"),
    "warmup-style": _case(f"{ACTOR}.optim.warmup_style", "wsd", "wsd is not a schedule"),
    "megatron-type": _case(f"{ACTOR}.megatron.dtype", "float32", "use bfloat16 or float16", MEGATRON),
    **{
        f"megatron-{name}": _case(f"{ACTOR}.optim.{name}", "fp8", "fp8 is not supported; use fp32", MEGATRON)
        for name in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    },
    "megatron-bridge": _case(f"{ACTOR}.megatron.use_mbridge", False, "through Megatron-Bridge only", MEGATRON),
    "dynamic-context": _case(f"{ACTOR}.megatron.{CONTEXTS}", True, "contains NVIDIA/Megatron-LM#5154", MEGATRON),
    "dynamic-context-reference": _case(
        f"{REF}.megatron.{CONTEXTS}", True, "set spec.trainer.parallelism.context so", MEGATRON, KL
    ),
    "dynamic-context-critic": _case(f"critic.megatron.{CONTEXTS}", True, "up to 0.16.1", MEGATRON, PPO),
    "quantization": _case(f"{ROLLOUT}.quantization", "awq", "awq is not supported by verl 0.9.1"),
}
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
LAYOUT = {"pipeline_model_parallel_layout": "Et*2|t*2L"}

TRANSFORMERS = {
    "recompute-modules": _config(
        "recompute_modules", ["mlp", "all"], "names a module that Megatron", recompute_granularity="selective"
    ),
    "recompute-distributed": _config("distribute_saved_activations", True, "already shared by", TENSOR, **FULL),
    "hybrid-context": _config("hybrid_context_parallel", True, "in which verl has micro-batches"),
    "offload-pipeline": _config("cpu_offloading", True, "only without pipeline stages", STAGES),
    "offload-recompute": _config("cpu_offloading", True, "either offloads activations or", **FULL),
    "dispatcher-allgather": _config("moe_token_dispatcher_type", "allgather", "use alltoall"),
    "deepep": _config("moe_enable_deepep", True, "DeepEP needs moe_token_dispatcher_type flex"),
    "capacity-missing": _config("moe_pad_expert_input_to_capacity", True, "needs moe_expert_capacity_factor"),
    "delta-context": Bad(
        delta(megatron({"context": 2})), "spec.trainer.parallelism.context", "2, but Megatron does not split sequences"
    ),
    **{
        f"delta-{name}-heads": Bad(
            delta(megatron({"tensor": 2}), **{f"linear_num_{name}_heads": 3}),
            "spec.trainer.parallelism.tensor",
            f"2 does not divide linear_num_{name}_heads of spec.model.config",
        )
        for name in ("key", "value")
    },
    "overlap-experts": _config("overlap_moe_expert_parallel_comm", True, "needs spec.trainer.parallelism.expert"),
    "overlap-recompute": _config(
        "overlap_moe_expert_parallel_comm", True, "other than full", megatron({"expert": 2}), **FULL
    ),
    "delayed-gradients": _config("delay_wgrad_compute", True, "needs overlap_moe_expert_parallel_comm"),
    **{
        f"stage-empty-{name}": _config(f"num_layers_in_{name}_pipeline_stage", 0, "a stage needs 1 layer", STAGES)
        for name in ("first", "last")
    },
    **{
        f"layout-{name}": _config(
            f"account_for_{name}_in_pipeline_split", True, "remove one of", num_layers_in_last_pipeline_stage=1
        )
        for name in ("embedding", "loss")
    },
    "layout-twice": _config(
        "pipeline_model_parallel_layout", "Et*2|t*2L", "remove one of", STAGES, num_layers_in_last_pipeline_stage=1
    ),
    "embedding-gradients": _config("defer_embedding_wgrad_compute", True, "has no effect without pipeline stages"),
}

FINE = "finegrained_tp_config.{}_tensor_parallel_size"
FLASHCOMM = options(enable_flashcomm1=True)
WIDE = rollout(parallelism={"tensor": 4})
WIDER = rollout(parallelism={"tensor": 2, "data": 2, "expert": 4})
KERNEL = {"ascend_compilation_config__enable_npugraph_ex": False}

ASCEND = {
    "flashcomm-tensor": Bad(
        sets(FLASHCOMM, NPU), "spec.rollout.parallelism.tensor", "1, but enable_flashcomm1 (VLLM_ASCEND_ENABLE_FLASH"
    ),
    "flashcomm-experts": Bad(
        sets(FLASHCOMM, WIDE, MIXED), "spec.rollout.parallelism.expert", "needs expert parallelism for a mixture of"
    ),
    "flashcomm-graphs": Bad(
        sets(FLASHCOMM, rollout(parallelism={"tensor": 4}, captureSizes=[2, 6])),
        "spec.rollout.captureSizes",
        "only multiples of rollout.parallelism.tensor are captured",
    ),
    "flashcomm2-large": _option("enable_flashcomm2_parallel_size", 4, "must be less than rollout.par", WIDE),
    "flashcomm2-uneven": _option("enable_flashcomm2_parallel_size", 3, "must divide rollout.parallelism", WIDE),
    "disaggregated-recompute-scheduler-enable": _option("recompute_scheduler_enable", True, "only prefill or only"),
    "disaggregated-layer-sharding": _option("layer_sharding", ["o_proj"], "only prefill or only decode"),
    "disaggregated-enable-kv-nz": _option("enable_kv_nz", True, "only prefill or only decode"),
    **{
        f"disaggregated-{name}": _option(FINE.format(name), 2, "only prefill or only decode")
        for name in ("oproj", "olora", "embedding")
    },
    "fine-dense": _option(FINE.format("lmhead"), 1, "1: fine-grained tensor sizes are for mixtures", NPU | DENSE),
    "fine-uneven": _option(FINE.format("lmhead"), 3, "3 does not divide spec.rollout.parallelism.data", WIDER),
    "profiling-chunks": _option("profiling_chunk_config.enabled", True, "needs pipeline stages of the engine"),
    "static-kernel": _option(
        "ascend_compilation_config.enable_static_kernel", True, "needs enable_npugraph_ex", NPU, **KERNEL
    ),
    "mixed-placement": _option("mix_placement", True, "excludes", NPU, multistream_overlap_shared_expert=True),
    "xlite-drafts": _option(
        "xlite_graph_config.enabled", True, "set spec.rollout.speculative", rollout(speculative={"method": "NGram"})
    ),
    "dump-twice": _option("dump_config_path", "/dump.json", "excludes dump_config", NPU, dump_config__task="tensor"),
    "prefill-context-data": _case(f"+{ENGINE}.prefill_context_parallel_size", 2, "set one of them to 1", WIDER),
}

ALLOC = "PYTORCH_NPU_ALLOC_CONF"
EXPANDABLE = "max_split_size_mb:64,expandable_segments:True"
SEGMENTS = {"name": ALLOC, "value": "expandable_segments:True"}
PATCHED: Json = {"podSpecPatch": {"workers": {"containers": [{"name": "ray-worker", "env": [SEGMENTS]}]}}}
VARIABLES = {
    "allocator-segments": Bad(
        variables(**{ALLOC: EXPANDABLE}), WORKERS, "PYTORCH_NPU_ALLOC_CONF: expandable_segments:True ends the engine"
    ),
    "allocator-segments by a patch": Bad(
        NPU | PATCHED, "spec.podSpecPatch.workers.containers[0].env[0]", "verl switches the segments itself"
    ),
    "allocator-segments by Ray": Bad(
        sets({f"{RUNTIME_ENV}.{ALLOC}": "expandable_segments:True"}, NPU),
        _override(f"{RUNTIME_ENV}.{ALLOC}"),
        "remove it: verl switches the segments itself",
    ),
    "allocator-segments by a map of Ray": Bad(
        sets({RUNTIME_ENV: {ALLOC: "expandable_segments:True"}}, NPU), _override(RUNTIME_ENV), "ends the engine"
    ),
    "launch-blocking": Bad(variables(ASCEND_LAUNCH_BLOCKING="1"), WORKERS, "1 excludes captured graphs"),
    "engine-version": Bad(variables(VLLM_VERSION="main"), WORKERS, "a version such as 0.23.0; remove it"),
    "engine-data-size": Bad(variables(VLLM_DP_SIZE="2"), WORKERS, "set spec.rollout.parallelism.data"),
    "engine-dev-endpoints": Bad(variables(VLLM_SERVER_DEV_MODE="1"), WORKERS, "calls of any method and sleep"),
    "visible-rocr": Bad(
        variables(ROCR_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="0"), WORKERS, "refuses it beside CUDA_VISIBLE_DEVICES"
    ),
    "visible-hip": Bad(
        variables(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1"), WORKERS, "beside a different CUDA_VISIBLE_DEVICES"
    ),
}

RING = megatron({"context": 4})
MINDSPEED = {
    "ring-window": _config("cp_window_size", 4, "4 is not from 1 to spec.trainer.parallelism.context - 1", RING),
    "ring-windows": _config("cp_window_size", 3, "3 does not divide spec.trainer.parallelism.context", RING),
    "ulysses-heads": _config(
        "context_parallel_algo",
        "ulysses_cp_algo",
        "attention heads that are a multiple of tensor",
        megatron({"context": 4}, attentionHeads=6),
        seq_length=2048,
    ),
    "ulysses-heads of an architecture": _config(
        "context_parallel_algo",
        "ulysses_cp_algo",
        "attention heads that are a multiple of tensor",
        RING | DENSE,
        seq_length=2048,
    ),
    "ulysses-length": _config("context_parallel_algo", "ulysses_cp_algo", "needs +actor_rollout_ref.", RING),
    "hybrid-degree": _config("context_parallel_algo", "hybrid_cp_algo", "needs ulysses_degree_in_cp", RING),
    "moe-overlap": _config("moe_alltoall_overlap_comm", True, "overlap/moe_layer.py:210", megatron({}, experts=8)),
    "zero-memory": _config("moe_zero_memory", "level1", "level1 needs moe_fb_overlap", megatron({}, experts=8)),
    "fused-accumulation": _config(
        "gemm_gradient_accumulation_fusion", True, "needs moe_grouped_gemm", moe_grouped_gemm=False
    ),
    "fused-rotary": _config("use_fused_rotary_pos_emb", True, "fused_rope.py:26"),
    "swap-optimizer": _config("swap_optimizer", True, "swap_optimizer_feature.py:19"),
    "unaligned-stages": _config("pipeline_num_transformer_layers", [1, 1], "lacks an argument", STAGES),
    "sequence-tensor": _config("sequence_parallel", True, "only with spec.trainer.parallelism.tensor above 1"),
    "deepseek-rotary": Bad(
        merged(MEGATRON, {"model": DEEPSEEK}),
        "spec.verl.overrides[actor_rollout_ref.model.trust_remote_code]",
        "set spec.model.trustRemoteCode",
    ),
}

BAD = {**TRAINING, **TRANSFORMERS, **MINDSPEED, **ASCEND, **VARIABLES}

PASSES: dict[str, Json] = {
    "actor-micro-batch": sets({MICRO: 4}, TOKENS),
    "critic-micro-batch": key("critic.ppo_micro_batch_size", 4),
    "rollout-micro-batch": sets({LOG_PROB: 4}, TOKENS),
    "reference-micro-batch": key(REF_PROB, 4),
    "rollout-micro-batch-missing": sets({f"{LOG_PROB}_per_gpu": None}, TOKENS),
    "reference-micro-batch-missing": key(f"{REF_PROB}_per_gpu", None),
    "log-prob-tokens": key(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", None),
    "loss-aggregation": key(f"{ACTOR}.loss_agg_mode", "seq-mean-token-mean"),
    "dual-clip": sets({f"{ACTOR}.clip_ratio_c": 1, f"{ACTOR}.policy_loss.loss_mode": "gspo"}),
    "replay-mode": sets({REPLAY: "R2"}, MEGATRON),
    "replay-bypass": sets({REPLAY: "R3", BYPASS: True}, MEGATRON),
    "overlong-length": sets({f"{BUFFER}.enable": True, f"{BUFFER}.len": 16, RESPONSE: 64}, DAPO),
    "overlong-buffer-long": sets({f"{BUFFER}.enable": True, f"{BUFFER}.len": 64, RESPONSE: 64}, DAPO),
    "overlong-buffer-empty": sets({f"{BUFFER}.enable": False, f"{BUFFER}.len": 0}, DAPO),
    "filter-needs-rewards": merged(judged(), DAPO),
    "reward-module": sets({f"{MANAGER}.source": "importlib", f"{MANAGER}.module.path": "/code/manager.py"}),
    "reward-source": key(f"{MANAGER}.source", "register"),
    "schedule": key(f"{ACTOR}.optim.lr_scheduler_type", "cosine"),
    "warmup-style": key(f"{ACTOR}.optim.warmup_style", "constant"),
    "megatron-type": sets({f"{ACTOR}.megatron.dtype": "float16"}, MEGATRON),
    **{
        f"megatron-{name}": sets({f"{ACTOR}.optim.{name}": 32}, MEGATRON)
        for name in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    },
    "megatron-bridge": sets({f"{ACTOR}.megatron.use_mbridge": True}, MEGATRON),
    "dynamic-context": sets({f"{ACTOR}.megatron.{CONTEXTS}": False}, MEGATRON, KL),
    "dynamic-context-reference": sets({f"{REF}.megatron.{CONTEXTS}": True}, MEGATRON),
    "dynamic-context-critic": sets({f"critic.megatron.{CONTEXTS}": True}, MEGATRON),
    "quantization": key(f"{ROLLOUT}.quantization", "fp8"),
    "recompute-modules": sets(config(recompute_granularity="selective", recompute_modules=["moe"]), MEGATRON),
    "recompute-distributed": sets(config(distribute_saved_activations=True, **FULL), MEGATRON),
    "hybrid-context": sets(config(hybrid_context_parallel=False), MEGATRON),
    "offload-pipeline": sets(config(cpu_offloading=True), MEGATRON),
    "offload-recompute": sets(config(cpu_offloading=False, **FULL), MEGATRON),
    "dispatcher-allgather": sets(config(moe_token_dispatcher_type="allgather", variable_seq_lengths=False), MEGATRON),
    "deepep": sets(config(moe_enable_deepep=True, moe_token_dispatcher_type="flex"), MEGATRON),
    "capacity-missing": sets(config(moe_pad_expert_input_to_capacity=True, moe_expert_capacity_factor=1.5), MEGATRON),
    "delta-context": merged(megatron({"context": 2}), {"model": {"config": SMALL, "memoryCheck": "Warn"}}),
    **{
        f"delta-{name}-heads": delta(megatron({"tensor": 2}), **{f"linear_num_{name}_heads": 4})
        for name in ("key", "value")
    },
    "overlap-experts": sets(config(overlap_moe_expert_parallel_comm=True), megatron({"expert": 2})),
    "overlap-recompute": sets(
        config(overlap_moe_expert_parallel_comm=True, recompute_granularity="selective"), megatron({"expert": 2})
    ),
    "delayed-gradients": sets(
        config(overlap_moe_expert_parallel_comm=True, delay_wgrad_compute=True), megatron({"expert": 2})
    ),
    **{
        f"stage-empty-{name}": sets(config(**{f"num_layers_in_{name}_pipeline_stage": 1}), STAGES)
        for name in ("first", "last")
    },
    "layout-embedding": sets(config(account_for_embedding_in_pipeline_split=True), STAGES),
    "layout-loss": sets(config(account_for_loss_in_pipeline_split=True), STAGES),
    "layout-twice": sets(config(**LAYOUT), STAGES),
    "embedding-gradients": sets(config(defer_embedding_wgrad_compute=True), STAGES),
    "ring-window": sets(config(cp_window_size=1), RING),
    "ring-windows": sets(config(cp_window_size=2), RING),
    "ulysses-heads": sets(config(context_parallel_algo="ulysses_cp_algo", seq_length=2048), RING),
    "ulysses-length": sets(config(context_parallel_algo="ulysses_cp_algo", seq_length=64), RING),
    "hybrid-degree": sets(config(context_parallel_algo="hybrid_cp_algo", ulysses_degree_in_cp=2), RING),
    "moe-overlap": sets(config(moe_alltoall_overlap_comm=False), MEGATRON),
    "zero-memory": sets(config(moe_zero_memory="level0", moe_fb_overlap=True), MEGATRON),
    "fused-accumulation": sets(config(gemm_gradient_accumulation_fusion=True), MEGATRON),
    "fused-rotary": sets(config(use_fused_rotary_pos_emb=True, position_embedding_type="rope"), MEGATRON),
    "unaligned-stages": sets(config(num_layers_in_first_pipeline_stage=1), STAGES),
    "sequence-tensor": sets(config(sequence_parallel=True), TENSOR),
    "deepseek-rotary": sets({}, MEGATRON, {"model": DEEPSEEK | {"trustRemoteCode": True}}),
    "swap-optimizer": sets(config(swap_optimizer=True, use_distributed_optimizer=True), MEGATRON),
    "flashcomm-tensor": sets(FLASHCOMM, WIDE),
    "flashcomm-experts": sets(FLASHCOMM, rollout(parallelism={"tensor": 4, "expert": 4}), MIXED),
    "flashcomm-graphs": sets(FLASHCOMM, rollout(parallelism={"tensor": 4}, captureSizes=[2, 8])),
    "flashcomm2-large": sets(options(enable_flashcomm2_parallel_size=2), WIDE),
    "flashcomm2-uneven": sets(options(enable_flashcomm2_parallel_size="none"), WIDE),
    "disaggregated-recompute-scheduler-enable": sets(options(recompute_scheduler_enable=False), NPU),
    "disaggregated-layer-sharding": sets(options(layer_sharding=[]), NPU),
    "disaggregated-enable-kv-nz": sets(options(enable_kv_nz=True)),
    **{
        f"disaggregated-{name}": sets({f"+{OPTIONS}.{FINE.format(name)}": 0}, NPU)
        for name in ("oproj", "olora", "embedding")
    },
    "fine-dense": sets({f"+{OPTIONS}.{FINE.format('lmhead')}": 0}, NPU | DENSE),
    "fine-uneven": sets({f"+{OPTIONS}.{FINE.format('lmhead')}": 2}, WIDER),
    "profiling-chunks": sets(options(profiling_chunk_config__enabled="no"), NPU),
    "static-kernel": sets(options(ascend_compilation_config__enable_static_kernel=True), NPU),
    "mixed-placement": sets(options(mix_placement=True), NPU),
    "xlite-drafts": sets(
        options(xlite_graph_config__enabled=True), rollout(speculative={"method": "NGram", "tokens": 1})
    ),
    "dump-twice": sets(options(dump_config_path="/dump.json"), NPU),
    "prefill-context-data": sets({f"+{ENGINE}.prefill_context_parallel_size": 2}, WIDE),
    "allocator-segments": merged(
        variables(**{ALLOC: "expandable_segments:True"}), key(f"+{ROLLOUT}.enable_sleep_mode", False)
    ),
    "launch-blocking": merged(variables(ASCEND_LAUNCH_BLOCKING="1"), {"rollout": {"eager": True}}),
    "engine-version": variables(VLLM_VERSION="0.23.0"),
    "engine-data-size": variables(VLLM_DP_SIZE="1"),
    "engine-dev-endpoints": variables(VLLM_SERVER_DEV_MODE="0"),
    "visible-rocr": variables(ROCR_VISIBLE_DEVICES="0"),
    "visible-hip": variables(HIP_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="1"),
}
"""Rule -> a manifest that is as near as possible and valid."""
