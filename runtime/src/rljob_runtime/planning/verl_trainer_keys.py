"""Keys of verl's configuration with their defaults. Written by scripts/verl_names.py; do not edit.

`name=value` is a key with its default as JSON, a name without a value is a section of its own.
"""

from __future__ import annotations

COMMON: dict[str, str] = {
    "": (
        "actor_rollout_ref algorithm critic custom_reward_function data distillation global_profiler "
        "ray_kwargs reward reward_model sandbox_fusion skip trainer transfer_queue"
    ),
    "algorithm": (
        '_target_="verl.trainer.config.AlgoConfig" adv_estimator="gae" filter_groups gamma=1.0 kl_ctrl '
        'kl_penalty="kl" lam=1.0 norm_adv_by_std_in_grpo=true pf_ppo rollout_correction '
        "use_kl_in_reward=false use_pf_ppo=false"
    ),
    "algorithm.filter_groups": (
        '_target_="verl.trainer.config.FilterGroupsConfig" enable=false max_inflight_gen_batches=1 '
        'max_num_gen_batches=0 metric="reward"'
    ),
    "algorithm.kl_ctrl": (
        '_target_="verl.trainer.config.KLControlConfig" horizon=10000 kl_coef=0.001 target_kl=0.1 type="fixed"'
    ),
    "algorithm.pf_ppo": ('reweight_method="pow" weight_pow=2.0'),
    "algorithm.rollout_correction": (
        'bypass_mode=false loss_type="ppo_clip" rollout_is=null rollout_is_batch_normalize=false '
        "rollout_is_threshold=2.0 rollout_rs=null rollout_rs_threshold=null"
    ),
    "critic": (
        "checkpoint cliprange_value=0.5 enable=null "
        'forward_max_token_len_per_gpu="${.ppo_max_token_len_per_gpu}" '
        'loss_agg_mode="${oc.select:actor_rollout_ref.actor.loss_agg_mode,token-mean}" '
        'loss_scale_factor="${oc.select:actor_rollout_ref.actor.loss_scale_factor,null}" model optim '
        'ppo_epochs="${oc.select:actor_rollout_ref.actor.ppo_epochs,1}" ppo_max_token_len_per_gpu=32768 '
        'ppo_micro_batch_size=null ppo_micro_batch_size_per_gpu="${oc.select:.ppo_micro_batch_size,null}" '
        'ppo_mini_batch_size="${oc.select:actor_rollout_ref.actor.ppo_mini_batch_size,256}" profiler '
        'rollout_n="${oc.select:actor_rollout_ref.rollout.n,1}" '
        'shuffle="${oc.select:actor_rollout_ref.actor.shuffle,false}" '
        'use_dynamic_bsz="${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}"'
    ),
    "critic.checkpoint": (
        'async_save=false load_contents="${.save_contents}" save_contents=["model","optimizer","extra"]'
    ),
    "critic.model": (
        '_target_="verl.workers.config.HFModelConfig" custom_chat_template=null '
        "enable_activation_offload=false enable_gradient_checkpointing=true exclude_modules=null "
        "external_lib=null fused_kernel_options hf_config_path=null lora lora_adapter_path=null lora_alpha=16 "
        'lora_rank=0 mtp override_config={} path="~/models/deepseek-llm-7b-chat" target_modules="all-linear" '
        "tiled_mlp tokenizer_path=null trust_remote_code=false use_fused_kernels=false use_liger=false "
        "use_remove_padding=true use_shm=false"
    ),
    "critic.model.fused_kernel_options": ('impl_backend="torch"'),
    "critic.model.lora": (
        'a2a_experimental=false adapter_path=null alpha=32 dropout=0.0 dropout_position="pre" dtype=null '
        "exclude_modules=[] freeze_language_model=true freeze_vision_model=true freeze_vision_projection=true "
        'lora_A_init_method="xavier" lora_B_init_method="zero" merge=false rank=0 '
        'target_modules=["linear_qkv","linear_proj","linear_fc1","linear_fc2"] type="lora"'
    ),
    "critic.model.mtp": (
        '_target_="verl.workers.config.MtpConfig" detach_encoder=false enable=false enable_rollout=false '
        'enable_train=false method="mtp" mtp_loss_scaling_factor=0.1 num_speculative_tokens=1 '
        'speculative_algorithm="EAGLE" speculative_eagle_topk=1 speculative_num_draft_tokens=4 '
        "speculative_num_steps=3"
    ),
    "critic.model.tiled_mlp": ("enabled=false num_shards=4"),
    "critic.optim": (
        "betas=[0.9,0.999] clip_grad=1.0 lr=1e-05 lr_warmup_steps=-1 lr_warmup_steps_ratio=0.0 "
        "total_training_steps=-1 weight_decay=0.01"
    ),
    "critic.profiler": (
        '_target_="verl.utils.profiler.ProfilerConfig" all_ranks=false enable=false '
        'finish_hook_all_ranks="${oc.select:global_profiler.finish_hook_all_ranks,false}" '
        'finish_hook_cmd="${oc.select:global_profiler.finish_hook_cmd,null}" '
        'finish_hook_ranks="${oc.select:global_profiler.finish_hook_ranks,[]}" ranks=[] '
        'relocate_results="${oc.select:global_profiler.relocate_results,false}" '
        'save_path="${oc.select:global_profiler.save_path,null}" '
        'tool="${oc.select:global_profiler.tool,null}" tool_config'
    ),
    "critic.profiler.tool_config": ("npu nsys precision_debugger torch torch_memory"),
    "critic.profiler.tool_config.npu": (
        '_target_="verl.utils.profiler.config.NPUToolConfig" analysis=true contents=[] discrete=false level="level0"'
    ),
    "critic.profiler.tool_config.nsys": (
        '_target_="verl.utils.profiler.config.NsightToolConfig" '
        'discrete="${oc.select:global_profiler.global_tool_config.nsys.discrete}"'
    ),
    "critic.profiler.tool_config.precision_debugger": (
        '_target_="verl.utils.profiler.config.PrecisionDebuggerToolConfig" '
        'config_path="${oc.select:global_profiler.global_tool_config.precision_debugger.config_path,null}" '
        'stages="${oc.select:global_profiler.global_tool_config.precision_debugger.stages,null}" steps=null '
        'strict="${oc.select:global_profiler.global_tool_config.precision_debugger.strict,False}"'
    ),
    "critic.profiler.tool_config.torch": (
        '_target_="verl.utils.profiler.config.TorchProfilerToolConfig" contents=[] discrete=false schedule'
    ),
    "critic.profiler.tool_config.torch.schedule": (
        '_target_="verl.utils.profiler.config.TorchProfilerScheduleConfig" active=0 repeat=0 skip_first=0 '
        "wait=0 warmup=0"
    ),
    "critic.profiler.tool_config.torch_memory": (
        '_target_="verl.utils.profiler.config.TorchMemoryToolConfig" '
        'memory_snapshot_num_steps="${oc.select:global_profiler.global_tool_config.torch_memory.memory_snapsho'
        't_num_steps,1}" '
        'stack_depth="${oc.select:global_profiler.global_tool_config.torch_memory.stack_depth,32}" '
        'trace_alloc_max_entries="${oc.select:global_profiler.global_tool_config.torch_memory.trace_alloc_max_'
        'entries,100000}"'
    ),
    "custom_reward_function": ("name=null path=null"),
    "data": (
        'apply_chat_template_kwargs={} audio_key="audios" custom_cls dataloader_num_workers=8 '
        "filter_overlong_prompts=false filter_overlong_prompts_workers=1 "
        'function_tool_path="${oc.select:actor_rollout_ref.rollout.multi_turn.function_tool_path,\\u0020null}" '
        'gen_batch_size=null image_key="images" image_patch_size=14 max_prompt_length=512 '
        'max_response_length=512 mm_processor_kwargs={} prompt_key="prompt" return_full_prompt=false '
        "return_multi_modal_inputs=true return_raw_chat=true return_raw_input_ids=false "
        'reward_fn_key="data_source" seed=null shuffle=true tokenizer=null '
        'tool_config_path="${oc.select:actor_rollout_ref.rollout.multi_turn.tool_config_path,\\u0020null}" '
        'train_batch_size=1024 train_files="~/data/rlhf/gsm8k/train.parquet" train_max_samples=-1 '
        'truncation="error" trust_remote_code=false use_shm=false val_batch_size=null '
        'val_files="~/data/rlhf/gsm8k/test.parquet" val_max_samples=-1 validation_shuffle=false '
        'video_key="videos"'
    ),
    "data.custom_cls": ("name=null path=null"),
    "distillation": (
        '_target_="verl.workers.config.DistillationConfig" distillation_loss enabled=false n_gpus_per_node=8 '
        'nnodes=0 teacher_key="data_source" teacher_models'
    ),
    "distillation.distillation_loss": (
        '_target_="verl.workers.config.DistillationLossConfig" clip_ratio=0.2 clip_ratio_high=0.2 '
        "clip_ratio_low=0.2 distillation_loss_coef=1.0 log_prob_min_clamp=null loss_max_clamp=null "
        'loss_mode="k3" policy_loss_mode="vanilla" topk=32 use_policy_gradient=false use_task_rewards=true'
    ),
    "distillation.teacher_models": ("teacher_model"),
    "distillation.teacher_models.teacher_model": (
        '_target_="verl.workers.config.DistillationTeacherModelConfig" inference key=null model_path=null '
        "num_replicas=0"
    ),
    "distillation.teacher_models.teacher_model.inference": (
        '_target_="verl.workers.config.RolloutConfig" cudagraph_capture_sizes=null data_parallel_size=1 '
        'disable_log_stats=true dtype="${oc.select:actor_rollout_ref.rollout.dtype}" '
        "enable_chunked_prefill=true enable_prefix_caching=true enforce_eager=true engine_kwargs={} "
        "expert_parallel_size=1 free_cache_engine=true gpu_memory_utilization=0.5 limit_images=null "
        'load_format="auto" max_model_len=null max_num_batched_tokens=8192 max_num_seqs=1024 '
        'name="${oc.select:actor_rollout_ref.rollout.name}" '
        'prompt_length="${oc.select:actor_rollout_ref.rollout.prompt_length}" '
        'response_length="${oc.select:actor_rollout_ref.rollout.response_length}" skip_tokenizer_init=true '
        'temperature="${oc.select:actor_rollout_ref.rollout.temperature}" tensor_model_parallel_size=2'
    ),
    "global_profiler": (
        '_target_="verl.utils.profiler.ProfilerConfig" finish_hook_all_ranks=false finish_hook_cmd=null '
        "finish_hook_ranks=[] global_tool_config profile_continuous_steps=false relocate_results=false "
        'save_path="outputs/profile" steps=null tool=null'
    ),
    "global_profiler.global_tool_config": ("nsys precision_debugger torch_memory"),
    "global_profiler.global_tool_config.nsys": (
        '_target_="verl.utils.profiler.config.NsightToolConfig" controller_nsight_options discrete=false '
        "worker_nsight_options"
    ),
    "global_profiler.global_tool_config.nsys.controller_nsight_options": (
        'cuda-graph-trace="graph" cuda-memory-usage="true" trace="cuda,nvtx,cublas,ucx"'
    ),
    "global_profiler.global_tool_config.nsys.worker_nsight_options": (
        'capture-range="cudaProfilerApi" capture-range-end=null cuda-graph-trace="graph" '
        'cuda-memory-usage="true" kill="none" trace="cuda,nvtx,cublas,ucx"'
    ),
    "global_profiler.global_tool_config.precision_debugger": (
        '_target_="verl.utils.profiler.config.PrecisionDebuggerToolConfig" config_path=null stages=null '
        "steps=null strict=false"
    ),
    "global_profiler.global_tool_config.torch_memory": (
        'context="all" kw_args={} memory_snapshot_num_steps=1 stack_depth=32 stacks="all" '
        "trace_alloc_max_entries=100000"
    ),
    "ray_kwargs": ("ray_init timeline_json_file=null"),
    "ray_kwargs.ray_init": ("num_cpus=null runtime_env"),
    "ray_kwargs.ray_init.runtime_env": ("py_executable=null"),
    "reward": (
        '_target_="verl.workers.config.RewardConfig" custom_reward_function num_workers=8 reward_manager '
        "reward_model sandbox_fusion"
    ),
    "reward.custom_reward_function": ('name="compute_score" path=null'),
    "reward.reward_manager": (
        '_target_="verl.workers.config.reward.RewardManagerConfig" module name="naive" source="register"'
    ),
    "reward.reward_manager.module": (
        '_target_="verl.trainer.config.config.ModuleConfig" name="custom_reward_manager" path=null'
    ),
    "reward.reward_model": (
        '_target_="verl.workers.config.RewardModelConfig" enable=false enable_resource_pool=false '
        "model_path=null n_gpus_per_node=8 nnodes=0 rollout"
    ),
    "reward.reward_model.rollout": (
        '_target_="verl.workers.config.RolloutConfig" cudagraph_capture_sizes=null data_parallel_size=1 '
        'disable_log_stats=true disaggregation do_sample=true dtype="bfloat16" enable_chunked_prefill=true '
        "enable_prefix_caching=true enforce_eager=true engine_kwargs={} expert_parallel_size=1 "
        "free_cache_engine=true full_determinism=false gpu_memory_utilization=0.5 ignore_eos=false "
        'layered_summon=false limit_images=null load_format="auto" max_model_len=null '
        'max_num_batched_tokens=8192 max_num_seqs=1024 mtp=null multi_stage_wake_up=false n=1 name="???" '
        "pipeline_model_parallel_size=1 prompt_length=2048 quantization=null quantization_config_file=null "
        'response_length=2048 scheduling_policy="fcfs" seed=42 skip_tokenizer_init=false temperature=1.0 '
        "tensor_model_parallel_size=2 top_k=-1 top_p=1"
    ),
    "reward.reward_model.rollout.disaggregation": (
        "bootstrap_port=null decode_replicas=1 decode_tensor_model_parallel_size=null enabled=false "
        'ib_device=null prefill_replicas=1 transfer_backend="nixl"'
    ),
    "reward.sandbox_fusion": (
        '_target_="verl.workers.config.SandboxFusionConfig" max_concurrent=64 memory_limit_mb=1024 url=null'
    ),
    "reward_model": (
        "enable=null enable_resource_pool=null model n_gpus_per_node=null nnodes=null num_workers=null "
        "reward_loop_class_name=null reward_loop_module_path=null reward_loop_source=null reward_manager=null "
        "rollout"
    ),
    "reward_model.model": ("external_lib=null path=null trust_remote_code=null"),
    "reward_model.rollout": (
        "cudagraph_capture_sizes=null data_parallel_size=null disable_log_stats=null dtype=null "
        "enable_chunked_prefill=null enable_prefix_caching=null enforce_eager=null engine_kwargs=null "
        "expert_parallel_size=null free_cache_engine=null gpu_memory_utilization=null limit_images=null "
        "load_format=null max_model_len=null max_num_batched_tokens=null max_num_seqs=null name=null "
        "prompt_length=null response_length=null skip_tokenizer_init=null tensor_model_parallel_size=null"
    ),
    "sandbox_fusion": ("max_concurrent=null memory_limit_mb=null url=null"),
    "skip": ('_target_="verl.utils.skip.SkipManagerConfig" async_rollout rollout rollout_tq'),
    "skip.async_rollout": ('action="cache" dump_dir="~/.verl/rollout_dump" enable=false steps=[]'),
    "skip.rollout": ('action="cache" dump_dir="~/.verl/rollout_dump" enable=false steps=[]'),
    "skip.rollout_tq": ('action="cache" dump_dir="~/.verl/rollout_dump" enable=false steps=[]'),
    "trainer": (
        "balance_batch=true checkpoint_callback_class=null critic_warmup=0 default_hdfs_dir=null "
        'default_local_dir="checkpoints/${trainer.project_name}/${trainer.experiment_name}" '
        'del_local_ckpt_after_load=false device="cuda" esi_redundant_time=0 experiment_name="gsm8k" '
        'log_val_generations=0 logger=["console","wandb"] max_actor_ckpt_to_keep=null '
        'max_critic_ckpt_to_keep=null n_gpus_per_node=8 nnodes=1 project_name="verl_examples" '
        'ray_wait_register_center_timeout=300 resume_from_path=null resume_mode="auto" rollout_data_dir=null '
        "save_freq=-1 test_freq=-1 total_epochs=30 total_training_steps=null use_v1=true v1 "
        "val_before_train=true val_only=false validation_data_dir=null"
    ),
    "trainer.v1": ('colocate_async sampler separate_async sync={} trainer_mode="sync"'),
    "trainer.v1.colocate_async": ("num_warmup_batches=1"),
    "trainer.v1.sampler": (
        'custom_sampler max_off_policy_strategy="drop" max_off_policy_threshold=8 sampler_kwargs={} '
        "sync_refill_failed_groups=false"
    ),
    "trainer.v1.sampler.custom_sampler": ("name=null path=null"),
    "trainer.v1.separate_async": ("hybrid_rollout num_warmup_batches=1 parameter_sync_step=4"),
    "trainer.v1.separate_async.hybrid_rollout": (
        '_target_="verl.trainer.config.HybridRolloutSwitchConfig" adaptive_switch_threshold=true '
        "enable_switch=false switch_cost_window_size=3 switch_threshold_ratio=0.4 "
        "switch_threshold_release_steps=2 switch_threshold_step_down=0.03 switch_threshold_step_up=0.05"
    ),
    "transfer_queue": ("backend enable=false metrics"),
    "transfer_queue.backend": ('MooncakeStore SimpleStorage storage_backend="SimpleStorage"'),
    "transfer_queue.backend.MooncakeStore": (
        'auto_init=false device_name="" global_segment_size=4294967296 local_buffer_size=1073741824 '
        'local_hostname="localhost" master_server_address="localhost:50124" metadata_server="localhost:50123" '
        'protocol="tcp"'
    ),
    "transfer_queue.backend.SimpleStorage": ("num_data_storage_units=8 total_storage_size=100000"),
    "transfer_queue.metrics": ("enabled=false port=0"),
}
DP: dict[str, str] = {
    "critic": (
        '_target_="verl.workers.config.FSDPCriticConfig" data_loader_seed=42 '
        'forward_micro_batch_size="${oc.select:.ppo_micro_batch_size,null}" '
        'forward_micro_batch_size_per_gpu="${oc.select:.ppo_micro_batch_size_per_gpu,null}" fsdp '
        'grad_clip=1.0 strategy="fsdp" ulysses_sequence_parallel_size=1'
    ),
    "critic.checkpoint": ('_target_="verl.trainer.config.CheckpointConfig"'),
    "critic.fsdp": (
        '_target_="verl.workers.config.FSDPEngineConfig" dtype="bfloat16" entropy_checkpointing=false '
        "entropy_from_logits_chunk_size=2048 entropy_from_logits_with_chunking=false forward_only=false "
        'forward_prefetch=false fsdp_size=-1 full_determinism=false model_dtype="fp32" offload_policy=false '
        "optimizer_offload=false pad_to_length=false pad_to_length_bucket=1024 param_offload=false qat "
        'reshard_after_forward=true seed=42 strategy="fsdp" turbo_config ulysses_sequence_parallel_size=1 '
        "use_no_sync_for_gradient_accumulation=false use_orig_params=false use_torch_compile=true wrap_policy"
    ),
    "critic.fsdp.qat": (
        '_target_="verl.workers.config.QATEngineConfig" activation_observer="static_minmax" enable=false '
        'group_size=16 ignore_patterns=["lm_head","embed_tokens","re:.*mlp.gate$"] mode="w4a16" '
        "quantization_config_path=null"
    ),
    "critic.fsdp.turbo_config": ("distributed"),
    "critic.fsdp.turbo_config.distributed": (
        "expert_fully_shard_parallel_size=1 expert_parallel_size=1 fsdp_plan fully_shard_parallel_size=16 "
        "tensor_parallel_size=1 ulysses_parallel_size=1"
    ),
    "critic.fsdp.turbo_config.distributed.fsdp_plan": (
        'fsdp_implementation="native" num_to_backward_prefetch=1 num_to_forward_prefetch=1 '
        'output_dtype="bf16" param_dtype="bf16" reduce_dtype="fp32"'
    ),
    "critic.fsdp.wrap_policy": ("min_num_params=0"),
    "critic.optim": (
        '_target_="verl.workers.config.FSDPOptimizerConfig" lr_scheduler_type="constant" min_lr_ratio=0.0 '
        'num_cycles=0.5 optimizer="AdamW" optimizer_impl="torch.optim" override_optimizer_config=null '
        "warmup_style=null zero_indexed_step=true"
    ),
}
MEGATRON: dict[str, str] = {
    "critic": (
        '_target_="verl.workers.config.McoreCriticConfig" '
        'data_loader_seed="${oc.select:actor_rollout_ref.actor.data_loader_seed,null}" megatron '
        'nccl_timeout=600 strategy="megatron"'
    ),
    "critic.checkpoint": ('_target_="verl.workers.config.McoreCheckpointConfig" mbridge_config={}'),
    "critic.megatron": (
        '_target_="verl.workers.config.McoreEngineConfig" context_parallel_size=1 '
        'dist_checkpointing_path=null dist_checkpointing_prefix="" dist_ckpt_optim_fully_reshardable=false '
        'distrib_optim_fully_reshardable_mem_efficient=false dtype="bfloat16" dynamic_context_parallel=false '
        "entropy_from_logits_chunk_size=2048 entropy_from_logits_with_chunking=false "
        "expert_model_parallel_size=1 expert_tensor_parallel_size=null forward_only=false "
        "max_seqlen_per_dp_cp_rank=null optimizer_offload=false override_ddp_config={} "
        "override_mcore_model_config={} override_transformer_config pad_bshd_to_minibatch_max=true "
        "pad_to_length=false pad_to_length_bucket=512 param_offload=false pipeline_model_parallel_size=1 qat "
        "router_replay seed=42 sequence_parallel=true tensor_model_parallel_size=1 "
        "use_dist_checkpointing=false use_distributed_optimizer=true use_mbridge=true use_megatron_fsdp=false "
        "use_remove_padding=true vanilla_mbridge=false virtual_pipeline_model_parallel_size=null"
    ),
    "critic.megatron.override_transformer_config": (
        'attention_backend="flash" recompute_granularity=null recompute_method=null '
        'recompute_modules=["core_attn"] recompute_num_layers=null'
    ),
    "critic.megatron.qat": (
        '_target_="verl.workers.config.QATEngineConfig" activation_observer=null enable=false group_size=16 '
        'ignore_patterns=["lm_head","*mlp.gate"] mode="w4a16" quantization_config_path=null'
    ),
    "critic.megatron.router_replay": (
        '_target_="verl.workers.config.EngineRouterReplayConfig" mode="disabled" record_file=null replay_file=null'
    ),
    "critic.optim": (
        '_target_="verl.workers.config.McoreOptimizerConfig" exp_avg_dtype="fp32" exp_avg_sq_dtype="fp32" '
        'lr_decay_steps=null lr_decay_style="constant" lr_warmup_init=0.0 lr_wsd_decay_steps=null '
        'lr_wsd_decay_style="exponential" main_grads_dtype="fp32" min_lr=0.0 muon_coefficient_type="quintic" '
        'muon_extra_scale_factor=1.0 muon_fp32_matmul_prec="medium" muon_match_adamw_update_rms=false '
        'muon_momentum=0.95 muon_nesterov=false muon_num_ns_steps=5 muon_scalar_optimizer="adam" '
        'muon_scale_mode="spectral" muon_split_qkv=true muon_tp_mode="blockwise" optimizer="adam" '
        "override_optimizer_config={} use_checkpoint_opt_param_scheduler=false "
        "use_layer_wise_distributed_optimizer=false use_precision_aware_optimizer=false "
        'weight_decay_incr_style="constant"'
    ),
}
