"""What released vllm-ascend and MindSpeed have. Written by scripts/ascend_names.py; do not edit."""

from __future__ import annotations

VLLM_ASCEND_VERSION = "0.23.0"
VLLM_ASCEND_WHEEL = "vllm_ascend-0.23.0-cp311-cp311-manylinux_2_34_aarch64.whl"
VLLM_ASCEND_SHA256 = "cdf79713e6b77cf0a357ed5f99ad4864bbb7790d2903dd81aac5c760f6e86ce6"
VLLM_ASCEND_DEVICE = "A2"
VLLM_ASCEND_OPTIONS = (
    "SLO_limits_for_dynamic_batch ascend_compilation_config ascend_fusion_config ascend_log_path "
    "c8_enable_reshape_optim dp_allreduce_on_npu dump_config dump_config_path "
    "enable_async_exponential enable_balance_scheduling enable_cpu_binding enable_dsa_cp "
    "enable_flashcomm1 enable_flashcomm2_parallel_size enable_fused_mc2 enable_hamming_sparse "
    "enable_kv_nz enable_matmul_allreduce enable_mc2_hierarchy_comm enable_mlapo enable_prefill_mc2 "
    "enable_reduce_sample enable_shared_expert_dp enable_sleep_mode_extra_cleanup enable_sparse_li_c8 "
    "enable_sparse_sfa_c8 enable_transpose_kv_cache_by_block eplb_config finegrained_tp_config "
    "hamming_sparse layer_sharding mega_moe_max_tokens mix_placement msmonitor_use_daemon "
    "multistream_dsv4_dsa_overlap multistream_overlap_gate multistream_overlap_shared_expert "
    "pa_shape_list profiling_chunk_config recompute_scheduler_enable refresh rejection_sampler_config "
    "weight_nz_mode weight_prefetch_config xlite_graph_config"
)
VLLM_ASCEND_VARIABLES = (
    "ASCEND_HOME_PATH CMAKE_BUILD_TYPE COMPILE_CUSTOM_KERNELS CXX_COMPILER C_COMPILER DYNAMIC_EPLB "
    "HCCL_SO_PATH MAX_JOBS MSMONITOR_USE_DAEMON SOC_VERSION VERBOSE VLLM_ASCEND_BALANCE_SCHEDULING "
    "VLLM_ASCEND_ENABLE_BATCH_MEMCPY VLLM_ASCEND_ENABLE_FLASHCOMM1 VLLM_ASCEND_ENABLE_FUSED_MC2 "
    "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE VLLM_ASCEND_ENABLE_MLAPO VLLM_ASCEND_ENABLE_NZ "
    "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE VLLM_ASCEND_FUSION_OP_TRANSPOSE_KV_CACHE_BY_BLOCK "
    "VLLM_VERSION"
)
VLLM_ASCEND_METHODS = "dflash draft_model eagle eagle3 extract_hidden_states medusa mtp ngram ngram_gpu suffix"
VLLM_ASCEND_ENTRY_POINTS = {
    "vllm.general_plugins": ("ascend_kv_connector ascend_model ascend_model_loader ascend_service_profiling"),
    "vllm.platform_plugins": ("ascend"),
}
VLLM_ASCEND_REQUIRES = (
    "arctic-inference==0.1.1 cmake>=3.26 compressed_tensors>=0.11.0 decorator einops fastapi<0.124.0 "
    "memcache_hybrid memfabric_hybrid msgpack numba numpy packaging pandas pandas-stubs pip psutil "
    "pybind11 pyyaml quart regex scipy setuptools-scm>=8 setuptools>=64 torch-npu==2.10.0.post4 "
    "torch==2.10.0 torchaudio==2.10.0 torchvision==0.25.0 transformers==5.5.4 triton-ascend==3.2.2 "
    "wheel xgrammar>=0.1.30"
)
VLLM_ASCEND_SYMBOLS = {
    "vllm_ascend/ascend_config.py": (
        "AscendCompilationConfig AscendCompilationConfig.__init__ AscendConfig AscendConfig.__init__ "
        "AscendConfig._check_enable_hamming_sparse AscendConfig._check_mix_placement "
        "AscendConfig._check_mooncake_c8_kv_cache_quant AscendConfig._get_compile_ranges "
        "AscendConfig._get_config_value AscendConfig._has_sparse_li_c8_layer_config "
        "AscendConfig._materialize_dump_config_to_file "
        "AscendConfig._parse_sparse_li_c8_layers_from_quant_config AscendConfig._resolve_dump_config_path "
        "AscendConfig._set_compile_ranges AscendConfig.is_sparse_li_c8_layer "
        "AscendConfig.update_compile_ranges_split_points AscendFusionConfig AscendFusionConfig.__init__ "
        "EplbConfig EplbConfig.__getattr__ EplbConfig.__init__ EplbConfig._validate_config "
        "FinegrainedTPConfig FinegrainedTPConfig.__init__ ProfilingChunkConfig "
        "ProfilingChunkConfig.__init__ ProfilingChunkConfig._validate RejectionSamplerConfig "
        "RejectionSamplerConfig.__init__ RejectionSamplerConfig._validate WeightPrefetchConfig "
        "WeightPrefetchConfig.__init__ XliteGraphConfig XliteGraphConfig.__init__ "
        "_is_ascend_config_initialized clear_ascend_config get_ascend_config init_ascend_config"
    ),
    "vllm_ascend/attention/mla_v1.py": (
        "AscendMLABackend AscendMLABackend.get_builder_cls AscendMLABackend.get_impl_cls "
        "AscendMLABackend.get_kv_cache_shape AscendMLABackend.get_name "
        "AscendMLABackend.get_supported_kernel_block_sizes AscendMLADecodeMetadata AscendMLAImpl "
        "AscendMLAImpl.__init__ AscendMLAImpl._compute_prefill_context AscendMLAImpl._forward_decode "
        "AscendMLAImpl._forward_prefill AscendMLAImpl._mla_preprocess "
        "AscendMLAImpl._process_weights_for_fused_fa_quant AscendMLAImpl._process_weights_for_fused_mlapo "
        "AscendMLAImpl._process_weights_for_fused_mlapo_a5 AscendMLAImpl._q_proj_and_k_up_proj "
        "AscendMLAImpl._reorg_kvcache AscendMLAImpl._v_up_proj AscendMLAImpl.exec_kv_decode "
        "AscendMLAImpl.exec_kv_prefill AscendMLAImpl.forward AscendMLAImpl.forward_mha "
        "AscendMLAImpl.forward_mqa AscendMLAImpl.get_context_seq_len_npu "
        "AscendMLAImpl.get_num_actual_tokens AscendMLAImpl.mla_preprocess_decode "
        "AscendMLAImpl.mla_preprocess_prefill AscendMLAImpl.process_weights_after_loading "
        "AscendMLAImpl.reorg_decode_q AscendMLAImpl.rope_single AscendMLAImpl.update_graph_params "
        "AscendMLAMetadata AscendMLAMetadata.__post_init__ AscendMLAMetadataBuilder "
        "AscendMLAMetadataBuilder.__init__ AscendMLAMetadataBuilder.build "
        "AscendMLAMetadataBuilder.build_chunked_metadata AscendMLAMetadataBuilder.build_decode_metadata "
        "AscendMLAMetadataBuilder.build_for_graph_capture AscendMLAMetadataBuilder.build_prefill_metadata "
        "AscendMLAMetadataBuilder.determine_chunked_prefill_workspace_size "
        "AscendMLAMetadataBuilder.get_block_table_size AscendMLAMetadataBuilder.get_cudagraph_support "
        "AscendMLAMetadataBuilder.pad_actual_seq_len_q_mtp_disable_pad "
        "AscendMLAMetadataBuilder.pad_actual_seq_len_q_mtp_enable_pad "
        "AscendMLAMetadataBuilder.reorder_batch AscendMLAMetadataBuilder.set_num_actual_tokens "
        "AscendMLAPrefillMetadata ChunkedContextMetadata DecodeMLAPreprocessResult "
        "PrefillMLAPreprocessResult"
    ),
    "vllm_ascend/distributed/parallel_state.py": (
        "destroy_ascend_model_parallel get_dynamic_eplb_group get_embed_tp_group get_fc3_quant_x_group "
        "get_flashcomm2_odp_group get_flashcomm2_otp_group get_global_rank get_lmhead_tp_group "
        "get_mc2_group get_mlp_tp_group get_otp_group get_p_tp_group get_shard_weight_group "
        "init_ascend_model_parallel model_parallel_initialized"
    ),
    "vllm_ascend/worker/worker.py": (
        "NPUWorker NPUWorker.__init__ NPUWorker._check_nz_disabled "
        "NPUWorker._check_weight_transfer_engine NPUWorker._init_device "
        "NPUWorker._init_worker_distributed_environment NPUWorker._warm_up_atb NPUWorker.add_lora "
        "NPUWorker.check_health NPUWorker.compile_or_warm_up_model NPUWorker.determine_available_memory "
        "NPUWorker.execute_dummy_batch NPUWorker.execute_model NPUWorker.finish_weight_update "
        "NPUWorker.get_kv_cache_spec NPUWorker.get_kv_connector_handshake_metadata NPUWorker.get_model "
        "NPUWorker.get_supported_pooling_tasks NPUWorker.get_supported_tasks NPUWorker.init_device "
        "NPUWorker.init_weight_transfer_engine NPUWorker.initialize_cache "
        "NPUWorker.initialize_from_config NPUWorker.list_loras NPUWorker.load_model "
        "NPUWorker.log_memory_stats NPUWorker.pin_lora NPUWorker.profile "
        "NPUWorker.profile_prefill_latency NPUWorker.remove_lora NPUWorker.reset_encoder_cache "
        "NPUWorker.sample_tokens NPUWorker.shutdown NPUWorker.sleep NPUWorker.start_weight_update "
        "NPUWorker.take_draft_token_ids NPUWorker.uninstall_static_kernel NPUWorker.update_max_model_len "
        "NPUWorker.update_weights NPUWorker.wake_up parse_text_output"
    ),
}
MINDSPEED_COMMIT = "e4772499f7eb9fa9a68919dd1eaddef00e915b2d"
MINDSPEED_SYMBOLS = {
    "mindspeed/megatron_adaptor.py": ("delete_lock_file patch_features repatch"),
    "mindspeed/op_builder/adaptive_cp_builder.py": (
        "AdaptiveCpOpBuilder AdaptiveCpOpBuilder.__init__ AdaptiveCpOpBuilder.sources"
    ),
    "mindspeed/op_builder/adaptive_recomputing_builder.py": (
        "AdaptiveRecomputingPluggableAllocatorBuilder "
        "AdaptiveRecomputingPluggableAllocatorBuilder.__init__ "
        "AdaptiveRecomputingPluggableAllocatorBuilder.cxx_args "
        "AdaptiveRecomputingPluggableAllocatorBuilder.extra_ldflags "
        "AdaptiveRecomputingPluggableAllocatorBuilder.include_paths "
        "AdaptiveRecomputingPluggableAllocatorBuilder.sources"
    ),
    "mindspeed/op_builder/algorithm_builder.py": (
        "AlgorithmOpBuilder AlgorithmOpBuilder.__init__ AlgorithmOpBuilder.sources"
    ),
    "mindspeed/op_builder/atb_builder.py": (
        "AtbOpBuilder AtbOpBuilder.__init__ AtbOpBuilder.cxx_args AtbOpBuilder.extra_ldflags "
        "AtbOpBuilder.get_atb_path AtbOpBuilder.include_paths AtbOpBuilder.load"
    ),
    "mindspeed/op_builder/builder.py": (
        "MindSpeedOpBuilder MindSpeedOpBuilder.__init__ MindSpeedOpBuilder.cxx_args "
        "MindSpeedOpBuilder.extra_ldflags MindSpeedOpBuilder.get_absolute_paths "
        "MindSpeedOpBuilder.get_cann_path MindSpeedOpBuilder.include_paths MindSpeedOpBuilder.load "
        "MindSpeedOpBuilder.register_op_proto MindSpeedOpBuilder.sources"
    ),
    "mindspeed/op_builder/ffn_builder.py": (
        "FFNOpBuilder FFNOpBuilder.__init__ FFNOpBuilder.cxx_args FFNOpBuilder.include_paths "
        "FFNOpBuilder.register_op_ir FFNOpBuilder.sources"
    ),
    "mindspeed/op_builder/fused_adamw_v2_builder.py": (
        "FusedAdamWV2OpBuilder FusedAdamWV2OpBuilder.__init__ FusedAdamWV2OpBuilder.cxx_args "
        "FusedAdamWV2OpBuilder.include_paths FusedAdamWV2OpBuilder.sources"
    ),
    "mindspeed/op_builder/fused_ema_adamw_builder.py": (
        "FusedEmaAdamWOpBuilder FusedEmaAdamWOpBuilder.__init__ FusedEmaAdamWOpBuilder.cxx_args "
        "FusedEmaAdamWOpBuilder.include_paths FusedEmaAdamWOpBuilder.sources"
    ),
    "mindspeed/op_builder/fusion_attention_v2_builder.py": (
        "FusionAttentionV2OpBuilder FusionAttentionV2OpBuilder.__init__ "
        "FusionAttentionV2OpBuilder.cxx_args FusionAttentionV2OpBuilder.include_paths "
        "FusionAttentionV2OpBuilder.sources"
    ),
    "mindspeed/op_builder/gmm_builder.py": (
        "GMMOpBuilder GMMOpBuilder.__init__ GMMOpBuilder.register_op_ir GMMOpBuilderPublic "
        "GMMOpBuilderPublic.cxx_args GMMOpBuilderPublic.include_paths GMMOpBuilderPublic.sources "
        "GMMV2OpBuilder GMMV2OpBuilder.__init__ GMMV2OpBuilder.register_op_ir conveter_npu_gmm_param"
    ),
    "mindspeed/op_builder/groupmatmul_add_builder.py": (
        "GroupMatmulAddOpBuilder GroupMatmulAddOpBuilder.__init__ GroupMatmulAddOpBuilder.sources"
    ),
    "mindspeed/op_builder/lcal_builder.py": (
        "LcalOpBuilder LcalOpBuilder.__init__ LcalOpBuilder.cxx_args LcalOpBuilder.sources"
    ),
    "mindspeed/op_builder/matmul_add_builder.py": (
        "MatmulAddOpBuilder MatmulAddOpBuilder.__init__ MatmulAddOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_all_to_all_all_gather_bmm_builder.py": (
        "AllToAllAllGatherBatchMatMulOpBuilder AllToAllAllGatherBatchMatMulOpBuilder.__init__ "
        "AllToAllAllGatherBatchMatMulOpBuilder.cxx_args "
        "AllToAllAllGatherBatchMatMulOpBuilder.include_paths "
        "AllToAllAllGatherBatchMatMulOpBuilder.register_op_ir "
        "AllToAllAllGatherBatchMatMulOpBuilder.sources AllToAllAllGatherBatchMatmul CheckDtype "
        "GeDtypeToStr"
    ),
    "mindspeed/op_builder/npu_bmm_reduce_scatter_all_to_all_builder.py": (
        "BatchMatMulReduceScatterAlltoAllOpBuilder BatchMatMulReduceScatterAlltoAllOpBuilder.__init__ "
        "BatchMatMulReduceScatterAlltoAllOpBuilder.cxx_args "
        "BatchMatMulReduceScatterAlltoAllOpBuilder.include_paths "
        "BatchMatMulReduceScatterAlltoAllOpBuilder.register_op_ir "
        "BatchMatMulReduceScatterAlltoAllOpBuilder.sources BatchMatmulReduceScatterAlltoAll"
    ),
    "mindspeed/op_builder/npu_dropout_add_layer_norm_builder.py": (
        "NpuDropoutAddLayerNormOpBuilder NpuDropoutAddLayerNormOpBuilder.__init__ "
        "NpuDropoutAddLayerNormOpBuilder.cxx_args NpuDropoutAddLayerNormOpBuilder.include_paths "
        "NpuDropoutAddLayerNormOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_grouped_mat_mul_all_reduce_builder.py": (
        "GroupedMatMulAllReduceOpBuilder GroupedMatMulAllReduceOpBuilder.__init__ "
        "GroupedMatMulAllReduceOpBuilder.cxx_args GroupedMatMulAllReduceOpBuilder.include_paths "
        "GroupedMatMulAllReduceOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_inplace_mm_all_reduce_add_rms_norm_builder.py": (
        "InplaceMatmulAllReduceAddRmsNormOpBuilder InplaceMatmulAllReduceAddRmsNormOpBuilder.__init__ "
        "InplaceMatmulAllReduceAddRmsNormOpBuilder.cxx_args "
        "InplaceMatmulAllReduceAddRmsNormOpBuilder.include_paths "
        "InplaceMatmulAllReduceAddRmsNormOpBuilder.register_op_ir "
        "InplaceMatmulAllReduceAddRmsNormOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_mm_all_reduce_add_rms_norm_builder.py": (
        "CheckDtype MatmulAllReduceAddRmsNormOpBuilder MatmulAllReduceAddRmsNormOpBuilder.__init__ "
        "MatmulAllReduceAddRmsNormOpBuilder.cxx_args MatmulAllReduceAddRmsNormOpBuilder.include_paths "
        "MatmulAllReduceAddRmsNormOpBuilder.register_op_ir MatmulAllReduceAddRmsNormOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_moe_token_permute_builder.py": (
        "MoeTokenPermuteOpBuilder MoeTokenPermuteOpBuilder.__init__ MoeTokenPermuteOpBuilder.cxx_args "
        "MoeTokenPermuteOpBuilder.include_paths MoeTokenPermuteOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_moe_token_unpermute_builder.py": (
        "MoeTokenUnpermuteOpBuilder MoeTokenUnpermuteOpBuilder.__init__ "
        "MoeTokenUnpermuteOpBuilder.cxx_args MoeTokenUnpermuteOpBuilder.include_paths "
        "MoeTokenUnpermuteOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_ring_attention_update_builder.py": (
        "RingAttentionUpdateOpBuilder RingAttentionUpdateOpBuilder.__init__ "
        "RingAttentionUpdateOpBuilder.cxx_args RingAttentionUpdateOpBuilder.include_paths "
        "RingAttentionUpdateOpBuilder.sources"
    ),
    "mindspeed/op_builder/npu_rotary_position_embedding_builder.py": (
        "RotaryPositionEmbeddingOpBuilder RotaryPositionEmbeddingOpBuilder.__init__ "
        "RotaryPositionEmbeddingOpBuilder.cxx_args RotaryPositionEmbeddingOpBuilder.include_paths "
        "RotaryPositionEmbeddingOpBuilder.sources"
    ),
    "mindspeed/op_builder/quant_gmm_builder.py": (
        "QuantGMMOpBuilder QuantGMMOpBuilder.__init__ QuantGMMOpBuilder.register_op_ir QuantGMMOpBuilder.sources"
    ),
    "mindspeed/op_builder/rms_norm_builder.py": ("RmsNormOpBuilder RmsNormOpBuilder.__init__ RmsNormOpBuilder.sources"),
    "mindspeed/op_builder/smart_swap_builder.py": (
        "SmartSwapBuilder SmartSwapBuilder.__init__ SmartSwapBuilder.cxx_args "
        "SmartSwapBuilder.extra_ldflags SmartSwapBuilder.sources"
    ),
    "mindspeed/op_builder/swiglu_builder.py": ("SwigluOpBuilder SwigluOpBuilder.__init__ SwigluOpBuilder.sources"),
    "mindspeed/op_builder/weight_quant_gmm_builder.py": (
        "WeightQuantGMMOpBuilder WeightQuantGMMOpBuilder.__init__ WeightQuantGMMOpBuilder.register_op_ir "
        "WeightQuantGMMOpBuilder.sources"
    ),
}
MINDSPEED_REQUIRES = (
    "SQLAlchemy attrs decorator einops gpytorch ninja numpy<=1.26.0 pandas protobuf psutil pybind11 "
    "pydantic pytest pytest-mock pyyaml regex scikit-learn scipy sentencepiece six "
    "transformers>=4.43.2 wheel"
)
