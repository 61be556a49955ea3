"""Names that Megatron and MindSpeed read, by file. Written by scripts/megatron_names.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A pinned commit of one repository."""

    repository: str
    branch: str
    commit: str
    names: Mapping[str, str]
    """File -> the names in it, separated by spaces."""


SOURCES = (
    Source(
        "Ascend/MindSpeed",
        "core_r0.16.0",
        "e4772499f7eb9fa9a68919dd1eaddef00e915b2d",
        {
            "docs/zh/features/verl-ckpt-acceleration.md": ("ckpt_acceleration"),
            "docs/zh/user-guide/verl.md": (
                "context_parallel_size moe_grouped_gemm normalization position_embedding_type recompute_granularity "
                "recompute_method recompute_num_layers sequence_parallel swiglu use_distributed_optimizer "
                "use_flash_attn use_fused_moe_token_permute_and_unpermute use_fused_rmsnorm "
                "use_fused_rotary_pos_emb use_fused_swiglu"
            ),
            "mindspeed/arguments.py": (
                "adaptive_cp_dynamic_attn_mask adaptive_cp_manually_set_mask_list adaptive_cp_only_reschedule "
                "adaptive_cp_without_coarse adaptive_memory_optimization adaptive_recompute_device_size "
                "adaptive_recompute_device_swap adaptive_recompute_profiling_step add_dense_bias add_qkv_bias "
                "additional_config alibi_diagonal_opposite alibi_fusion_attn_type ampipe_degree "
                "ampipe_tp_sp_comm_overlap attention_mask_on_cpu attention_mask_type auto_settings "
                "auto_settings_log_level auto_settings_ranks auto_settings_type auto_settings_work_dir "
                "automated_pipeline automated_pipeline_perf coc_fused_kernel coc_mode coc_parallel_num "
                "context_parallel_algo context_parallel_cache_interval context_parallel_kv_cache_policy "
                "cp_window_size disable_gloo_group ema_decay enable_backward_overlap_ag_with_matmul "
                "enable_overlap_ag_with_matmul enable_overlap_matmul_with_rs enable_recompute_layers_per_pp_rank "
                "enable_token_rearrange_opt enable_zero3 expert_interval fill_neg_inf "
                "gemm_gradient_accumulation_fusion hccl_ep_group_buffer_adaptive_factor hccl_group_buffer "
                "hccl_group_buffer_adaptive hccl_slice_size jit_compile kv_lora_rank master_addr master_port "
                "mbs_idx megatron_cp_in_bnsd moe_adaptive_recompute_activation "
                "moe_adaptive_recompute_activation_scale moe_allgather_overlap_comm moe_alltoall_overlap_comm "
                "moe_bmm_mc2 moe_dynamic_padding moe_model_type moe_no_drop moe_permutation_async_comm "
                "moe_tp_extend_ep moe_train_capacity_factor moe_use_sinkhorn moe_zero_memory "
                "moe_zero_memory_num_layers multi_head_latent_attention n_shared_experts nd1_dim1_size "
                "nd2_dim1_size next_tockens nnodes node_rank noisy_gate_policy noop_layers nproc_per_node "
                "npu_deterministic num_layer_list op_cal_tflops optimization_level optimize_send_recv_comm "
                "optimize_vpp_send_recv_comm optimized_mbs_list optimized_mbs_mode optimizer_selection "
                "param_and_grad_buffer_pad pipe_experts_multi_data pipe_experts_multi_stream pp_schedule_list "
                "pre_tockens prof_file profile_level profile_ranks profile_record_shapes profile_save_path "
                "profile_with_cpu profile_with_memory profile_with_stack q_lora_rank qk_nope_head_dim "
                "qk_rope_head_dim recompute_activation_function recompute_activation_function_num_layers "
                "recompute_in_advance recompute_in_bubble recompute_module_list recompute_norm "
                "recompute_norm_num_layers recompute_type reuse_fp32_param rope_scaling_beta_fast "
                "rope_scaling_beta_slow rope_scaling_mscale rope_scaling_mscale_all_dim "
                "rope_scaling_original_max_position_embeddings rope_scaling_type save_memory_ratio shape_order "
                "skip_bias_add smart_swap sparse_mode square_alibi_mask swap_attention swap_modules target_nnodes "
                "tokenizer_name_or_path tokenizer_not_use_fast tokenizer_type tp_2d tp_x tp_y ulysses_degree_in_cp "
                "use_ascend_coc use_ascend_mc2 use_cp_send_recv_overlap use_ema "
                "use_fused_moe_token_permute_and_unpermute use_fused_ring_attention_update use_fused_rmsnorm "
                "use_fused_rotary_pos_emb use_fused_swiglu use_fusion_attn_v2 "
                "use_multiparameter_pipeline_model_parallel use_nanopipe use_nanopipe_swap use_nd_matmul "
                "use_pipe_experts use_rts use_ulysses_allgather_kv v_head_dim variable_seq_lengths "
                "yarn_scaling_factor"
            ),
            "mindspeed/features_manager/ai_framework/ms_patch_feature.py": ("ai_framework"),
            "mindspeed/features_manager/auto_settings/auto_settings_feature.py": (
                "auto_settings auto_settings_log_level auto_settings_ranks auto_settings_type "
                "auto_settings_work_dir automated_pipeline automated_pipeline_perf jit_compile master_addr "
                "master_port nnodes node_rank nproc_per_node prof_file recompute_module_list target_nnodes"
            ),
            "mindspeed/features_manager/batch_invariant/batch_invariant.py": (
                "use_batch_invariant_ops use_flash_attn_npu_batch_invariant"
            ),
            "mindspeed/features_manager/compress_dense/compress_dense.py": ("compress_dense"),
            "mindspeed/features_manager/context_parallel/adaptive_context_parallel.py": (
                "adaptive_cp_dynamic_attn_mask adaptive_cp_manually_set_mask_list adaptive_cp_only_reschedule "
                "adaptive_cp_without_coarse attention_mask_on_cpu"
            ),
            "mindspeed/features_manager/context_parallel/context_parallel_feature.py": (
                "attention_mask_type context_parallel_algo cp_window_size megatron_cp_in_bnsd "
                "use_cp_send_recv_overlap use_fused_ring_attention_update"
            ),
            "mindspeed/features_manager/context_parallel/context_parallel_kv_cache.py": (
                "context_parallel_cache_interval context_parallel_kv_cache_policy use_ulysses_allgather_kv"
            ),
            "mindspeed/features_manager/context_parallel/gated_delta_net.py": ("use_naive_l2norm"),
            "mindspeed/features_manager/context_parallel/ulysses_context_parallel.py": ("ulysses_degree_in_cp"),
            "mindspeed/features_manager/data_parallel/async_log_allreduce.py": ("async_log_allreduce"),
            "mindspeed/features_manager/disable_gloo_group/disable_gloo_group_feature.py": (
                "disable_gloo_group hccl_slice_size"
            ),
            "mindspeed/features_manager/dist_train/dist_train_feature.py": ("dist_train"),
            "mindspeed/features_manager/distributed/buffer_pad.py": ("param_and_grad_buffer_pad"),
            "mindspeed/features_manager/distributed/layerzero.py": ("layerzero layerzero_config"),
            "mindspeed/features_manager/distributed/reset_bucket_group_order_feature.py": ("reset_bucket_group_order"),
            "mindspeed/features_manager/distributed/torch_fully_sharded_data_parallel.py": ("fsdp2_config_path"),
            "mindspeed/features_manager/functional/npu_deterministic.py": ("npu_deterministic"),
            "mindspeed/features_manager/functional/profile.py": (
                "profile_level profile_record_shapes profile_save_path profile_with_cpu profile_with_memory "
                "profile_with_stack"
            ),
            "mindspeed/features_manager/functional/tflops_calculate.py": ("op_cal_tflops"),
            "mindspeed/features_manager/fusions/fused_moe_permute.py": ("use_fused_moe_token_permute_and_unpermute"),
            "mindspeed/features_manager/fusions/fused_rope.py": ("use_fused_rotary_pos_emb"),
            "mindspeed/features_manager/hccl_buffer/hccl_buffer_adaptive.py": (
                "hccl_ep_group_buffer_adaptive_factor hccl_group_buffer_adaptive"
            ),
            "mindspeed/features_manager/hccl_buffer/hccl_buffer_set.py": ("hccl_group_buffer"),
            "mindspeed/features_manager/hccl_buffer/hccl_op_mode_set.py": ("hccl_op_mode"),
            "mindspeed/features_manager/megatron_basic/megatron_basic.py": ("use_fused_rmsnorm use_fused_swiglu"),
            "mindspeed/features_manager/megatron_basic/requirements_basic.py": (
                "optimization_level optimizer_selection"
            ),
            "mindspeed/features_manager/megatron_basic/transformer_engine_basic.py": (
                "te_comparison_with_bf16 te_comparison_with_cpu use_gmm_fp8"
            ),
            "mindspeed/features_manager/memory/reuse_fp32_param.py": ("reuse_fp32_param"),
            "mindspeed/features_manager/memory/smart_swap.py": ("smart_swap"),
            "mindspeed/features_manager/memory/swap_attention.py": ("swap_attention swap_modules"),
            "mindspeed/features_manager/moe/balanced_moe.py": (
                "balanced_moe_experts balanced_moe_hot_expert_num trans_hot_expert_group_num"
            ),
            "mindspeed/features_manager/moe/experts_placement.py": (
                "enable_expert_placement enable_fine_grained_expert_placement expert_placement_freq "
                "fine_grained_expert_placement_thre print_expert_load"
            ),
            "mindspeed/features_manager/moe/fb_overlap.py": ("moe_fb_overlap moe_unperm2_mem_optim_swap"),
            "mindspeed/features_manager/moe/gmm.py": ("gemm_gradient_accumulation_fusion"),
            "mindspeed/features_manager/moe/moe_allgather_overlap.py": ("moe_allgather_overlap_comm"),
            "mindspeed/features_manager/moe/moe_alltoall_overlap.py": ("moe_alltoall_overlap_comm"),
            "mindspeed/features_manager/moe/moe_zero_memory.py": ("moe_zero_memory moe_zero_memory_num_layers"),
            "mindspeed/features_manager/moe/shared_expert.py": ("n_shared_experts"),
            "mindspeed/features_manager/moe/tp_extend_ep.py": ("moe_permutation_async_comm moe_tp_extend_ep"),
            "mindspeed/features_manager/optimizer/fused_ema_adamw_feature.py": ("ema_decay"),
            "mindspeed/features_manager/optimizer/low_precision_optimizer_feature.py": ("quant_grads quant_states"),
            "mindspeed/features_manager/optimizer/swap_optimizer_feature.py": ("swap_optimizer swap_optimizer_times"),
            "mindspeed/features_manager/optimizer/virtual_optimizer.py": ("virtual_optimizer"),
            "mindspeed/features_manager/pipeline_parallel/dualpipev_feature.py": (
                "dualpipev_dw_detach schedules_method"
            ),
            "mindspeed/features_manager/pipeline_parallel/multi_parameter.py": (
                "use_multiparameter_pipeline_model_parallel"
            ),
            "mindspeed/features_manager/pipeline_parallel/noop_layers.py": ("noop_layers"),
            "mindspeed/features_manager/pipeline_parallel/optimize_send_recv_comm.py": ("optimize_send_recv_comm"),
            "mindspeed/features_manager/pipeline_parallel/ripipe_schedules_feature.py": (
                "recompute_in_advance recompute_in_bubble"
            ),
            "mindspeed/features_manager/pipeline_parallel/unaligned_pineline_feature.py": (
                "pipeline_num_transformer_layers"
            ),
            "mindspeed/features_manager/pipeline_parallel/variable_seq_length.py": ("variable_seq_lengths"),
            "mindspeed/features_manager/recompute/activation_function.py": (
                "recompute_activation_function recompute_activation_function_num_layers"
            ),
            "mindspeed/features_manager/recompute/enable_recompute_layers_per_pp_rank.py": (
                "enable_recompute_layers_per_pp_rank"
            ),
            "mindspeed/features_manager/recompute/norm_function.py": ("recompute_norm recompute_norm_num_layers"),
            "mindspeed/features_manager/tensor_parallel/locl_coc.py": (
                "coc_fused_kernel coc_mode coc_parallel_num use_ascend_coc"
            ),
            "mindspeed/features_manager/tensor_parallel/mc2.py": ("use_ascend_mc2"),
            "mindspeed/features_manager/tensor_parallel/tp_2d.py": (
                "enable_backward_overlap_ag_with_matmul enable_overlap_ag_with_matmul enable_overlap_matmul_with_rs "
                "tp_2d tp_x tp_y"
            ),
            "mindspeed/features_manager/tensor_parallel/unaligned_linear_feature.py": ("unaligned_linear"),
            "mindspeed/features_manager/tokenizer/build_tokenizer.py": (
                "tokenizer_name_or_path tokenizer_not_use_fast"
            ),
            "mindspeed/features_manager/transformer/experimental_attention_variant/dsa.py": (
                "apply_rope_in_complex use_dsa_absorb use_fused_lightning_indexer "
                "use_fused_lightning_indexer_kl_loss use_fused_sparse_flash_attention"
            ),
            "mindspeed/features_manager/transformer/flash_attention/alibi_feature.py": (
                "alibi_diagonal_opposite alibi_fusion_attn_type fill_neg_inf square_alibi_mask"
            ),
            "mindspeed/features_manager/transformer/flash_attention/fusion_attention_v1_feature.py": (
                "next_tockens pre_tockens sparse_mode"
            ),
            "mindspeed/features_manager/transformer/flash_attention/fusion_attention_v2_feature.py": (
                "use_fusion_attn_v2"
            ),
            "mindspeed/features_manager/transformer/multi_head_latent_attention/mla_feature.py": (
                "multi_head_latent_attention qk_nope_head_dim qk_rope_head_dim"
            ),
        },
    ),
    Source(
        "NVIDIA/Megatron-LM",
        "core_r0.16.0",
        "ddc0d6774783b032ddceacc5714e653651daecb9",
        {
            "megatron/core/model_parallel_config.py": (
                "_cpu_offloading_context async_tensor_model_parallel_allreduce autocast_dtype barrier_with_L1_time "
                "batch_p2p_comm batch_p2p_sync bf16 context_parallel_size cpu_offloading cpu_offloading_activations "
                "cpu_offloading_double_buffering cpu_offloading_num_layers cpu_offloading_weights "
                "cross_entropy_fusion_impl cross_entropy_loss_fusion deallocate_pipeline_outputs "
                "defer_embedding_wgrad_compute delay_wgrad_compute deterministic_mode enable_autocast "
                "ep_overlap_early_attn_memory_release expert_model_parallel_size expert_tensor_parallel_size "
                "finalize_model_grads_func fp16 grad_scale_func grad_sync_func gradient_accumulation_fusion "
                "hierarchical_context_parallel_sizes hybrid_context_parallel max_seqlen_per_dp_cp_rank "
                "microbatch_group_size_per_vp_stage moe_extended_tp mtp_standalone no_sync_func "
                "num_microbatches_with_partial_activation_checkpoints overlap_moe_expert_parallel_comm "
                "overlap_p2p_comm overlap_p2p_comm_warmup_flush param_sync_func params_dtype perform_initialization "
                "pipeline_dtype pipeline_model_parallel_comm_backend pipeline_model_parallel_size sequence_parallel "
                "tensor_model_parallel_size timers tp_comm_atomic_ag tp_comm_atomic_rs tp_comm_bootstrap_backend "
                "tp_comm_bulk_dgrad tp_comm_bulk_wgrad tp_comm_overlap tp_comm_overlap_ag "
                "tp_comm_overlap_disable_fc1 tp_comm_overlap_disable_qkv tp_comm_overlap_rs "
                "tp_comm_overlap_rs_dgrad tp_comm_split_ag tp_comm_split_rs use_cpu_initialization "
                "use_ring_exchange_p2p use_te_rng_tracker variable_seq_lengths virtual_pipeline_model_parallel_size "
                "wgrad_deferral_limit"
            ),
            "megatron/core/transformer/transformer_config.py": (
                "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split activation_func "
                "activation_func_clamp_value activation_func_fp8_input_store add_bias_linear add_qkv_bias "
                "apply_query_key_layer_scaling apply_residual_connection_post_layernorm apply_rope_fusion "
                "attention_backend attention_dropout attention_output_gate attention_softmax_in_fp32 "
                "batch_invariant_mode beta_fast beta_slow bias_activation_fusion bias_dropout_fusion "
                "cache_mla_latents calculate_per_token_loss clone_scatter_output_in_embedding config_logger_dir "
                "cp_comm_type cuda_graph_impl cuda_graph_retain_backward_graph cuda_graph_scope "
                "cuda_graph_use_single_mempool cuda_graph_warmup_steps disable_bf16_reduced_precision_matmul "
                "disable_parameter_transpose_cache distribute_saved_activations dsa_indexer_head_dim "
                "dsa_indexer_loss_coeff dsa_indexer_n_heads dsa_indexer_topk dsa_indexer_use_sparse_loss "
                "embedding_init_method embedding_init_method_std enable_cuda_graph experimental_attention_variant "
                "external_cuda_graph ffn_hidden_size fine_grained_activation_offloading first_last_layers_bf16 "
                "flash_decode fp32_residual_connection fp4 fp4_param fp4_quantizer_factory fp4_recipe fp8 "
                "fp8_amax_compute_algo fp8_amax_history_len fp8_dot_product_attention fp8_interval fp8_margin "
                "fp8_multi_head_attention fp8_param fp8_quantizer_factory fp8_recipe fp8_wgrad "
                "fused_single_qkv_rope gated_linear_unit glu_linear_offset hetereogenous_dist_checkpoint "
                "heterogeneous_block_specs hidden_dropout hidden_size inference_fuse_tp_communication "
                "inference_rng_tracker inference_sampling_seed init_method init_method_std "
                "init_model_with_meta_device is_hybrid_model kitchen_attention_backend kv_channels kv_lora_rank "
                "layernorm_epsilon layernorm_zero_centered_gamma linear_attention_freq linear_conv_kernel_dim "
                "linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim "
                "log_max_attention_logit mamba_head_dim mamba_num_groups mamba_num_heads mamba_state_dim "
                "masked_softmax_fusion memory_efficient_layer_norm min_offloaded_tensor_size mlp_chunks_for_prefill "
                "moe_apply_probs_on_input moe_aux_loss_coeff moe_deepep_num_sms moe_enable_deepep "
                "moe_enable_routing_replay moe_expert_capacity_factor moe_ffn_hidden_size "
                "moe_flex_dispatcher_backend moe_grouped_gemm moe_hybridep_num_sms moe_input_jitter_eps "
                "moe_latent_size moe_layer_freq moe_layer_recompute moe_pad_expert_input_to_capacity "
                "moe_per_layer_logging moe_permute_fusion moe_router_bias_update_rate moe_router_dtype "
                "moe_router_enable_expert_bias moe_router_force_load_balancing moe_router_fusion "
                "moe_router_group_topk moe_router_load_balancing_type moe_router_num_groups "
                "moe_router_padding_for_fp8 moe_router_padding_for_quantization moe_router_pre_softmax "
                "moe_router_score_function moe_router_topk moe_router_topk_limited_devices "
                "moe_router_topk_scaling_factor moe_shared_expert_gate moe_shared_expert_intermediate_size "
                "moe_shared_expert_overlap moe_token_dispatcher_type moe_token_drop_policy moe_token_dropping "
                "moe_use_legacy_grouped_gemm moe_z_loss_coeff mrope_section mscale mscale_all_dim "
                "mtp_loss_scaling_factor mtp_num_layers multi_latent_attention no_rope_freq normalization "
                "num_attention_heads num_layers num_layers_at_end_in_bf16 num_layers_at_start_in_bf16 "
                "num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage num_moe_experts "
                "num_query_groups offload_modules original_max_position_embeddings output_layer_init_method "
                "persist_layer_norm pipeline_model_parallel_layout q_lora_rank qk_clip qk_clip_alpha "
                "qk_clip_threshold qk_head_dim qk_l2_norm qk_layernorm qk_pos_emb_head_dim quant_recipe "
                "recompute_granularity recompute_method recompute_modules recompute_num_layers rope_type "
                "rotary_base rotary_interleaved rotary_percent rotary_scaling_factor softmax_scale softmax_type "
                "symmetric_ar_type test_mode tp_only_amax_red transformer_impl use_fused_weighted_squared_relu "
                "use_inference_optimized_layers use_kitchen use_kitchen_attention use_mamba_mem_eff_path "
                "use_te_activation_func use_te_rng_tracker v_head_dim window_attn_skip_freq window_size"
            ),
            "megatron/training/arguments.py": (
                "accumulate_allreduce_grads_in_fp32 adam_beta1 adam_beta2 adam_eps add_position_embedding "
                "adlr_autoresume adlr_autoresume_interval align_grad_reduce align_param_gather "
                "allow_ambiguous_pad_tokens app_tag_run_name app_tag_run_version apply_rope_fusion "
                "apply_wd_to_qk_layernorm attention_softmax_in_fp32 batch_size bert_binary_head bert_embedder_type "
                "bert_load bias_dropout_fusion bias_gelu_fusion bias_swiglu_fusion biencoder_projection_dim "
                "biencoder_shared_query_context_model block_data_path cache_mla_latents calc_ft_timeouts "
                "check_for_large_grads check_for_nan_in_loss_and_grad checkpoint_activations "
                "ckpt_fully_parallel_save_deprecated classes_fraction clip_grad cp_comm_type "
                "create_all_gather_group create_attention_mask_in_dataloader cuda_graph_scope data_args_path "
                "data_cache_path data_parallel_sharding_strategy data_path data_per_class_fraction data_sharding "
                "dataloader_defer_npy_index_mmap dataloader_fast_cache_load dataloader_type "
                "ddp_average_in_collective ddp_bucket_size ddp_num_buckets ddp_pad_buckets_for_high_nccl_busbw "
                "ddp_reduce_scatter_with_fp32_accumulation decode_only_cuda_graphs "
                "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers decoder_num_layers "
                "decoder_seq_length decoupled_lr decoupled_min_lr deprecated_use_mcore_models dino_bottleneck_size "
                "dino_freeze_last_layer dino_head_hidden_size dino_local_crops_number dino_local_img_size "
                "dino_norm_last_layer dino_teacher_temp dino_warmup_teacher_temp dino_warmup_teacher_temp_epochs "
                "disable_chunked_prefill disable_jit_fuser disable_symmetric_registration "
                "dist_ckpt_format_deprecated distributed_backend distributed_timeout_minutes "
                "distributed_timeout_seconds_after_init dump_param_to_param_group_map embedding_path "
                "enable_experimental enable_ft_package enable_full_sharding_in_hsdp enable_gloo_process_groups "
                "enable_msc enable_one_logger encoder_num_layers encoder_seq_length eod_mask_loss "
                "evidence_data_path exp_avg_dtype exp_avg_sq_dtype fake_process_group fim_data fim_eod_token "
                "fim_fragment_rate fim_middle_token fim_no_prefix fim_pad_token fim_prefix_token fim_rate "
                "fim_split_sample fim_spm_rate fim_suffix_token fp16_lm_cross_entropy fp8_param_gather "
                "fsdp_double_buffer fsdp_manual_registration ft_num_warmup_iters grad_reduce_in_bf16 "
                "gradient_accumulation_fusion gradient_reduce_div_fusion group_query_attention grpo_clamp_eps_lower "
                "grpo_clamp_eps_upper grpo_entropy_term_weight grpo_filter_groups_with_same_reward grpo_group_size "
                "grpo_iterations grpo_kl_beta grpo_prompts_per_step head_lr_mult "
                "heterogeneous_layers_config_encoded_json heterogeneous_layers_config_path "
                "high_priority_stream_groups hybrid_attention_ratio hybrid_mlp_ratio hybrid_override_pattern "
                "hysteresis ict_head_size ict_load img_h img_w indexer_batch_size indexer_log_interval "
                "inference_batch_times_seqlen_threshold inference_coordinator_port inference_dynamic_batching "
                "inference_dynamic_batching_block_size inference_dynamic_batching_buffer_size_gb "
                "inference_dynamic_batching_cuda_graph_max_tokens "
                "inference_dynamic_batching_cuda_graph_mixed_prefill_count inference_dynamic_batching_max_requests "
                "inference_dynamic_batching_max_tokens inference_dynamic_batching_num_cuda_graphs "
                "inference_dynamic_batching_paused_buffer_size_gb "
                "inference_dynamic_batching_track_paused_request_events "
                "inference_dynamic_batching_unified_memory_level inference_logging_step_interval "
                "inference_max_batch_size inference_max_seq_length inference_wandb_logging "
                "init_method_xavier_uniform initial_loss_scale inprocess_active_world_size "
                "inprocess_barrier_timeout inprocess_completion_timeout inprocess_empty_cuda_cache "
                "inprocess_granularity inprocess_hard_timeout inprocess_heartbeat_interval "
                "inprocess_heartbeat_timeout inprocess_last_call_wait inprocess_max_iterations "
                "inprocess_monitor_process_interval inprocess_monitor_thread_interval "
                "inprocess_progress_watchdog_interval inprocess_restart inprocess_soft_timeout "
                "inprocess_termination_grace_time iter_per_epoch keep_fp8_transpose_cache kitchen_config_file "
                "kitchen_recipe_number kv_lora_rank langrl_env_config langrl_external_server "
                "langrl_inference_server_conversation_template langrl_inference_server_type lazy_mpu_init "
                "legacy_tokenizer linear_attention_freq local_rank loss_scale loss_scale_window lr main_grads_dtype "
                "main_params_dtype make_vocab_size_divisible_by mask_factor mask_prob mask_type "
                "masked_softmax_fusion max_position_embeddings max_tokens_to_oom merge_file "
                "mid_level_dataset_surplus min_loss_scale min_lr mmap_bin_files mock_data model_parallel_size "
                "moe_aux_loss_coeff moe_layer_freq moe_pad_experts_for_cuda_graph_inference "
                "moe_router_load_balancing_type moe_upcycling_granularity moe_use_upcycling mscale mscale_all_dim "
                "muon_extra_scale_factor muon_fp32_matmul_prec muon_momentum muon_num_ns_steps muon_scale_mode "
                "muon_split_qkv muon_tp_mode muon_use_nesterov nccl_all_reduce_for_prefill "
                "nccl_communicator_config_path nccl_ub no_load_optim no_load_rng no_persist_layer_norm no_rope_freq "
                "no_save_optim no_save_rng no_weight_decay_cond_type num_channels num_classes "
                "num_dataset_builder_threads num_distributed_optimizer_instances num_experts "
                "num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank num_workers "
                "object_storage_cache_path one_logger_async one_logger_project one_logger_run_name onnx_safe "
                "openai_gelu optimizer optimizer_cpu_offload optimizer_offload_fraction outer_dp_sharding_strategy "
                "output_bert_embeddings overlap_cpu_optimizer_d2h_h2d overlap_grad_reduce overlap_p2p_comm "
                "overlap_param_gather overlap_param_gather_with_optimizer_step padded_vocab_size patch_dim "
                "per_dataset_sequences_path per_split_data_args_path perform_rl_step phase_transition_iterations "
                "pin_cpu_grads pin_cpu_params pipeline_model_parallel_layout position_embedding_type q_lora_rank "
                "qk_head_dim qk_pos_emb_head_dim query_in_block_prob quick_geglu recompute_activations refit_method "
                "relative_attention_max_distance relative_attention_num_buckets reset_attention_mask "
                "reset_position_ids result_rejected_tracker_filename retriever_report_topk_accuracies "
                "retriever_score_scaling reuse_grad_buf_for_mxfp8_param_ag rl_default_temperature rl_default_top_k "
                "rl_default_top_p rl_importance_sampling_truncation_coef rl_inference_expert_model_parallel_size "
                "rl_inference_expert_tensor_model_parallel_size rl_inference_logprobs_is_correction "
                "rl_inference_model_unified_memory_level rl_inference_pipeline_model_parallel_size "
                "rl_inference_tensor_model_parallel_size rl_offload_inference_model_weights_when_idle "
                "rl_offload_kv_cache_during_training rl_offload_optimizer_during_inference "
                "rl_parallel_generation_tasks rl_partial_rollouts rl_prompts_per_eval "
                "rl_remove_kv_cache_during_training rl_reset_cuda_graphs rl_sequence_packing_algo "
                "rl_sequence_packing_max_sequences_per_bin rl_skip_bos_token rl_training_cuda_graphs "
                "rl_use_sequence_packing rl_verify_model_weights_swap rope_scaling_factor rope_type rotary_base "
                "rotary_percent rotary_scaling_factor rotary_seq_len_interpolation_factor "
                "run_workload_inspector_server sample_rate scatter_gather_tensors_in_pipeline seq_length sft "
                "sft_tokenizer_prompt_format sgd_momentum sharp_enabled_group short_seq_prob spec split "
                "squared_relu suggested_communication_unit_size swiglu swin_backbone_type te_precision_config_file "
                "test_data_path tiktoken_num_special_tokens tiktoken_pattern tiktoken_special_tokens "
                "titles_data_path tokenizer_hf_include_special_tokens tokenizer_hf_use_fast tokenizer_metadata "
                "tokenizer_model tokenizer_sentencepiece_legacy tokenizer_special_tokens tokenizer_type "
                "torch_fsdp2_reshard_after_forward tp_comm_overlap_cfg train_data_path trust_remote_code "
                "untie_embeddings_and_output_weights use_dist_ckpt_deprecated use_distributed_optimizer "
                "use_flash_attn use_legacy_models use_legacy_static_engine use_megatron_fsdp use_one_sent_docs "
                "use_precision_aware_optimizer use_rope_scaling use_rotary_position_embeddings use_sharp "
                "use_torch_fsdp2 use_torch_optimizer_for_cpu_offload use_tp_pp_dp_mapping v_head_dim "
                "valid_data_path vision_backbone_type vision_pretraining vision_pretraining_type vocab_extra_ids "
                "vocab_file vocab_size warmup weight_decay window_attn_skip_freq window_size yaml_cfg"
            ),
        },
    ),
)
