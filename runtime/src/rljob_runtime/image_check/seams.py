"""Functions, classes and attributes of verl, vLLM, TransferQueue and Ray that the runtime uses: one row each.

`runtime/tests/upstream` tests what they do in the pinned releases. This table has what a source file can show: that
they exist, with the expected parameters. `runtime/tests/test_seams.py` refuses an import that has no row.
"""

from __future__ import annotations

from rljob_runtime.image_check import async_seams
from rljob_runtime.image_check.facts import Launcher, Verdict
from rljob_runtime.image_check.seam import Platform, Use

_OPTIONAL = (Verdict.DEGRADED, Verdict.DEGRADED)
"""Of a use that a run continues without: whether its name is absent or has changed."""
_FIT = Use(
    "verl_plugin.trainer.trainer", "verl would not call the runtime's trainer, which saves, stops and reports the run"
)
_STOP = Use("verl_plugin.trainer.trainer", "a stop during a rollout or a validation fails")
_STOP_LATE = Use(
    "verl_plugin.trainer.trainer",
    "a stop waits until the rollout or the validation has ended; stop mode AbortRollout has no effect",
    Verdict.DEGRADED,
)
_REMAX = Use("verl_plugin.trainer.remax_baselines", "the trainer cannot be imported")
_ON_POLICY = Use("verl_plugin.trainer.on_policy", "the trainer cannot be imported")
_OWN_LOSS = Use(
    "verl_plugin.trainer.on_policy", "a job that skips the pass for old log-probabilities fails", *_OPTIONAL
)
_BASELINES = Use(
    "verl_plugin.trainer.sync_trainer", "the first step of a job with algorithm ReMax fails", Verdict.DEGRADED
)
_COUNT = Use("verl_plugin.trainer.start_stages", "the trainer fails when it starts ranks and replicas")
_BEHIND = Use(
    "verl_plugin.trainer.background_save", "the run waits for each save, as with checkpoint.async Off", *_OPTIONAL
)
_DISCARDED = Use(
    "verl_plugin.trainer.discarded_tokens", "tokens of discarded responses are not counted", Verdict.DEGRADED
)
_BALANCE = Use("verl_plugin.trainer.batch_balance", "the trainer fails when it orders the batch of a step")
_ORDER = Use(
    "verl_plugin.trainer.ordered_loader", "a job with optimizations.promptOrder LengthAware fails", Verdict.DEGRADED
)
_TRACES = Use("verl_plugin.trainer.profiling", "no step is traced for observability.profile", *_OPTIONAL)
_CONFIG = Use("hydra_config", "the launcher cannot check verl's configuration and fails")
_LAUNCH = Use("verl_plugin.launcher", "the launcher cannot start verl")
_RUNNER = Use("verl_plugin.trainer.task_runner", "the launcher cannot place the trainer on the head")
_AGENTS = Use("verl_plugin.router.agent_loop", "no rollout starts")
_TOOLS = Use("input_checks.tools_probe", "a job with a file of tools fails", Verdict.DEGRADED)
_BLAME = Use("verl_plugin.router.agent_loop", "the cause of failed rollouts is not reported", Verdict.DEGRADED)
_KEPT = Use("first_failure", "the cause of failed rollouts is not reported", *_OPTIONAL)
_PROMPTS = Use("verl_plugin.trainer.overlong", "the trainer fails when it reads its data")
_ROUTER = Use("verl_plugin.router.router", "the trainer cannot read how long replicas were idle, and fails")
_LATE = Use("verl_plugin.router.late_client", "no rollout starts if the job holds requests back", Verdict.DEGRADED)
_ROOM = Use("verl_plugin.router.vllm_replica", "no replica starts")
_PADDING = Use("verl_plugin.router.padding_counter", "padding of the engines' batches is not counted", *_OPTIONAL)
_RANK = Use("verl_plugin.router.rank_choice", "requests to a replica with several data-parallel ranks fail")
_ABORT = Use("verl_plugin.router.vllm_replica", "a stop during a rollout fails")
_SLEEP = Use(
    "verl_plugin.router.vllm_replica",
    "engines keep their weights in host memory with optimizations.sleepLevel 2",
    *_OPTIONAL,
)
_SLEEP_ON_NPU = Use(
    "verl_plugin.router.vllm_replica",
    "engines with optimizations.sleepLevel 2 do not wake up whole",
    *_OPTIONAL,
    Platform.NPU,
)
_FREEZE_ON_CPU = Use(
    "vllm_plugin.worker_freeze",
    "vLLM's engine fails if the job freezes what its start created",
    platform=Platform.CPU,
)
_FREEZE_ON_NPU = Use(_FREEZE_ON_CPU.used_by, _FREEZE_ON_CPU.consequence, platform=Platform.NPU)
_BINDING = Use(
    "verl_plugin.platform.worker_binding",
    "trainer processes are not bound to the CPUs of their device and run slower",
    *_OPTIONAL,
    Platform.NPU,
)
_CPU = Use("verl_plugin.platform.platform", "verl cannot compute on CPUs", platform=Platform.CPU)
_CRITIC = Use("verl_plugin.platform.cpu_patches", "verl cannot compute on CPUs", platform=Platform.CPU)
_TASKS = Use("ray_cluster", "the checks of the nodes fail", launchers=(Launcher.VERL, Launcher.COMMAND))
_LOSSES = Use("lost_processes", "a process that dies is noticed only where something waits for it", *_OPTIONAL)
_WRAPPER = Use(
    "vllm_plugin.worker_freeze", "vLLM's engine fails if the job binds CPUs or freezes what its start created"
)
_BY_RAY = Use(
    "node.ray_binding",
    "workers of a command are not bound to the CPUs of their device and run slower",
    Verdict.DEGRADED,
    Verdict.DEGRADED,
    Platform.NPU,
    (Launcher.COMMAND,),
)
_ENGINE = Use("vllm_plugin", "vLLM's engine fails")
_ENGINE_ON_CPU = Use("vllm_plugin", "vLLM's engine fails on CPUs", platform=Platform.CPU)
_DRAFTS = Use("vllm_plugin.drafts", "vLLM's engine fails if the job drafts tokens", *_OPTIONAL)
_EXCHANGE = Use("verl_plugin.trainer.drafts", "drafts have neither history nor metrics", *_OPTIONAL)
_SAMPLER = Use(
    "vllm_plugin.cpu_sampler", "vLLM's engine fails on CPUs if the job drafts tokens", *_OPTIONAL, Platform.CPU
)

