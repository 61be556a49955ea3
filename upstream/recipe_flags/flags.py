"""Hydra flags of the published recipes, by sections of verl's configuration. Data."""

from __future__ import annotations

from upstream.recipe_flags.rows import Flag, Values, each, same

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"
NOTHING: Values = {}
BY_JOB = "set by the job, because it depends on volumes"
OVERLONG = "+reward.reward_kwargs.overlong_buffer_cfg"

DATA = (
    Flag("data.train_files", "data.train", NOTHING, note=BY_JOB),
    Flag("data.val_files", "data.validation", NOTHING, note=BY_JOB),
    Flag("data.prompt_key", "override", each((None, None, "prompt", None))),
    Flag("data.train_batch_size", "trainer.globalBatchSize", each((512, 512, 128, 32))),
    Flag("data.gen_batch_size", "left out", NOTHING, note="verl sets it to 1 if groups are filtered"),
    Flag("data.max_prompt_length", "data.maxPromptTokens", each((1024, 2048, 2048, 2048))),
    Flag("data.max_response_length", "data.maxResponseTokens", each((3072, 32768, 34816, 34816))),
    Flag("data.filter_overlong_prompts", "data.overlong", same(value=True), note="Filter, the default"),
    Flag("data.truncation", "data.overlong", same("error"), note="verl 0.9.1 does not act on it"),
    Flag("data.shuffle", "override", each((None, False, False, False))),
    Flag(
        "data.trust_remote_code",
        "model.trustRemoteCode",
        each((True, None, None, None)),
        "actor_rollout_ref.model.trust_remote_code",
        "verl 0.9.1 reads the tokenizer from the model's section",
    ),
    Flag(
        "custom_reward_function.path", "reward.path", NOTHING, note=f"{BY_JOB}; now reward.custom_reward_function.path"
    ),
    Flag(
        "custom_reward_function.name",
        "reward.function",
        same("compute_score"),
        "reward.custom_reward_function.name",
        "verl 0.9.1 silently ignores the old section",
    ),
)

