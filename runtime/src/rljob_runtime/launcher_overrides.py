"""Hydra keys that the launcher sets, with the reason for each, and the defaults that it fills in.

`FIXED` keys connect verl to this runtime. A job that sets one of them is refused, because the run would lose its
progress reports, its stop requests or its place in the cluster. `defaults` apply only to keys that job.json does not
set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rljob_runtime import gc_freeze
from rljob_runtime.contract import (
    DRAFTS_VARIABLE,
    ROLE_RESOURCES,
    JobConfig,
    OverrideValue,
    Platform,
    Role,
    TrainerMode,
)
from rljob_runtime.fork_server import start as fork_server
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin.platform import cpu_defaults

TRAINERS = {
    TrainerMode.SYNC: "rljob_sync",
    TrainerMode.COLOCATE_ASYNC: "rljob_colocate_async",
    TrainerMode.SEPARATE_ASYNC: "rljob_separate_async",
}
"""Names under which our trainers are registered with verl."""
ROUTER_CONFIG = Path(__file__).parent / "verl_plugin/router/router.yaml"
LATE_ROUTER_CONFIG = ROUTER_CONFIG.with_name("late_router.yaml")
TRAINER_ROUTER_CONFIG = ROUTER_CONFIG.with_name("trainer_router.yaml")
PROFILE_FOLDER = "profile"
AGENT_LOOP_MANAGER = "+actor_rollout_ref.rollout.agent.agent_loop_manager_class"
"""verl's code and dataclass have it, and its YAML does not (0.9.1, workers/config/rollout.py:79)."""

FIXED = {
    "trainer.use_v1": "stops and metrics depend on verl's V1 trainer",
    "trainer.v1.trainer_mode": "trainer.mode sets it",
    "trainer.total_training_steps": "trainer.steps sets it",
    "trainer.default_local_dir": "checkpoint.path sets it",
    "trainer.resume_mode": "checkpoint.resume and checkpoint.from set it",
    "trainer.resume_from_path": "checkpoint.resume and checkpoint.from set it",
    "actor_rollout_ref.rollout.router_config_path": "it selects the router that times the replicas",
    "actor_rollout_ref.rollout.prometheus.enable": "the exporter finds vLLM's metrics through it",
    "actor_rollout_ref.rollout.prometheus.file": "the exporter reads it",
    "actor_rollout_ref.rollout.disable_log_stats": "vLLM records no metrics if it is true",
    "transfer_queue.backend.SimpleStorage.required_node_resource": "the head has no CPUs for storage units",
    "ray_kwargs.ray_init.address": "the job runs in the cluster of its own pods",
}


def fixed(job: JobConfig, spool: Spool, scratch: Path) -> dict[str, OverrideValue]:
    """Return the values of the launcher's own keys."""
    router = LATE_ROUTER_CONFIG if job.optimizations.late_binding else ROUTER_CONFIG
    if job.mode is TrainerMode.SEPARATE_ASYNC:
        router = TRAINER_ROUTER_CONFIG
    values: dict[str, OverrideValue] = {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": TRAINERS[job.mode],
        "trainer.total_training_steps": job.total_steps,
        "trainer.default_local_dir": job.checkpoint_path or str(scratch / "checkpoints"),
        # Resuming is configured later, when the launcher may read the folder (checkpoints/resume.py).
        "trainer.resume_mode": "disable",
        "trainer.resume_from_path": None,
        "actor_rollout_ref.rollout.router_config_path": str(router),
        "actor_rollout_ref.rollout.prometheus.enable": True,
        "actor_rollout_ref.rollout.prometheus.file": str(spool.rollout_targets_file),
        "actor_rollout_ref.rollout.disable_log_stats": False,
        # Storage units write their part of a checkpoint, and must not be lost with a replica.
        "+transfer_queue.backend.SimpleStorage.required_node_resource": (
            ROLE_RESOURCES[Role.TRAINER] if job.groups else "NPU"
        ),
        "+ray_kwargs.ray_init.address": "auto",
    }
    if {key.lstrip("+") for key in values} != set(FIXED):
        raise AssertionError("fixed() and FIXED have different keys")
    return values


def defaults(job: JobConfig) -> dict[str, OverrideValue]:
    """Return the defaults, which job.json may override."""
    nodes = job.nodes_of(Role.TRAINER)
    values: dict[str, OverrideValue] = {
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": job.devices_of(Role.TRAINER) // nodes,
        # verl stops at the lower of steps and epochs. An epoch has at least one step, so the steps decide.
        "trainer.total_epochs": job.total_steps,
        "trainer.logger": ["console"],
        "trainer.project_name": job.namespace,
        "trainer.experiment_name": job.name,
        "trainer.val_before_train": False,
        # verl requires one of each pair, even if dynamic batches are used.
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16,
        # Two storage units per node hold the batch. verl's default of eight does not fit a small cluster, which then
        # hangs (verl#7656).
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": max(2, 2 * nodes),
        # verl's eight of each, placed node by node, leave the CPUs of further nodes without any
        # (experimental/agent_loop/agent_loop.py:1208-1220, experimental/reward_loop/reward_loop.py:324-341).
        "actor_rollout_ref.rollout.agent.num_workers": max(8, nodes),
        "reward.num_workers": max(8, nodes),
        # verl logs and drops the exceptions of a rollout; ours also reports the first one.
        AGENT_LOOP_MANAGER: "rljob_runtime.verl_plugin.router.agent_loop.RLJobAgentLoopManager",
        # On a port that it chooses; the exporter forwards the metrics.
        "transfer_queue.metrics.enabled": True,
    }
    if job.log_path is not None:
        # Where the pods' end does not lose the traces. verl puts step, rank and time into their names.
        values["global_profiler.save_path"] = str(Path(job.log_path) / job.cluster_name / PROFILE_FOLDER)
    if job.platform is Platform.CPU:
        values |= cpu_defaults.SETTINGS
    return values


def only_evaluates(job: JobConfig) -> bool:
    """Return whether the job trains nothing (trainer.mode Evaluate)."""
    return job.overrides.get("trainer.val_only") is True


def environment(job: JobConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every process of verl and vLLM needs; the pod's values take precedence."""
    wanted = cpu_defaults.ENVIRONMENT if job.platform is Platform.CPU else {"VERL_PLATFORM": "huawei"}
    wanted = wanted | fork_server.environment(job, environ)
    if job.optimizations.gc_freeze:
        wanted = wanted | {gc_freeze.VARIABLE: "1"}
    values = {name: environ.get(name, value) for name, value in wanted.items()}
    if job.drafts is not None:
        values[DRAFTS_VARIABLE] = job.drafts.to_variable()
    return values