_REWARDS = Use("rewards.gsm8k", "jobs with reward.builtin fail", *_OPTIONAL)

_V1 = "verl.trainer.ppo.v1"
_SCORES = "verl.utils.reward_score"
_VLLM_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"
_LOADER = "torchdata.stateful_dataloader"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer"
_KV = "ray.experimental.internal_kv"
_SHARED_QUEUE = "vllm.distributed.device_communicators.shm_broadcast"
_VALIDATION = "self data_sources sample_uids reward_extra_infos_dict sample_turns expected_acc_counts"
_TRAINER = (
    *_FIT.of(_V1, "register_trainer: name", "PPOTrainer", "PPOTrainerSync"),
    *(
        seam
        for text in (
            "__init__: self config",
            "_setup: self",
            "_init_dataloader: self",
            "_init_resource_pool_mgr: self",
            "_build_replay_buffer: self",
            "_load_checkpoint: self",
            "_save_checkpoint: self",
            "_shutdown_dump_executor: self",
            "_submit_batch_to_rollout: self batch",
            "_balance_batch: self batch metrics logging_prefix keep_minibatch",
            "_validate: self",
            "get_llm_client: self",
            "on_init_end: self",
            "on_train_begin: self",
            "on_train_end: self",
            "on_step_begin: self",
            "on_step_end: self",
            "on_sample_end: self",
            "step: self metrics timing_raw",
            "fit: self agent_loop_manager",
            "_compute_metrics: self batch metrics timing_raw global_steps epoch",
            "_compute_old_log_prob: self batch metrics",
            "_compute_advantage: self batch metrics",
            "_update_actor: self batch metrics",
            "_maybe_log_val_generations: self inputs outputs scores",
            f"_val_metrics_update: {_VALIDATION}",
            "agent_loop_manager",
            "actor_rollout_wg",
            "critic_wg",
            "checkpoint_callback",
            "checkpoint_manager",
            "config",
            "global_steps",
            "llm_server_manager",
            "logger",
            "replay_buffer",
            "steps_per_epoch",
            "timing_raw",
            "total_training_steps",
            "train_dataloader",
            "train_dataset",
            "use_critic",
            "val_dataset",
        )
        for seam in _FIT.of(_V1, f"PPOTrainer.{text}")
    ),
    *_ORDER.of(_V1, "PPOTrainer._fetch_one_gen_batch: self"),
    *_TRACES.of(_V1, "PPOTrainer._start_profiling: self", "PPOTrainer._stop_profiling: self"),
    *_TRACES.of(_V1, "PPOTrainer.curr_step_profile"),
    *_ORDER.of(_LOADER, "StatefulDataLoader.state_dict: self", "StatefulDataLoader.load_state_dict: self state_dict"),
    *_ORDER.of(f"{_LOADER}.sampler", "RandomSampler"),
    *_FIT.of("verl.utils.tracking", "Tracking.finish: self exit_code", "Tracking.logger"),
    *_STOP.of(
        "verl.checkpoint_engine",
        "CheckpointEngineManager.sleep_replicas: self",
        "CheckpointEngineManager.abort_replicas: self reject_request",
        "CheckpointEngineManager.replicas",
    ),
    *_STOP.of("transfer_queue", "kv_list: partition_id", "kv_clear: keys partition_id"),
    *_STOP_LATE.of(
        _BUFFER,
        "ReplayBuffer._wait_for_next_poll: self partition_id last_debug_time",
        "ReplayBuffer.poll_interval",
    ),
    *_FIT.of("transfer_queue", "get_metrics_endpoint:"),
    *_BASELINES.of(
        "transfer_queue",
        "kv_batch_put: keys partition_id fields tags data_parser",
        "kv_batch_get: keys partition_id select_fields",
    ),
    *_FIT.of(
        "verl.utils.tensordict_utils",
        "assign_non_tensor: tensor_dict kwargs",
        "assign_non_tensor_stack: tensor_dict key val",
    ),
    *_BASELINES.of(_BUFFER, "ReplayBuffer.sample: self global_steps partition_id batch_size"),
    *_BASELINES.of(_V1, "AgentLoopManagerTQ.generate_sequences: self prompts"),
    *_REMAX.of(
        "verl.trainer.ppo.core_algos",
        "register_adv_est: name_or_enum",
        "AdvantageEstimator",
        "AdvantageEstimator.REMAX",
        "compute_remax_outcome_advantage: token_level_rewards reward_baselines response_mask config kwargs",
    ),
    *_DISCARDED.of(_BUFFER, "ReplayBuffer._clear_groups: self partition_id uids", "ReplayBuffer.partitions"),
)
_LOSS = (
    *_ON_POLICY.of(
        "verl.trainer.ppo.core_algos",
        "agg_loss: loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor",
    ),
    *_ON_POLICY.of("verl.trainer.ppo.rollout_corr_helper", "SAFETY_BOUND"),
    *_ON_POLICY.of("verl.utils.config", "omega_conf_to_dataclass: config dataclass_type"),
    *_ON_POLICY.of(
        "verl.utils.metric",
        "AggregationType",
        "AggregationType.MAX",
        "AggregationType.MIN",
        "AggregationType.SUM",
        "Metric",
        "Metric.__init__: self aggregation value",
    ),
    *_ON_POLICY.of("verl.workers.utils.losses", "ppo_loss: config model_output data dp_group"),
    *_ON_POLICY.of("verl.workers.utils.padding", "response_from_nested: tensor response_mask"),
    *_OWN_LOSS.of("verl.workers.engine_workers", "ActorRolloutRefWorker.set_loss_fn: self loss_fn"),
)
_BALANCE_SEAMS = (
    *_BALANCE.of("verl.utils.seqlen_balancing", "calculate_workload: seqlen_list"),
    *_BALANCE.of("verl.single_controller.base.worker_group", "WorkerGroup._dispatch_info"),
    *_BALANCE.of("transfer_queue", "KVBatchMeta.reorder: self indexes"),
)
_LAUNCHER = (
    *_LAUNCH.of("verl", "__version__", "_plugins_policy"),
    *_LAUNCH.of("verl.trainer.main_ppo", "run_ppo: config task_runner_class"),
    *_LAUNCH.of("verl.trainer.ppo.utils", "need_critic: config"),
    *_CONFIG.of("verl.trainer.ppo.utils", "need_reference_policy: config"),
    *_CONFIG.of("verl.utils.config", "validate_config: config use_reference_policy use_critic"),
    *_CONFIG.of("verl.utils.device", "auto_set_device: config"),
    *_RUNNER.of(
        "verl.trainer.main_ppo",
        "TaskRunnerV1",
        "TaskRunnerV1.__init__: self",
        "TaskRunnerV1.run: self config",
        "TaskRunnerV1.trainer",
    ),
    *_REWARDS.of(f"{_SCORES}.gsm8k", "compute_score: solution_str ground_truth method format_score score"),
    *_REWARDS.of(f"{_SCORES}.math_reward", "compute_score: solution_str ground_truth"),
    *_REWARDS.of(
        f"{_SCORES}.math_dapo", "compute_score: solution_str ground_truth strict_box_verify pause_tokens_index"
    ),
    *_REWARDS.of(
        _SCORES,
        "default_compute_score: data_source solution_str ground_truth extra_info sandbox_fusion_url "
        "concurrent_semaphore memory_limit_mb kwargs",
    ),
)
_WORKERS = (
    *_AGENTS.of(
        _V1,
        "AgentLoopManagerTQ",
        "AgentLoopManagerTQ.__init__: self args kwargs",
        "AgentLoopManagerTQ.agent_loop_workers_class",
        "AgentLoopWorkerTQ",
    ),
    *_TOOLS.of("verl.tools.function_tool", "FUNCTION_TOOL_REGISTRY"),
    *_AGENTS.of("verl.experimental.agent_loop.agent_loop", "_agent_loop_registry"),
    *_AGENTS.of(
        "verl.experimental.agent_loop.tool_agent_loop",
        "ToolAgentLoop",
        "ToolAgentLoop._call_tool: self tool_call tools_kwargs agent_data",
        "ToolAgentLoop.response_length",
        "ToolAgentLoop._handle_generating_state: self agent_data sampling_params ignore_termination",
    ),
    *_BLAME.of(_V1, "AgentLoopWorkerTQ._run_agent_loop"),
    *_PROMPTS.of(
        "verl.utils.dataset.rl_dataset",
        "RLHFDataset",
        "RLHFDataset.maybe_filter_out_long_prompts: self dataframe",
        "RLHFDataset.original_data_files",
        "RLHFDataset.filter_overlong_prompts",
    ),
    *_COUNT.of(
        "verl.workers.rollout.replica",
        "RolloutReplicaRegistry",
        "RolloutReplicaRegistry._registry",
        "RolloutReplicaRegistry.register: cls name loader",
        "RolloutReplica",
        "RolloutReplica.launch_servers: self",
        "RolloutReplica.server_handle",
        "RolloutReplica.is_reward_model",
        "RolloutReplica.is_teacher_model",
    ),
    *_COUNT.of(
        "verl.workers.rollout.vllm_rollout.vllm_async_server",
        "vLLMReplica.launch_servers: self",
    ),
    *_BEHIND.of(
        "verl.utils.checkpoint.fsdp_checkpoint_manager",
        "torch",
        "FSDPCheckpointManager",
        "FSDPCheckpointManager.save_checkpoint: self local_path hdfs_path global_step max_ckpt_to_keep",
    ),
    *_COUNT.of(
        "verl.single_controller.ray",
        "RayWorkerGroup.execute_all_async: self method_name args kwargs",
        "RayWorkerGroup.workers",
    ),
    *_ROUTER.of(
        "verl.workers.rollout.llm_server",
        "LLMServerManager._init_global_load_balancer: self",
        "LLMServerManager.global_load_balancer",
    ),
    *_ROUTER.of("verl.workers.rollout.router", "get_router_handle"),
    *_LATE.of("verl.workers.rollout.router", "_create_plugin_extension: servers router_config_path"),
    *_LATE.of(
        "verl.workers.rollout.llm_server",
        "LLMServerClient",
        "LLMServerClient._acquire_server: self request_id extra",
        "LLMServerClient._load_balancer",
        "LLMServerClient._release_server: self server_id request_id",
        "LLMServerClient.generate",
        "LLMServerManager.get_client: self client_cls kwargs",
    ),
    *_LATE.of("verl.workers.rollout.replica", "TokenOutput"),
    *_ROOM.of(
        _VLLM_SERVER,
        "vLLMHttpServer",
        "vLLMHttpServer.get_server_address: self",
        "vLLMReplica",
        "vLLMReplica.__init__",
        "vLLMReplica.config",
        "vLLMReplica.max_concurrency: self",
        "vLLMReplica.server_class",
    ),
    *_ABORT.of(
        _VLLM_SERVER,
        "_GATE_BARRIER_TIMEOUT_S",
        "vLLMHttpServer.abort_all_requests: self reset_prefix_cache reject_request",
        "vLLMHttpServer._admitting",
        "vLLMHttpServer._rejecting",
        "vLLMHttpServer._resume_event",
        "vLLMHttpServer._submission_paused",
        "vLLMHttpServer.engine",
        "vLLMHttpServer.node_rank",
    ),
    *_SLEEP.of(_VLLM_SERVER, "vLLMHttpServer._resolve_sleep_level: self", "vLLMHttpServer.lora_as_adapter"),
    *_SLEEP_ON_NPU.of("vllm_ascend.worker.worker", "NPUWorker.sleep: self level", "NPUWorker._sleep_saved_buffers"),
    *_ROOM.of(
        _VLLM_SERVER,
        "vLLMHttpServer.run_server: self args",
        "vLLMHttpServer.run_headless: self args",
    ),
    *_PADDING.of(
        "vllm.v1.metrics.loggers",
        "AggregateStatLoggerBase",
        "LoggingStatLogger",
        "PerEngineStatLoggerAdapter",
        "StatLoggerManager",
    ),
    *_PADDING.of("vllm.v1.engine.async_llm", "AsyncLLM.logger_manager"),
    *_RANK.of("vllm.v1.engine", "EngineCoreRequest.data_parallel_rank"),
    *_ABORT.of("vllm.v1.engine.async_llm", "AsyncLLM.pause_generation", "AsyncLLM.output_processor"),
    *_ABORT.of("vllm.v1.engine.output_processor", "OutputProcessor.request_states", "RequestState.is_prefilling"),
    *_BINDING.of(
        "verl.single_controller.base.worker",
        "Worker",
        "Worker.__init__: self cuda_visible_devices",
    ),
    *_CPU.of("verl.plugin.platform", "PlatformBase", "PlatformRegistry", "PlatformRegistry.register: cls platform"),
    *_CRITIC.of("verl.utils.model", "load_valuehead_model: local_path torch_dtype model_config trust_remote_code"),
)
_RAY = (
    *_TASKS.of("ray.util.scheduling_strategies", "NodeAffinitySchedulingStrategy"),
    *_BY_RAY.of(
        "ray._private.accelerators.npu",
        "NPUAcceleratorManager",
        "NPUAcceleratorManager.set_current_process_visible_accelerator_ids: visible_npu_devices",
    ),
    *_LOSSES.of("ray._private.state", "state", "GlobalState.actor_table: self actor_id job_id actor_state_name"),
    *_LOSSES.of("ray._private.worker", "global_worker"),
    *_KEPT.of(
        _KV,
        "_internal_kv_put: key value overwrite namespace",
        "_internal_kv_get: key namespace",
        "_internal_kv_del: key del_by_prefix namespace",
    ),
)
_SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
_VLLM_OF_VERL = tuple(
    seam
    for place, module, attributes in (
        (f"{_SERVER}:30", "vllm", ("SamplingParams",)),
        (f"{_SERVER}:31", "vllm.engine.arg_utils", ("AsyncEngineArgs",)),
        (f"{_SERVER}:32", "vllm.entrypoints.cli.serve", ("run_headless",)),
        (f"{_SERVER}:33", "vllm.entrypoints.openai.api_server", ("build_app", "init_app_state")),
        (f"{_SERVER}:34", "vllm.entrypoints.openai.parser.harmony_utils", ("get_encoding",)),
        (f"{_SERVER}:35", "vllm.inputs", ("TokensPrompt",)),
        (f"{_SERVER}:36", "vllm.lora.request", ("LoRARequest",)),
        (f"{_SERVER}:37", "vllm.outputs", ("RequestOutput",)),
        (f"{_SERVER}:38", "vllm.usage.usage_lib", ("UsageContext",)),
        (f"{_SERVER}:39", "vllm.utils.argparse_utils", ("FlexibleArgumentParser",)),
        (f"{_SERVER}:40", "vllm.v1.engine.async_llm", ("AsyncLLM",)),
        ("verl/utils/vllm/utils.py:25", "vllm.lora.utils", ("get_adapter_absolute_path",)),
        ("verl/utils/vllm/utils.py:26", "vllm.lora.worker_manager", ("LRUCacheWorkerLoRAManager",)),
        ("verl/third_party/vllm/__init__.py:49", "vllm.distributed", ("parallel_state",)),
    )
    for seam in Use(place, "verl's rollout server cannot be imported").of(module, *attributes)
)
_VLLM = (
    *_ENGINE.of("vllm.platforms", "current_platform"),
    *_ENGINE.of("vllm.platforms.interface", "Platform.is_cpu: self"),
    *_WRAPPER.of("vllm.v1.worker.worker_base", "WorkerWrapperBase", "WorkerWrapperBase.init_device: self"),
    *_DRAFTS.of(
        "vllm.v1.spec_decode.suffix_decoding",
        "SuffixDecodingProposer",
        "SuffixDecodingProposer.__init__: self vllm_config",
        "SuffixDecodingProposer.propose: self input_batch sampled_token_ids slot_mappings",
    ),
    *_DRAFTS.of(
        "vllm.v1.spec_decode.ngram_proposer",
        "NgramProposer",
        "NgramProposer.batch_propose: self num_requests valid_ngram_requests num_tokens_no_spec token_ids_cpu",
    ),
    *_DRAFTS.of("vllm.v1.worker.worker_base", "WorkerWrapperBase.worker"),
    *_EXCHANGE.of("vllm.v1.engine.async_llm", "AsyncLLM.collective_rpc: self method timeout args kwargs"),
    *_EXCHANGE.of("verl.workers.rollout.llm_server", "LLMServerManager.server_handles"),
    *_DRAFTS.of(
        "vllm.v1.worker.gpu_input_batch",
        "InputBatch.req_ids",
        "InputBatch.req_id_to_index",
        "InputBatch.num_prompt_tokens",
        "InputBatch.num_tokens_no_spec",
        "InputBatch.token_ids_cpu",
    ),
    *_SAMPLER.of(
        "vllm.utils.cpu_triton_utils",
        "expand_kernel",
        "sample_recovered_tokens_kernel",
        "_expand_kernel_impl: output input_val cu_num_tokens replace_from replace_to MAX_NUM_TOKENS",
        "_sample_recovered_tokens_kernel_impl: output_token_ids cu_num_draft_tokens draft_token_ids draft_probs "
        "target_probs inv_q vocab_size BLOCK_SIZE NO_DRAFT_PROBS",
    ),
    *_FREEZE_ON_CPU.of("vllm.v1.worker.cpu_worker", "CPUWorker.compile_or_warm_up_model: self"),
    *_FREEZE_ON_NPU.of("vllm_ascend.worker.worker", "NPUWorker.compile_or_warm_up_model: self"),
    *_ENGINE_ON_CPU.of("vllm.model_executor.layers.utils", "dispatch_cpu_unquantized_gemm: layer remove_weight"),
    *_ENGINE_ON_CPU.of(
        _SHARED_QUEUE,
        "SpinCondition",
        "SpinCondition.wait: self timeout_ms",
        "SpinCondition.__init__: self is_reader context notify_address busy_loop_s",
    ),
)
TABLE = (*_LAUNCHER, *_TRAINER, *async_seams.TABLE, *_LOSS, *_BALANCE_SEAMS, *_WORKERS, *_RAY, *_VLLM_OF_VERL, *_VLLM)
