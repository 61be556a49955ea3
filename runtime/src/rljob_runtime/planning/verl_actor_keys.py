"""Keys of verl's configuration with their defaults. Written by scripts/verl_names.py; do not edit.

`name=value` is a key with its default as JSON, a name without a value is a section of its own.
"""

from __future__ import annotations

COMMON: dict[str, str] = {
    "actor_rollout_ref": ("actor hybrid_engine=true model nccl_timeout=600 ref rollout"),
    "actor_rollout_ref.actor": (
        "calculate_entropy=false calculate_sum_pi_squared=false checkpoint clip_ratio=0.2 clip_ratio_c=3.0 "
        "clip_ratio_high=0.2 clip_ratio_low=0.2 data_loader_seed=42 entropy_coeff=0 "
        "entropy_from_logits_chunk_size=2048 entropy_from_logits_with_chunking=false "
        'freeze_vision_tower=false kl_loss_coef=0.001 kl_loss_type="low_var_kl" loss_agg_mode="token-mean" '
        "loss_scale_factor=null optim policy_loss ppo_epochs=1 ppo_max_token_len_per_gpu=16384 "
        "ppo_micro_batch_size=null ppo_micro_batch_size_per_gpu=null ppo_mini_batch_size=256 profiler qat "
        'rollout_n="${oc.select:actor_rollout_ref.rollout.n,1}" shuffle=false tau_neg=1.05 tau_pos=1.0 '
        "use_dynamic_bsz=false "
        'use_fused_kernels="${oc.select:actor_rollout_ref.model.use_fused_kernels,false}" use_kl_loss=false '
        "use_prefix_grouper=false use_torch_compile=true"
    ),
    "actor_rollout_ref.actor.checkpoint": (
        'async_save=false load_contents="${.save_contents}" save_contents=["model","optimizer","extra"] strict=true'
    ),
    "actor_rollout_ref.actor.optim": (
        "betas=[0.9,0.999] clip_grad=1.0 lr=1e-06 lr_warmup_steps=-1 lr_warmup_steps_ratio=0.0 "
        "total_training_steps=-1 weight_decay=0.01"
    ),
    "actor_rollout_ref.actor.policy_loss": (
        '_target_="verl.workers.config.PolicyLossConfig" clip_cov_lb=1.0 clip_cov_ratio=0.0002 '
        'clip_cov_ub=5.0 dro_beta=null kl_cov_ratio=0.0002 loss_mode="vanilla" ppo_kl_coef=0.1'
    ),
    "actor_rollout_ref.actor.profiler": (
        '_target_="verl.utils.profiler.ProfilerConfig" all_ranks=false enable=false '
        'finish_hook_all_ranks="${oc.select:global_profiler.finish_hook_all_ranks,false}" '
        'finish_hook_cmd="${oc.select:global_profiler.finish_hook_cmd,null}" '
        'finish_hook_ranks="${oc.select:global_profiler.finish_hook_ranks,[]}" ranks=[] '
        'relocate_results="${oc.select:global_profiler.relocate_results,false}" '
        'save_path="${oc.select:global_profiler.save_path,null}" '
        'tool="${oc.select:global_profiler.tool,null}" tool_config'
    ),
    "actor_rollout_ref.actor.profiler.tool_config": ("npu nsys precision_debugger torch torch_memory"),
    "actor_rollout_ref.actor.profiler.tool_config.npu": (
        '_target_="verl.utils.profiler.config.NPUToolConfig" analysis=true contents=[] discrete=false level="level0"'
    ),
    "actor_rollout_ref.actor.profiler.tool_config.nsys": (
        '_target_="verl.utils.profiler.config.NsightToolConfig" '
        'discrete="${oc.select:global_profiler.global_tool_config.nsys.discrete}"'
    ),
    "actor_rollout_ref.actor.profiler.tool_config.precision_debugger": (
        '_target_="verl.utils.profiler.config.PrecisionDebuggerToolConfig" '
        'config_path="${oc.select:global_profiler.global_tool_config.precision_debugger.config_path,null}" '
        'stages="${oc.select:global_profiler.global_tool_config.precision_debugger.stages,null}" steps=null '
        'strict="${oc.select:global_profiler.global_tool_config.precision_debugger.strict,False}"'
    ),
    "actor_rollout_ref.actor.profiler.tool_config.torch": (
        '_target_="verl.utils.profiler.config.TorchProfilerToolConfig" contents=[] discrete=false schedule'
    ),
    "actor_rollout_ref.actor.profiler.tool_config.torch.schedule": (
        '_target_="verl.utils.profiler.config.TorchProfilerScheduleConfig" active=0 repeat=0 skip_first=0 '
        "wait=0 warmup=0"
    ),
    "actor_rollout_ref.actor.profiler.tool_config.torch_memory": (
        '_target_="verl.utils.profiler.config.TorchMemoryToolConfig" '
        'memory_snapshot_num_steps="${oc.select:global_profiler.global_tool_config.torch_memory.memory_snapsho'
        't_num_steps,1}" '
        'stack_depth="${oc.select:global_profiler.global_tool_config.torch_memory.stack_depth,32}" '
        'trace_alloc_max_entries="${oc.select:global_profiler.global_tool_config.torch_memory.trace_alloc_max_'
        'entries,100000}"'
    ),
    "actor_rollout_ref.actor.qat": (
        'activation_observer="static_minmax" enable=false group_size=16 '
        'ignore_patterns=["lm_head","embed_tokens","re:.*mlp.gate$"] mode="w4a16" '
        "quantization_config_path=null"
    ),
    "actor_rollout_ref.model": (
        '_target_="verl.workers.config.HFModelConfig" custom_chat_template=null '
        "enable_activation_offload=false enable_gradient_checkpointing=true exclude_modules=null "
        "external_lib=null fused_kernel_options hf_config_path=null lora lora_adapter_path=null lora_alpha=16 "
        'lora_rank=0 mtp override_config={} path="~/models/deepseek-llm-7b-chat" target_modules="all-linear" '
        "tiled_mlp tokenizer_path=null trust_remote_code=false use_fused_kernels=false use_liger=false "
        "use_remove_padding=true use_shm=false"
    ),
    "actor_rollout_ref.model.fused_kernel_options": ('impl_backend="torch"'),
    "actor_rollout_ref.model.lora": (
        'a2a_experimental=false adapter_path=null alpha=32 dropout=0.0 dropout_position="pre" dtype=null '
        "exclude_modules=[] freeze_language_model=true freeze_vision_model=true freeze_vision_projection=true "
        'lora_A_init_method="xavier" lora_B_init_method="zero" merge=false rank=0 '
        'target_modules=["linear_qkv","linear_proj","linear_fc1","linear_fc2"] type="lora"'
    ),
    "actor_rollout_ref.model.mtp": (
        '_target_="verl.workers.config.MtpConfig" detach_encoder=false enable=false enable_rollout=false '
        'enable_train=false method="mtp" mtp_loss_scaling_factor=0.1 num_speculative_tokens=1 '
        'speculative_algorithm="EAGLE" speculative_eagle_topk=1 speculative_num_draft_tokens=4 '
        "speculative_num_steps=3"
    ),
    "actor_rollout_ref.model.tiled_mlp": ("enabled=false num_shards=4"),
    "actor_rollout_ref.ref": (
        'log_prob_max_token_len_per_gpu="${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}"'
        " "
        "log_prob_micro_batch_size=null log_prob_micro_batch_size_per_gpu=null "
        'log_prob_use_dynamic_bsz="${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}" profiler '
        'rollout_n="${oc.select:actor_rollout_ref.rollout.n,1}" '
        'use_torch_compile="${oc.select:actor_rollout_ref.actor.use_torch_compile,true}"'
    ),
    "actor_rollout_ref.ref.profiler": (
        '_target_="verl.utils.profiler.ProfilerConfig" all_ranks=false enable=false '
        'finish_hook_all_ranks="${oc.select:global_profiler.finish_hook_all_ranks,false}" '
        'finish_hook_cmd="${oc.select:global_profiler.finish_hook_cmd,null}" '
        'finish_hook_ranks="${oc.select:global_profiler.finish_hook_ranks,[]}" ranks=[] '
        'relocate_results="${oc.select:global_profiler.relocate_results,false}" '
        'save_path="${oc.select:global_profiler.save_path,null}" '
        'tool="${oc.select:global_profiler.tool,null}" tool_config'
    ),
    "actor_rollout_ref.ref.profiler.tool_config": ("npu nsys precision_debugger torch torch_memory"),
    "actor_rollout_ref.ref.profiler.tool_config.npu": (
        '_target_="verl.utils.profiler.config.NPUToolConfig" analysis=true contents=[] discrete=false level="level0"'
    ),
    "actor_rollout_ref.ref.profiler.tool_config.nsys": (
        '_target_="verl.utils.profiler.config.NsightToolConfig" '
        'discrete="${oc.select:global_profiler.global_tool_config.nsys.discrete}"'
    ),
    "actor_rollout_ref.ref.profiler.tool_config.precision_debugger": (
        '_target_="verl.utils.profiler.config.PrecisionDebuggerToolConfig" '
        'config_path="${oc.select:global_profiler.global_tool_config.precision_debugger.config_path,null}" '
        'stages="${oc.select:global_profiler.global_tool_config.precision_debugger.stages,null}" steps=null '
        'strict="${oc.select:global_profiler.global_tool_config.precision_debugger.strict,False}"'
    ),
    "actor_rollout_ref.ref.profiler.tool_config.torch": (
        '_target_="verl.utils.profiler.config.TorchProfilerToolConfig" contents=[] discrete=false schedule'
    ),
    "actor_rollout_ref.ref.profiler.tool_config.torch.schedule": (
        '_target_="verl.utils.profiler.config.TorchProfilerScheduleConfig" active=0 repeat=0 skip_first=0 '
        "wait=0 warmup=0"
    ),
    "actor_rollout_ref.ref.profiler.tool_config.torch_memory": (
        '_target_="verl.utils.profiler.config.TorchMemoryToolConfig" '
        'memory_snapshot_num_steps="${oc.select:global_profiler.global_tool_config.torch_memory.memory_snapsho'
        't_num_steps,1}" '
        'stack_depth="${oc.select:global_profiler.global_tool_config.torch_memory.stack_depth,32}" '
        'trace_alloc_max_entries="${oc.select:global_profiler.global_tool_config.torch_memory.trace_alloc_max_'
        'entries,100000}"'
    ),
    "actor_rollout_ref.rollout": (
        '_target_="verl.workers.config.RolloutConfig" agent calculate_log_probs=true checkpoint_engine '
        "cudagraph_capture_sizes=null data_parallel_size=1 disable_log_stats=true disaggregation "
        'do_sample=true dtype="bfloat16" enable_chunked_prefill=true enable_prefix_caching=true '
        "enable_rollout_routing_replay=false enforce_eager=false engine_kwargs expert_parallel_size=1 "
        "free_cache_engine=true full_determinism=false gpu_memory_utilization=0.5 ignore_eos=false "
        'layered_summon=false load_format="dummy" '
        'log_prob_max_token_len_per_gpu="${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}"'
        " "
        "log_prob_micro_batch_size=null log_prob_micro_batch_size_per_gpu=null "
        'log_prob_use_dynamic_bsz="${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}" '
        'logprobs_mode="processed_logprobs" max_model_len=null max_num_batched_tokens=8192 max_num_seqs=256 '
        'mode="async" moe_load_balance_metrics_interval=0 '
        'mtp="${oc.select:actor_rollout_ref.model.mtp,\\u0020null}" multi_stage_wake_up=false multi_turn n=1 '
        'n_gpus_per_node="${oc.select:trainer.n_gpus_per_node,8}" name="???" nnodes=0 over_sample_rate=0 '
        "pipeline_model_parallel_size=1 profiler prometheus "
        'prompt_length="${oc.select:data.max_prompt_length,512}" '
        'qat="${oc.select:actor_rollout_ref.actor.fsdp_config.qat,${oc.select:actor_rollout_ref.actor.megatron'
        '.qat,null}}" '
        "quantization=null quantization_config_file=null "
        'response_length="${oc.select:data.max_response_length,512}" router_config_path=null '
        'scheduling_policy="fcfs" seed=42 skip_tokenizer_init=true temperature=1.0 '
        "tensor_model_parallel_size=2 top_k=-1 top_p=1 trace val_kwargs"
    ),
    "actor_rollout_ref.rollout.agent": (
        '_target_="verl.workers.config.AgentLoopConfig" agent_loop_config_path=null custom_async_server '
        'default_agent_loop="single_turn_agent" num_workers=8'
    ),
    "actor_rollout_ref.rollout.agent.custom_async_server": (
        '_target_="verl.workers.config.CustomAsyncServerConfig" name=null path=null'
    ),
    "actor_rollout_ref.rollout.checkpoint_engine": (
        '_target_="verl.workers.config.CheckpointEngineConfig" backend="naive" custom_backend_module=null '
        "engine_kwargs={} update_weights_bucket_megabytes=2048"
    ),
    "actor_rollout_ref.rollout.disaggregation": (
        "bootstrap_port=null decode_replicas=1 decode_tensor_model_parallel_size=null enabled=false "
        'ib_device=null prefill_replicas=1 transfer_backend="nixl"'
    ),
    "actor_rollout_ref.rollout.engine_kwargs": ("sglang={} trtllm={} vllm={}"),
    "actor_rollout_ref.rollout.multi_turn": (
        '_target_="verl.workers.config.MultiTurnConfig" enable=false format="hermes" function_tool_path=null '
        "max_assistant_turns=null max_parallel_calls=1 max_tool_response_length=256 max_user_turns=null "
        'num_repeat_rollouts=null tokenization_sanity_check_mode="strict" tool_config_path=null '
        'tool_response_truncate_side="middle" use_inference_chat_template=false'
    ),
    "actor_rollout_ref.rollout.profiler": (
        '_target_="verl.utils.profiler.ProfilerConfig" '
        'all_ranks="${oc.select:actor_rollout_ref.actor.profiler.all_ranks,false}" '
        'enable="${oc.select:actor_rollout_ref.actor.profiler.enable,false}" '
        'finish_hook_all_ranks="${oc.select:actor_rollout_ref.actor.profiler.finish_hook_all_ranks,false}" '
        'finish_hook_cmd="${oc.select:actor_rollout_ref.actor.profiler.finish_hook_cmd,null}" '
        'finish_hook_ranks="${oc.select:actor_rollout_ref.actor.profiler.finish_hook_ranks,[]}" '
        'ranks="${oc.select:actor_rollout_ref.actor.profiler.ranks,[]}" '
        'relocate_results="${oc.select:actor_rollout_ref.actor.profiler.relocate_results,false}" '
        'save_path="${oc.select:global_profiler.save_path,null}" '
        'tool="${oc.select:global_profiler.tool,null}" tool_config'
    ),
    "actor_rollout_ref.rollout.profiler.tool_config": ("npu precision_debugger torch"),
    "actor_rollout_ref.rollout.profiler.tool_config.npu": (
        '_target_="verl.utils.profiler.config.NPUToolConfig" '
        'analysis="${oc.select:actor_rollout_ref.actor.profiler.tool_config.npu.analysis,false}" '
        'contents="${oc.select:actor_rollout_ref.actor.profiler.tool_config.npu.contents,[]}" '
        'discrete="${oc.select:actor_rollout_ref.actor.profiler.tool_config.npu.discrete,false}" '
        'level="${oc.select:actor_rollout_ref.actor.profiler.tool_config.npu.level,level0}" '
        "profile_token_end=null profile_token_start=null"
    ),
    "actor_rollout_ref.rollout.profiler.tool_config.precision_debugger": (
        '_target_="verl.utils.profiler.config.PrecisionDebuggerToolConfig" '
        'config_path="${oc.select:actor_rollout_ref.actor.profiler.tool_config.precision_debugger.config_path,'
        '${oc.select:global_profiler.global_tool_config.precision_debugger.config_path,null}}" '
        'stages="${oc.select:actor_rollout_ref.actor.profiler.tool_config.precision_debugger.stages,${oc.selec'
        't:global_profiler.global_tool_config.precision_debugger.stages,null}}" '
        "steps=null "
        'strict="${oc.select:actor_rollout_ref.actor.profiler.tool_config.precision_debugger.strict,${oc.selec'
        't:global_profiler.global_tool_config.precision_debugger.strict,False}}"'
    ),
    "actor_rollout_ref.rollout.profiler.tool_config.torch": (
        '_target_="verl.utils.profiler.config.TorchProfilerToolConfig" '
        'contents="${oc.select:actor_rollout_ref.actor.profiler.tool_config.torch.contents,[]}" '
        'discrete="${oc.select:actor_rollout_ref.actor.profiler.tool_config.torch.discrete,false}" '
        "profile_token_end=null profile_token_start=null"
    ),
    "actor_rollout_ref.rollout.prometheus": (
        '_target_="verl.workers.config.PrometheusConfig" enable=false '
        'file="/tmp/ray/session_latest/metrics/prometheus/prometheus.yml" port=9090 '
        'served_model_name="${oc.select:actor_rollout_ref.model.path,null}"'
    ),
    "actor_rollout_ref.rollout.trace": (
        '_target_="verl.workers.config.TraceConfig" backend=null '
        'experiment_name="${oc.select:trainer.experiment_name,null}" max_samples_per_step_per_worker=null '
        'project_name="${oc.select:trainer.project_name,null}" token2text=false'
    ),
    "actor_rollout_ref.rollout.val_kwargs": (
        '_target_="verl.workers.config.SamplingConfig" do_sample=false n=1 temperature=0 top_k=-1 top_p=1.0'
    ),
}
DP: dict[str, str] = {
    "actor_rollout_ref.actor": (
        '_target_="verl.workers.config.FSDPActorConfig" entropy_checkpointing=false fsdp_config grad_clip=1.0 '
        'pad_to_length=false strategy="fsdp" ulysses_sequence_parallel_size=1 '
        'use_remove_padding="${oc.select:actor_rollout_ref.model.use_remove_padding,false}"'
    ),
    "actor_rollout_ref.actor.checkpoint": ('_target_="verl.trainer.config.CheckpointConfig"'),
    "actor_rollout_ref.actor.fsdp_config": (
        '_target_="verl.workers.config.FSDPEngineConfig" dtype="bfloat16" '
        'entropy_checkpointing="${oc.select:actor_rollout_ref.actor.entropy_checkpointing,False}" '
        'entropy_from_logits_chunk_size="${oc.select:actor_rollout_ref.actor.entropy_from_logits_chunk_size,20'
        '48}" '
        'entropy_from_logits_with_chunking="${oc.select:actor_rollout_ref.actor.entropy_from_logits_with_chunk'
        'ing,False}" '
        'forward_only=false forward_prefetch=false fsdp_size=-1 full_determinism=false model_dtype="fp32" '
        "offload_policy=false optimizer_offload=false "
        'pad_to_length="${oc.select:actor_rollout_ref.actor.pad_to_length,False}" pad_to_length_bucket=1024 '
        'param_offload=false qat reshard_after_forward=true seed=42 strategy="fsdp" turbo_config '
        "ulysses_sequence_parallel_size=1 use_no_sync_for_gradient_accumulation=false use_orig_params=false "
        "use_torch_compile=true wrap_policy"
    ),
    "actor_rollout_ref.actor.fsdp_config.qat": (
        '_target_="verl.workers.config.QATEngineConfig" activation_observer="static_minmax" enable=false '
        'group_size=16 ignore_patterns=["lm_head","embed_tokens","re:.*mlp.gate$"] mode="w4a16" '
        "quantization_config_path=null"
    ),
    "actor_rollout_ref.actor.fsdp_config.turbo_config": ("distributed"),
    "actor_rollout_ref.actor.fsdp_config.turbo_config.distributed": (
        "expert_fully_shard_parallel_size=1 expert_parallel_size=1 fsdp_plan fully_shard_parallel_size=16 "
        "tensor_parallel_size=1 ulysses_parallel_size=1"
    ),
    "actor_rollout_ref.actor.fsdp_config.turbo_config.distributed.fsdp_plan": (
        'fsdp_implementation="native" num_to_backward_prefetch=1 num_to_forward_prefetch=1 '
        'output_dtype="bf16" param_dtype="bf16" reduce_dtype="fp32"'
    ),
    "actor_rollout_ref.actor.fsdp_config.wrap_policy": ("min_num_params=0"),
    "actor_rollout_ref.actor.optim": (
        '_target_="verl.workers.config.FSDPOptimizerConfig" lr_scheduler_type="constant" min_lr_ratio=0.0 '
        'num_cycles=0.5 optimizer="AdamW" optimizer_impl="torch.optim" override_optimizer_config=null '
        "warmup_style=null zero_indexed_step=true"
    ),
    "actor_rollout_ref.ref": (
        '_target_="verl.workers.config.FSDPActorConfig" entropy_checkpointing=false '
        "entropy_from_logits_chunk_size=2048 entropy_from_logits_with_chunking=false fsdp_config "
        'pad_to_length="${oc.select:actor_rollout_ref.actor.pad_to_length,False}" '
        'strategy="${actor_rollout_ref.actor.strategy}" '
        'ulysses_sequence_parallel_size="${oc.select:actor_rollout_ref.actor.ulysses_sequence_parallel_size,1}'
        '"'
    ),
    "actor_rollout_ref.ref.fsdp_config": (
        '_target_="verl.workers.config.FSDPEngineConfig" dtype="bfloat16" '
        'entropy_checkpointing="${oc.select:actor_rollout_ref.ref.entropy_checkpointing,False}" '
        'entropy_from_logits_chunk_size="${oc.select:actor_rollout_ref.ref.entropy_from_logits_chunk_size,2048'
        '}" '
        'entropy_from_logits_with_chunking="${oc.select:actor_rollout_ref.ref.entropy_from_logits_with_chunkin'
        'g,False}" '
        'forward_only=true forward_prefetch=false fsdp_size=-1 full_determinism=false model_dtype="fp32" '
        "offload_policy=false optimizer_offload=false "
        'pad_to_length="${oc.select:actor_rollout_ref.ref.pad_to_length,False}" '
        'pad_to_length_bucket="${oc.select:actor_rollout_ref.actor.fsdp_config.pad_to_length_bucket,1024}" '
        'param_offload=false qat reshard_after_forward=true seed=42 strategy="fsdp" turbo_config '
        "ulysses_sequence_parallel_size=1 use_no_sync_for_gradient_accumulation=false use_orig_params=false "
        "use_torch_compile=true wrap_policy"
    ),
    "actor_rollout_ref.ref.fsdp_config.qat": (
        '_target_="verl.workers.config.QATEngineConfig" activation_observer="static_minmax" enable=false '
        'group_size=16 ignore_patterns=["lm_head","embed_tokens","re:.*mlp.gate$"] mode="w4a16" '
        "quantization_config_path=null"
    ),
    "actor_rollout_ref.ref.fsdp_config.turbo_config": ("distributed"),
    "actor_rollout_ref.ref.fsdp_config.turbo_config.distributed": (
        "expert_fully_shard_parallel_size=1 expert_parallel_size=1 fsdp_plan fully_shard_parallel_size=16 "
        "tensor_parallel_size=1 ulysses_parallel_size=1"
    ),
    "actor_rollout_ref.ref.fsdp_config.turbo_config.distributed.fsdp_plan": (
        'fsdp_implementation="native" num_to_backward_prefetch=1 num_to_forward_prefetch=1 '
        'output_dtype="bf16" param_dtype="bf16" reduce_dtype="fp32"'
    ),
    "actor_rollout_ref.ref.fsdp_config.wrap_policy": ("min_num_params=0"),
}
MEGATRON: dict[str, str] = {
    "actor_rollout_ref.actor": ('_target_="verl.workers.config.McoreActorConfig" megatron strategy="megatron"'),
    "actor_rollout_ref.actor.checkpoint": ('_target_="verl.workers.config.McoreCheckpointConfig" mbridge_config={}'),
    "actor_rollout_ref.actor.megatron": (
        '_target_="verl.workers.config.McoreEngineConfig" context_parallel_size=1 '
        'dist_checkpointing_path=null dist_checkpointing_prefix="" dist_ckpt_optim_fully_reshardable=false '
        'distrib_optim_fully_reshardable_mem_efficient=false dtype="bfloat16" dynamic_context_parallel=false '
        'entropy_from_logits_chunk_size="${oc.select:actor_rollout_ref.actor.entropy_from_logits_chunk_size,20'
        '48}" '
        'entropy_from_logits_with_chunking="${oc.select:actor_rollout_ref.actor.entropy_from_logits_with_chunk'
        'ing,False}" '
        "expert_model_parallel_size=1 expert_tensor_parallel_size=null forward_only=false "
        "max_seqlen_per_dp_cp_rank=null optimizer_offload=false override_ddp_config={} "
        "override_mcore_model_config={} override_transformer_config pad_bshd_to_minibatch_max=true "
        "pad_to_length=false pad_to_length_bucket=512 param_offload=false pipeline_model_parallel_size=1 qat "
        "router_replay seed=42 sequence_parallel=true tensor_model_parallel_size=1 "
        "use_dist_checkpointing=false use_distributed_optimizer=true use_mbridge=true use_megatron_fsdp=false "
        "use_remove_padding=true vanilla_mbridge=false virtual_pipeline_model_parallel_size=null"
    ),
    "actor_rollout_ref.actor.megatron.override_transformer_config": (
        'attention_backend="flash" recompute_granularity=null recompute_method=null '
        'recompute_modules=["core_attn"] recompute_num_layers=null'
    ),
    "actor_rollout_ref.actor.megatron.qat": (
        '_target_="verl.workers.config.QATEngineConfig" activation_observer=null enable=false group_size=16 '
        'ignore_patterns=["lm_head","*mlp.gate"] mode="w4a16" quantization_config_path=null'
    ),
    "actor_rollout_ref.actor.megatron.router_replay": (
        '_target_="verl.workers.config.EngineRouterReplayConfig" mode="disabled" record_file=null replay_file=null'
    ),
    "actor_rollout_ref.actor.optim": (
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
    "actor_rollout_ref.ref": (
        '_target_="verl.workers.config.McoreActorConfig" '
        'entropy_from_logits_chunk_size="${oc.select:actor_rollout_ref.actor.entropy_from_logits_chunk_size,20'
        '48}" '
        'entropy_from_logits_with_chunking="${oc.select:actor_rollout_ref.actor.entropy_from_logits_with_chunk'
        'ing,False}" '
        'megatron strategy="megatron"'
    ),
    "actor_rollout_ref.ref.megatron": (
        '_target_="verl.workers.config.McoreEngineConfig" '
        'context_parallel_size="${oc.select:actor_rollout_ref.actor.megatron.context_parallel_size,1}" '
        'dist_checkpointing_path=null dist_checkpointing_prefix="" dist_ckpt_optim_fully_reshardable=false '
        'distrib_optim_fully_reshardable_mem_efficient=false dtype="bfloat16" '
        'dynamic_context_parallel="${oc.select:actor_rollout_ref.actor.megatron.dynamic_context_parallel,False'
        '}" '
        'entropy_from_logits_chunk_size="${oc.select:actor_rollout_ref.actor.entropy_from_logits_chunk_size,20'
        '48}" '
        'entropy_from_logits_with_chunking="${oc.select:actor_rollout_ref.actor.entropy_from_logits_with_chunk'
        'ing,False}" '
        'expert_model_parallel_size="${oc.select:actor_rollout_ref.actor.megatron.expert_model_parallel_size,1'
        '}" '
        'expert_tensor_parallel_size="${oc.select:actor_rollout_ref.actor.megatron.expert_tensor_parallel_size'
        ',null}" '
        "forward_only=true "
        'max_seqlen_per_dp_cp_rank="${oc.select:actor_rollout_ref.actor.megatron.max_seqlen_per_dp_cp_rank,nul'
        'l}" '
        "optimizer_offload=false override_ddp_config={} override_mcore_model_config={} "
        'override_transformer_config="${oc.select:actor_rollout_ref.actor.megatron.override_transformer_config'
        ',{}}" '
        "pad_bshd_to_minibatch_max=true "
        'pad_to_length="${oc.select:actor_rollout_ref.actor.megatron.pad_to_length,False}" '
        'pad_to_length_bucket="${oc.select:actor_rollout_ref.actor.megatron.pad_to_length_bucket,512}" '
        'param_offload="${oc.select:actor_rollout_ref.actor.megatron.param_offload,False}" '
        'pipeline_model_parallel_size="${oc.select:actor_rollout_ref.actor.megatron.pipeline_model_parallel_si'
        'ze,1}" '
        'qat router_replay seed="${oc.select:actor_rollout_ref.actor.megatron.seed,42}" '
        "sequence_parallel=true "
        'tensor_model_parallel_size="${oc.select:actor_rollout_ref.actor.megatron.tensor_model_parallel_size,1'
        '}" '
        "use_dist_checkpointing=false use_distributed_optimizer=true "
        'use_mbridge="${oc.select:actor_rollout_ref.actor.megatron.use_mbridge,False}" '
        "use_megatron_fsdp=false "
        'use_remove_padding="${oc.select:actor_rollout_ref.actor.megatron.use_remove_padding,True}" '
        'vanilla_mbridge="${oc.select:actor_rollout_ref.actor.megatron.vanilla_mbridge,False}" '
        'virtual_pipeline_model_parallel_size="${oc.select:actor_rollout_ref.actor.megatron.virtual_pipeline_m'
        'odel_parallel_size,null}"'
    ),
    "actor_rollout_ref.ref.megatron.qat": (
        '_target_="verl.workers.config.QATEngineConfig" activation_observer=null enable=false group_size=16 '
        'ignore_patterns=["lm_head","*mlp.gate"] mode="w4a16" quantization_config_path=null'
    ),
    "actor_rollout_ref.ref.megatron.router_replay": (
        '_target_="verl.workers.config.EngineRouterReplayConfig" mode="disabled" record_file=null replay_file=null'
    ),
}
