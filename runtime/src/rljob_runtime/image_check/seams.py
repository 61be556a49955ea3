"""Functions and classes of verl, vLLM, TransferQueue and Ray that the plug-ins use: one row each.

`runtime/tests/upstream` tests what they do in the pinned releases. This table has what a source file can show: that
they exist, with the expected parameters.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.image_check.facts import Verdict


class Platform(enum.Enum):
    """Images in which a seam is used."""

    ALL = enum.auto()
    CPU = enum.auto()
    NPU = enum.auto()


@dataclass(frozen=True)
class Seam:
    """One function or class."""

    module: str
    attribute: str
    parameters: tuple[str, ...] | None
    """Names in order; None if only existence matters."""
    used_by: str
    """Module of `rljob_runtime`, or of verl where verl needs it of vLLM."""
    consequence: str
    """What happens without it."""
    absent: Verdict = Verdict.REFUSED
    changed: Verdict = Verdict.REFUSED
    """The verdict for other parameters."""
    platform: Platform = Platform.ALL

    @property
    def name(self) -> str:
        """Return `module:attribute`."""
        return f"{self.module}:{self.attribute}"

    @property
    def package(self) -> str:
        """Return the top package."""
        return self.module.partition(".")[0]


def _parameters(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_FIT = "verl would not call the runtime's trainer, which saves, stops and reports the run"
_TRAINER = tuple(
    Seam("verl.trainer.ppo.v1", f"PPOTrainerSync.{name}", _parameters(words), "verl_plugin.trainer", _FIT)
    for name, words in (
        ("__init__", "self config"),
        ("_setup", "self"),
        ("_init_dataloader", "self"),
        ("_init_resource_pool_mgr", "self"),
        ("_build_replay_buffer", "self"),
        ("_load_checkpoint", "self"),
        ("_save_checkpoint", "self"),
        ("_shutdown_dump_executor", "self"),
        ("_submit_batch_to_rollout", "self batch"),
        ("_validate", "self"),
        ("on_init_end", "self"),
        ("on_train_begin", "self"),
        ("on_step_begin", "self"),
        ("on_step_end", "self"),
        ("on_sample_end", "self"),
        ("step", "self metrics timing_raw"),
        ("fit", "self agent_loop_manager"),
        ("_compute_metrics", "self batch metrics timing_raw global_steps epoch"),
        (
            "_val_metrics_update",
            "self data_sources sample_uids reward_extra_infos_dict sample_turns expected_acc_counts",
        ),
    )
)
_SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
_NO_ROLLOUT = "verl's rollout server cannot be imported"
_VLLM_OF_VERL = tuple(
    Seam(module, attribute, None, f"{_SERVER}:{line}", _NO_ROLLOUT)
    for module, attribute, line in (
        ("vllm.entrypoints.cli.serve", "run_headless", 32),
        ("vllm.entrypoints.openai.api_server", "build_app", 33),
        ("vllm.entrypoints.openai.api_server", "init_app_state", 33),
        ("vllm.entrypoints.openai.parser.harmony_utils", "get_encoding", 34),
        ("vllm.utils.argparse_utils", "FlexibleArgumentParser", 39),
        ("vllm.v1.engine.async_llm", "AsyncLLM", 40),
    )
)
TABLE = (
    Seam(
        "verl.trainer.main_ppo",
        "run_ppo",
        ("config", "task_runner_class"),
        "verl_plugin.launcher",
        "the launcher cannot start verl",
    ),
    Seam(
        "verl.trainer.main_ppo",
        "TaskRunnerV1.run",
        ("self", "config"),
        "verl_plugin.task_runner",
        "the launcher cannot place the trainer on the head",
    ),
    Seam("verl.trainer.ppo.v1", "register_trainer", ("name",), "verl_plugin.trainer", _FIT),
    *_TRAINER,
    Seam(
        "verl.trainer.ppo.v1",
        "AgentLoopWorkerTQ._run_agent_loop",
        None,
        "verl_plugin.agent_loop",
        "the cause of failed rollouts is not reported",
        Verdict.DEGRADED,
    ),
    Seam("verl.trainer.ppo.v1", "AgentLoopManagerTQ", None, "verl_plugin.agent_loop", "no rollout starts"),
    Seam(
        "verl.trainer.ppo.v1.replay_buffer",
        "ReplayBuffer._wait_for_next_poll",
        ("self", "partition_id", "last_debug_time"),
        "verl_plugin.trainer",
        "a stop waits until the rollout or the validation has ended; stop mode AbortRollout has no effect",
        Verdict.DEGRADED,
    ),
    Seam(
        "verl.trainer.ppo.v1.replay_buffer",
        "ReplayBuffer._clear_groups",
        ("self", "partition_id", "uids"),
        "verl_plugin.discarded_tokens",
        "tokens of discarded responses are not counted",
        Verdict.DEGRADED,
    ),
    Seam("verl.trainer.ppo.utils", "need_critic", ("config",), "verl_plugin.launcher", "the launcher fails"),
    Seam("verl.utils.config", "validate_config", None, "hydra_config", "the launcher fails"),
    Seam("verl.utils.device", "auto_set_device", ("config",), "hydra_config", "the launcher fails"),
    Seam(
        "verl.trainer.ppo.core_algos",
        "register_adv_est",
        ("name_or_enum",),
        "verl_plugin.remax_baselines",
        "the trainer cannot be imported",
    ),
    Seam(
        "verl.utils.dataset.rl_dataset",
        "RLHFDataset.maybe_filter_out_long_prompts",
        ("self", "dataframe"),
        "verl_plugin.overlong",
        "the trainer fails when it reads its data",
    ),
    Seam(
        "verl.workers.rollout.replica",
        "RolloutReplicaRegistry.register",
        ("cls", "name", "loader"),
        "verl_plugin.start_stages",
        "the trainer fails when it starts replicas",
    ),
    Seam(
        "verl.workers.rollout.llm_server",
        "LLMServerManager._init_global_load_balancer",
        ("self",),
        "verl_plugin.router",
        "the trainer cannot read how long replicas were idle, and fails",
    ),
    Seam(
        "verl.single_controller.base.worker",
        "Worker.__init__",
        ("self", "cuda_visible_devices"),
        "verl_plugin.worker_binding",
        "trainer processes are not bound to the CPUs of their device and run slower",
        Verdict.DEGRADED,
        Verdict.DEGRADED,
        Platform.NPU,
    ),
    Seam(
        "verl.plugin.platform",
        "PlatformRegistry",
        None,
        "verl_plugin.platform",
        "verl cannot compute on CPUs",
        platform=Platform.CPU,
    ),
    Seam(
        "verl.utils.model",
        "load_valuehead_model",
        ("local_path", "torch_dtype", "model_config", "trust_remote_code"),
        "verl_plugin.cpu_patches",
        "verl cannot compute on CPUs",
        platform=Platform.CPU,
    ),
    Seam("transfer_queue", "kv_list", ("partition_id",), "verl_plugin.trainer", "a stop during a validation fails"),
    Seam(
        "transfer_queue",
        "kv_clear",
        ("keys", "partition_id"),
        "verl_plugin.trainer",
        "a stop during a validation fails",
    ),
    *_VLLM_OF_VERL,
    Seam(
        "vllm.v1.worker.worker_base",
        "WorkerWrapperBase.init_device",
        ("self",),
        "vllm_plugin.engine_binding",
        "vLLM's engine fails if the job binds CPUs",
        platform=Platform.NPU,
    ),
    Seam(
        "vllm.model_executor.layers.utils",
        "dispatch_cpu_unquantized_gemm",
        ("layer", "remove_weight"),
        "vllm_plugin",
        "vLLM's engine fails, because it cannot load weights again",
        platform=Platform.CPU,
    ),
    Seam(
        "vllm.distributed.device_communicators.shm_broadcast",
        "SpinCondition.wait",
        ("self", "timeout_ms"),
        "vllm_plugin",
        "vLLM's engine fails",
        platform=Platform.CPU,
    ),
    Seam(
        "vllm.distributed.device_communicators.shm_broadcast",
        "SpinCondition.__init__",
        ("self", "is_reader", "context", "notify_address", "busy_loop_s"),
        "vllm_plugin",
        "vLLM's engine fails",
        platform=Platform.CPU,
    ),
)
