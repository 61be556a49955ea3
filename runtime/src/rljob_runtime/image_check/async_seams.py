"""What the asynchronous modes and groups with roles use of verl: rows of the table of seams (seams.py)."""

from __future__ import annotations

from rljob_runtime.image_check.facts import Verdict
from rljob_runtime.image_check.seam import Platform, Use

_OPTIONAL = (Verdict.DEGRADED, Verdict.DEGRADED)
"""Of a use that only jobs of these modes have."""
_IN_FLIGHT = Use("verl_plugin.trainer.prompt_flow", "a job with an asynchronous trainer.mode fails", *_OPTIONAL)
_APART = Use("verl_plugin.trainer.separate_trainer", "a job with trainer.mode SeparateAsync fails", *_OPTIONAL)
_ROLES = Use("verl_plugin.platform.role_nodes", "a job whose worker groups have different roles fails", *_OPTIONAL)
_JUDGE = Use("verl_plugin.router.judge_router", "a job with reward.judge fails", *_OPTIONAL)
_SYNC_ON_CPU = Use(
    "verl_plugin.weights.tcp_engine", "a job with trainer.mode SeparateAsync fails on CPUs", *_OPTIONAL, Platform.CPU
)

_V1 = "verl.trainer.ppo.v1"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer"
_VLLM_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"
_ASYNC = (
    *_IN_FLIGHT.of(
        _V1,
        "PPOTrainerColocateAsync",
        "PPOTrainerColocateAsync.on_sample_end: self",
        "PPOTrainerColocateAsync.on_step_end: self",
        "PPOTrainer._add_async_warmup_batches: self num_warmup_batches",
        "PPOTrainer._add_prompts_to_generate: self num_prompts",
        "PPOTrainer._reissue_inflight_prompts: self partition_id",
        "PPOTrainer.prepare_step: self",
    ),
    *_IN_FLIGHT.of(
        _BUFFER,
        "ReplayBuffer._evict_terminal_groups: self global_steps partition_id eviction_reasons",
        "ReplayBuffer._materialize_batch: self partition_id selected_prompt_uids partition_snapshot",
        "ReplayBuffer.failure_keys",
        "ReplayBufferAsync._terminal_eviction_reasons: self global_steps partition_id",
        "ReplayBufferAsync.sample: self global_steps partition_id batch_size",
    ),
    *_IN_FLIGHT.of(
        "verl.workers.rollout.llm_server",
        "FullyAsyncLLMServerClient.generate",
    ),
)
_SEPARATE = (
    *_APART.of(
        _V1,
        "PPOTrainerSeparateAsync",
        "PPOTrainerSeparateAsync.__init__: self config",
        "PPOTrainerSeparateAsync._step_once: self metrics timing_raw sample_batch_size",
        "PPOTrainerSeparateAsync.step: self metrics timing_raw",
        "PPOTrainerSeparateAsync.global_steps",
        "PPOTrainerSeparateAsync.on_step_end: self",
        "PPOTrainerSeparateAsync.standalone_server_manager",
        "PPOTrainerSeparateAsync.standalone_checkpoint_manager",
        "PPOTrainer._step_once: self metrics timing_raw sample_batch_size",
        "PPOTrainer.role_worker_mapping",
    ),
    *_APART.of("transfer_queue", "KVBatchMeta"),
    *_APART.of(f"{_V1}.trainer_separate_async", "logger"),
    *_APART.of(f"{_V1}.utils", "MetricsAggregator", "MetricsAggregator.add_step_metrics: self metrics sample_count"),
    *_APART.of(f"{_V1}.utils", "MetricsAggregator.get_aggregated_metrics: self"),
    *_APART.of("verl.trainer.ppo.utils", "Role", "Role.Actor", "Role.RefPolicy"),
    *_APART.of(
        "verl.experimental.separation.engine_workers",
        "DetachActorWorker",
        "DetachActorWorker.copy_handler",
        "DetachActorWorker.config",
    ),
    *_APART.of("verl.utils.device", "get_device_name:", "get_torch_device:"),
    *_APART.of(
        "verl.single_controller.ray.base",
        "RayResourcePool",
        "RayResourcePool.__init__: self process_on_nodes use_gpu name_prefix max_colocate_count detached "
        "accelerator_type",
    ),
    *_APART.of("verl.single_controller.ray", "RayWorkerGroup"),
    *_APART.of("verl.workers.rollout.llm_server", "FullyAsyncLLMServerClient"),
    *_APART.of(
        "verl.workers.rollout.replica",
        "RolloutMode",
        "RolloutMode.STANDALONE",
    ),
    *_APART.of(
        _VLLM_SERVER,
        "vLLMReplica.init_standalone: self",
        "vLLMReplica.get_ray_class_with_init_args: self",
        "vLLMReplica.gpus_per_replica_node",
        "vLLMReplica.is_reward_model",
        "vLLMReplica.is_teacher_model",
        "vLLMReplica.nnodes",
        "vLLMReplica.replica_rank",
        "vLLMReplica.resource_pool",
        "vLLMReplica.rollout_mode",
        "vLLMReplica.workers",
    ),
    *_APART.of(_V1, "AgentLoopManagerTQ._init_agent_loop_workers: self"),
    *_APART.of("verl.experimental.agent_loop", "agent_loop"),
    *_SYNC_ON_CPU.of(
        "verl.checkpoint_engine.base",
        "CheckpointEngine",
        "CheckpointEngineRegistry",
        "CheckpointEngineRegistry.register: backend",
    ),
)
_GROUPS = (
    *_ROLES.of(_V1, "PPOTrainer.resource_pool_manager"),
    *_ROLES.of(
        "verl.single_controller.ray.base",
        "ResourcePoolManager",
        "ResourcePoolManager.create_resource_pool: self",
        "ResourcePoolManager.resource_pool_dict",
    ),
    *_ROLES.of("verl.experimental.reward_loop", "reward_loop"),
    *_JUDGE.of(_V1, "PPOTrainer.reward_loop_manager"),
    *_JUDGE.of("verl.experimental.reward_loop", "RewardLoopManager.reward_router_address"),
    *_JUDGE.of("verl.experimental.reward_loop.router", "naive_router"),
    *_JUDGE.of(
        "verl.experimental.reward_loop.router.naive_router",
        "NaiveRouter",
        "NaiveRouter._make_async_request: self request endpoint",
        "NaiveRouter._release_worker: self url",
        "NaiveRouter._select_worker: self request_id",
        "NaiveRouter.client",
    ),
)
TABLE = (*_ASYNC, *_SEPARATE, *_GROUPS)