ROLLOUT_FLAGS = (
    Flag(f"{ROLLOUT}.name", "rollout.engine", same("vllm")),
    Flag(f"{ROLLOUT}.mode=sync", "left out", NOTHING, note="removed; every rollout of verl 0.9.1 is asynchronous"),
    Flag(f"{ROLLOUT}.tensor_model_parallel_size", "rollout.parallelism.tensor", each((2, 4, 4, 8))),
    Flag(f"{ROLLOUT}.data_parallel_size", "rollout.parallelism.data", each((64, 32, 32, 1)), note="was VLLM_DP_SIZE"),
    Flag(
        f"{ROLLOUT}.expert_parallel_size",
        "rollout.parallelism.expert",
        each((128, 128, 128, 1)),
        note="was VLLM_ENABLE_EXPERT_PARALLEL",
    ),
    Flag(f"{ROLLOUT}.n", "trainer.samplesPerPrompt", same(16)),
    Flag(f"{ROLLOUT}.gpu_memory_utilization", "rollout.memoryFraction", each((0.8, 0.87, 0.85, 0.87))),
    Flag(f"{ROLLOUT}.enforce_eager", "rollout.eager", same(value=False)),
    Flag(f"{ROLLOUT}.max_num_batched_tokens", "rollout.maxBatchedTokens", each((1024, 34816, 36864, 36864))),
    Flag(f"{ROLLOUT}.enable_chunked_prefill", "rollout.chunkedPrefill", each((True, True, True, None))),
    Flag(f"{ROLLOUT}.max_num_seqs", "rollout.maxSequences", each((None, 256, 64, 128))),
    Flag(
        f"{ROLLOUT}.cudagraph_capture_sizes",
        "rollout.captureSizes",
        each((None, [32, 64, 128, 256], [8, 16, 32, 64], [16, 32, 64, 128])),
    ),
    Flag(f"{ROLLOUT}.temperature", "rollout.temperature", same(0.9)),
    Flag(f"{ROLLOUT}.top_k", "rollout.topK", each((50, 50, 50, -1))),
    Flag(f"{ROLLOUT}.top_p", "rollout.topP", each((0.9, 0.9, 0.9, 1.0))),
    Flag(f"{ROLLOUT}.ignore_eos", "override", same(value=False), note="true only with random weights"),
    Flag(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", "override", each((4, 4, 4, None))),
    Flag(
        f"{ROLLOUT}.trust_remote_code",
        "model.trustRemoteCode",
        each((True, None, None, None)),
        "actor_rollout_ref.model.trust_remote_code",
        "moved to the model's section",
    ),
    Flag(
        f"+{ROLLOUT}.engine_kwargs.vllm.speculative_config.method",
        "left out",
        NOTHING,
        note="`sam`, which is ngram by a patch, with 3 tokens. `rollout.speculative` sets it: off by default, because "
        "drafts switch the graphs of decoding off, and nobody has compared both on NPUs",
    ),
    Flag(
        f"+{ROLLOUT}.engine_kwargs.vllm.speculative_config.num_speculative_tokens",
        "left out",
        NOTHING,
        note="as above",
    ),
    Flag(
        f"{ROLLOUT}.load_format=dummy_megatron",
        "verl's default",
        NOTHING,
        note="`dummy`: the trainer's weights are sent before the first rollout",
    ),
    Flag(f"{ROLLOUT}.free_cache_engine", "verl's default", NOTHING, note="true"),
    Flag(f"{ROLLOUT}.val_kwargs.temperature", "verl's default", NOTHING, note="0"),
)

ACTOR_FLAGS = (
    Flag("actor_rollout_ref.model.path", "model.path", NOTHING, note=BY_JOB),
    Flag("actor_rollout_ref.model.enable_gradient_checkpointing", "override", each((True, None, None, None))),
    Flag(
        "actor_rollout_ref.model.gradient_checkpointing_kwargs.activations_checkpoint_granularity",
        "override",
        each(("full", None, None, None)),
        f"{TRANSFORMER}.recompute_granularity",
        "renamed",
    ),
    Flag(
        "actor_rollout_ref.model.gradient_checkpointing_kwargs.activations_checkpoint_method",
        "override",
        each(("block", None, None, None)),
        f"{TRANSFORMER}.recompute_method",
        "renamed",
    ),
    Flag(
        "actor_rollout_ref.model.gradient_checkpointing_kwargs.activations_checkpoint_num_layers",
        "override",
        each((8, None, None, None)),
        f"{TRANSFORMER}.recompute_num_layers",
        "renamed",
    ),
    Flag(
        f"{ACTOR}.load_weight",
        "left out",
        NOTHING,
        note="removed; weights are always loaded, so a run with random ones needs a folder with random weights",
    ),
    Flag(f"{ACTOR}.optim.lr", "trainer.learningRate", same(1e-6)),
    Flag(f"{ACTOR}.optim.clip_grad", "trainer.gradientClip", each((1.0, 10000.0, 10000.0, 10000.0))),
    Flag(f"{ACTOR}.ppo_mini_batch_size", "trainer.miniBatchSize", each((512, 512, 128, 32))),
    Flag(f"{ACTOR}.ppo_micro_batch_size_per_gpu", "trainer.microBatchSizePerDevice", same(1)),
    Flag(f"{ACTOR}.use_dynamic_bsz", "trainer.maxTokensPerDevice", each((None, True, True, True))),
    Flag(f"{ACTOR}.ppo_max_token_len_per_gpu", "trainer.maxTokensPerDevice", each((None, 8704, 9216, 18432))),
    Flag(f"{ACTOR}.use_packed_seq", "left out", NOTHING, note="removed; Megatron always packs (use_remove_padding)"),
    Flag(f"{ACTOR}.use_kl_loss", "algorithm.klCoefficient", each((True, True, False, True))),
    Flag(f"{ACTOR}.kl_loss_coef", "algorithm.klCoefficient", each((0.001, 0.001, 0.0, 0.001))),
    Flag(f"{ACTOR}.kl_loss_type", "override", same("low_var_kl"), note="also verl's default"),
    Flag(f"{ACTOR}.clip_ratio_low", "algorithm.clipRatioLow", each((None, None, 0.2, None))),
    Flag(f"{ACTOR}.clip_ratio_high", "algorithm.clipRatioHigh", each((None, None, 0.28, None))),
    Flag(f"{ACTOR}.clip_ratio_c", "override", each((None, None, 10.0, None))),
    Flag(f"{ACTOR}.entropy_coeff", "algorithm.entropyCoefficient", each((None, None, 0.0, None))),
    Flag(f"{ACTOR}.loss_agg_mode", "algorithm.name", each((None, None, "token-mean", None))),
    Flag(
        f"{ACTOR}.recompute_old_log_prob",
        "optimizations.skipOldLogProb",
        NOTHING,
        note="a patch of the recipe; verl 0.9.1 always computes them, and the runtime skips the pass",
    ),
    Flag(f"{ACTOR}.megatron.sequence_parallel", "trainer.backend", same(value=True)),
    Flag(f"{ACTOR}.megatron.tensor_model_parallel_size", "trainer.parallelism.tensor", each((4, 4, 4, 8))),
    Flag(f"{ACTOR}.megatron.pipeline_model_parallel_size", "trainer.parallelism.pipeline", each((8, 4, 4, 2))),
    Flag(f"{ACTOR}.megatron.context_parallel_size", "trainer.parallelism.context", each((1, 4, 4, 2))),
    Flag(
        f"{ACTOR}.megatron.expert_model_parallel_size",
        "trainer.parallelism.expert",
        each((32, 32, 32, 1)),
        note="DeepSeek: published as 8, extended over tensor 4 by MindSpeed-LLM; Megatron counts both",
    ),
    Flag(
        f"{ACTOR}.megatron.expert_tensor_parallel_size",
        "trainer.parallelism.expertTensor",
        each((1, 1, 1, None)),
    ),
    Flag(
        f"{ACTOR}.megatron.pipeline_parallel_num_layer_list",
        "override",
        each(("Et*7|t*7|t*8|t*8|t*8|t*8|t*8|t*7L", None, None, None)),
        f"+{TRANSFORMER}.pipeline_model_parallel_layout",
        "renamed; the same layers in Megatron's notation",
    ),
    Flag(
        f"{ACTOR}.megatron.fix_router",
        "left out",
        NOTHING,
        note="only with random weights; MindSpeed takes it in override_transformer_config",
    ),
    Flag(
        f"{ACTOR}.megatron.swap_optimizer",
        "left out",
        NOTHING,
        note="verl moves the optimizer to the host instead (optimizer_offload)",
    ),
    Flag(f"{ACTOR}.megatron.param_offload", "trainer.offload.parameters", same(value=True)),
    Flag(
        f"{ACTOR}.megatron.grad_offload",
        "left out",
        NOTHING,
        note="removed; gradients are offloaded with param_offload",
    ),
    Flag(
        f"{ACTOR}.megatron.optimizer_offload",
        "trainer.offload.optimizer",
        same(value=True),
        note="published false, beside swap_optimizer",
    ),
    Flag(
        f"{ACTOR}.megatron.use_dist_checkpointing",
        "left out",
        NOTHING,
        note="Megatron-Bridge reads the Hugging Face files, so no conversion is needed. An override enables it again",
    ),
    Flag(f"{ACTOR}.megatron.dist_checkpointing_path", "left out", NOTHING, note="as use_dist_checkpointing"),
    Flag(f"{REF}.log_prob_micro_batch_size_per_gpu", "override", same(8)),
    Flag(f"{REF}.load_weight", "left out", NOTHING, note="as for the actor"),
    Flag(f"{REF}.megatron.param_offload", "trainer.offload.reference", same(value=True)),
    Flag(
        f"{REF}.megatron.context_parallel_size",
        "verl's default",
        NOTHING,
        note="the reference uses the actor's sizes",
    ),
    Flag(f"{REF}.megatron.use_dist_checkpointing", "left out", NOTHING, note="as for the actor"),
    Flag(f"{REF}.megatron.dist_checkpointing_path", "left out", NOTHING, note="as for the actor"),
)

ALGORITHM_FLAGS = (
    Flag("algorithm.adv_estimator", "algorithm.name", same("grpo")),
    Flag("algorithm.kl_ctrl.kl_coef", "override", each((0.001, 0.001, 0.0, 0.001))),
    Flag("algorithm.use_kl_in_reward", "override", each((None, None, False, None))),
    Flag("algorithm.filter_groups.enable", "algorithm.name", each((None, None, True, None))),
    Flag("algorithm.filter_groups.metric", "algorithm.groupFilter.metric", each((None, None, "acc", None))),
    Flag(
        "algorithm.filter_groups.max_num_gen_batches",
        "left out",
        NOTHING,
        note="verl's V1 trainer ignores it; algorithm.groupFilter.maxInflightBatches bounds the refill",
    ),
    Flag(
        "algorithm.rollout_is",
        "override",
        each((None, None, "token", None)),
        "algorithm.rollout_correction.rollout_is",
        "moved; the value is the level",
    ),
    Flag(
        "algorithm.rollout_is_level",
        "override",
        each((None, None, "token", None)),
        "algorithm.rollout_correction.rollout_is",
    ),
    Flag(
        "algorithm.rollout_is_threshold",
        "override",
        each((None, None, 2.0, None)),
        "algorithm.rollout_correction.rollout_is_threshold",
        "moved",
    ),
    Flag("algorithm.rollout_is_threshold_lower", "left out", NOTHING, note="removed; the recipe sets null"),
    Flag("algorithm.rollout_is_mode", "left out", NOTHING, note="removed; weights are always clipped at the threshold"),
    Flag("algorithm.rollout_is_veto_threshold", "left out", NOTHING, note="removed; the recipe sets null"),
    Flag(
        "reward_model.reward_manager",
        "algorithm.name",
        each((None, None, "dapo", None)),
        "reward.reward_manager.name",
        "verl 0.9.1 silently ignores the old section",
    ),
    Flag(
        "+reward_model.reward_kwargs.overlong_buffer_cfg.enable",
        "override",
        each((None, None, False, None)),
        f"{OVERLONG}.enable",
        "moved",
    ),
    Flag(
        "+reward_model.reward_kwargs.overlong_buffer_cfg.len",
        "override",
        each((None, None, 8192, None)),
        f"{OVERLONG}.len",
        "moved",
    ),
    Flag(
        "+reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor",
        "override",
        each((None, None, 0.1, None)),
        f"{OVERLONG}.penalty_factor",
        "moved",
    ),
    Flag(
        "+reward_model.reward_kwargs.overlong_buffer_cfg.log",
        "override",
        each((None, None, False, None)),
        f"{OVERLONG}.log",
        "moved",
    ),
    Flag(
        "+reward_model.reward_kwargs.max_resp_len",
        "override",
        each((None, None, 34816, None)),
        "+reward.reward_kwargs.max_resp_len",
        "moved",
    ),
)

TRAINER_FLAGS = (
    Flag(
        "config_name=ppo_megatron_trainer",
        "trainer.backend",
        same("megatron"),
        "model_engine",
        "one configuration, the engine is a group of it",
    ),
    Flag(
        "trainer.balance_batch",
        "left out",
        NOTHING,
        note="verl's V1 trainer always balances and does not read it (verl 0.9.1, trainer/ppo/v1/trainer_base.py:582)",
    ),
    Flag("trainer.device", "accelerator.class", same("npu")),
    Flag("trainer.val_before_train", "trainer.evaluateBeforeTraining", same(value=False)),
    Flag("trainer.critic_warmup", "verl's default", NOTHING, note="0"),
    Flag("trainer.logger", "observability.trackers", same(["console", "tensorboard"])),
    Flag("trainer.n_gpus_per_node", "workerGroups[].devicesPerNode", same(16)),
    Flag("trainer.nnodes", "workerGroups[].nodes", each((16, 8, 8, 2))),
    Flag("trainer.save_freq", "checkpoint.everySteps", NOTHING, note=f"{BY_JOB}; -1, as published, without checkpoint"),
    Flag("trainer.test_freq", "trainer.evaluateEverySteps", same(-1)),
    Flag("trainer.total_epochs", "trainer.steps", NOTHING, note="the recipe's steps are one epoch of its data"),
    Flag("trainer.project_name", "launcher", NOTHING, note="the job's namespace"),
    Flag("trainer.experiment_name", "launcher", NOTHING, note="the job's name"),
    Flag("trainer.resume_mode", "checkpoint.resume", NOTHING, note="the launcher sets it for each attempt"),
    Flag("trainer.ray_wait_register_center_timeout", "verl's default", NOTHING, note="300"),
)


def _transformer(name: str, values: Values, *, new: bool = True, note: str = "") -> Flag:
    return Flag(f"{'+' if new else ''}{TRANSFORMER}.{name}", "override", values, note=note)


RECOMPUTED = "Qwen3-235B: as verl's script for Ascend, in place of moe_zero_memory"
QWENS: Values = each((None, True, True, True))
MOE: Values = each((None, True, True, None))

TRANSFORMER_FLAGS = (
    _transformer("seq_length", each((None, 2048, 2048, 2048))),
    Flag(f"+{TRANSFORMER}.swap_optimizer", "left out", NOTHING, note="as in the engine's section"),
    Flag(
        f"+{TRANSFORMER}.pipeline_num_transformer_layers",
        "left out",
        NOTHING,
        note="a list of lists; the numbers of the first and last stage express the same",
    ),
    _transformer("num_layers_in_first_pipeline_stage", each((None, 23, 23, None))),
    _transformer("num_layers_in_last_pipeline_stage", each((None, 23, 23, None))),
    _transformer("use_flash_attn", QWENS),
    Flag(
        f"+{TRANSFORMER}.use_fused_rotary_pos_emb",
        "left out",
        NOTHING,
        note="ends the start (MindSpeed e4772499, features_manager/fusions/fused_rope.py:26)",
    ),
    _transformer("use_fused_swiglu", QWENS),
    Flag(
        f"+{TRANSFORMER}.context_parallel_size", "trainer.parallelism.context", NOTHING, note="verl passes it on itself"
    ),
    _transformer("context_parallel_algo", each((None, *["megatron_cp_algo"] * 3))),
    _transformer("cp_window_size", each((None, 1, 1, 1))),
    _transformer("use_cp_send_recv_overlap", QWENS),
    _transformer("use_fused_ring_attention_update", QWENS),
    _transformer("moe_token_dispatcher_type", each((None, "alltoall", "alltoall", None))),
    Flag(
        f"+{TRANSFORMER}.moe_alltoall_overlap_comm",
        "left out",
        NOTHING,
        note="ends the start without the recipe's patches (MindSpeed e4772499, "
        "core/transformer/moe/moe_feature/overlap/moe_layer.py:210)",
    ),
    _transformer("moe_grouped_gemm", MOE),
    _transformer("moe_permute_fusion", MOE),
    _transformer("gemm_gradient_accumulation_fusion", MOE),
    Flag(f"+{TRANSFORMER}.moe_zero_memory", "left out", NOTHING, note="needs moe_alltoall_overlap_comm"),
    _transformer("recompute_granularity", same("full"), new=False, note=RECOMPUTED),
    _transformer("recompute_method", each(("block", *["uniform"] * 3)), new=False, note=RECOMPUTED),
    _transformer("recompute_num_layers", each((8, 1, 1, 1)), new=False, note=RECOMPUTED),
)

SECTIONS = {
    "Data and reward": DATA,
    "Rollout": ROLLOUT_FLAGS,
    "Actor, reference and model": ACTOR_FLAGS,
    "Algorithm": ALGORITHM_FLAGS,
    "Trainer": TRAINER_FLAGS,
    "Transformer (Megatron and MindSpeed)": TRANSFORMER_FLAGS,
}
FLAGS = tuple(flag for section in SECTIONS.values() for flag in section)
