"""Rows of asynchronous training: how far generation runs ahead, and what is done about responses of older weights.

Lines are those of verl 0.9.1, below verl/. The trainer's own name, `trainer.v1.trainer_mode`, is the launcher's: it
takes `mode` of job.json (rljob_runtime.launcher_overrides).
"""

from __future__ import annotations

import math

from rljob.api.training import AsyncTraining
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import (
    ASYNC,
    ATLAS,
    COLOCATE,
    CPUS,
    ROLLOUT,
    SEPARATE,
    OverrideRow,
    RowCondition,
    both,
    number,
)
from rljob.launchers.verl.sizes import updates
from rljob.render.accelerators import facts_of
from rljob_runtime.contract import TrainerMode

PPO_YAML = "trainer/config/ppo_trainer.yaml"
CORRECTION = "algorithm.rollout_correction"
CORRECTION_YAML = "trainer/config/algorithm/rollout_correction.yaml"
ROLLOUT_YAML = "trainer/config/rollout/rollout.yaml"
WEIGHTS = f"{ROLLOUT}.checkpoint_engine"
HCCL = "nccl"
"""Name under which verl registers its engine for NPUs (checkpoint_engine/hccl_checkpoint_engine.py:103)."""
TCP, TCP_MODULE = "rljob_tcp", "rljob_runtime.verl_plugin.weights.tcp_engine"
"""verl has no engine for weights in host memory; the runtime registers one."""
PREFETCH_MAX = 16
"""Batches in flight beside that of the step; with more, responses would only be older."""
STORAGE_ROWS = 100_000
"""Rows that the queue of samples takes by default (trainer/config/transfer_queue/transfer_queue.yaml:25)."""


def with_mode(spec: RLJobSpec) -> str:
    """Return the mode of an asynchronous job, for messages."""
    return f"with trainer.mode {spec.trainer.mode}"


def trainer_mode(spec: RLJobSpec) -> TrainerMode:
    """Return how training and generation take turns."""
    return TrainerMode(spec.trainer.mode) if ASYNC.holds(spec) else TrainerMode.SYNC


def settings(spec: RLJobSpec) -> AsyncTraining:
    """Return the settings of an asynchronous job."""
    if spec.trainer.async_ is None:
        raise AssertionError("a trainer of an asynchronous mode has settings")
    return spec.trainer.async_


def waiting_steps(spec: RLJobSpec) -> int:
    """Return the steps that a prompt waits for its turn: the batches in flight before it, of which each step takes one.

    Prompts are sampled in their order (trainer/ppo/v1/replay_buffer.py:388-392).
    """
    return math.ceil(batches_ahead(spec))


def storage_rows(spec: RLJobSpec) -> int:
    """Return the rows that the queue holds at most: a row for each prompt and each of its responses.

    When a step is saved, the queue still has its own prompts, those in flight, and those that the next step adds.
    """
    group = spec.trainer.samples_per_prompt + 1
    return math.ceil((2 + batches_ahead(spec)) * spec.trainer.global_batch_size * group)


def batches_ahead(spec: RLJobSpec) -> float:
    """Return the batches in flight beside that of the step; `checks.numbers` reports more than the largest number."""
    return min(float(settings(spec).prefetch_batches), PREFETCH_MAX) if ASYNC.holds(spec) else 0.0


def _storage_size(spec: RLJobSpec) -> int | None:
    rows = storage_rows(spec)
    return rows if rows > STORAGE_ROWS else None


def _level(spec: RLJobSpec) -> str | None:
    """Return what is weighted; None where nothing is."""
    correction = settings(spec).correction
    return None if correction == "None" else correction.lower()


def _window(section: str, when: RowCondition) -> OverrideRow:
    """Return the row of a mode's own setting (trainer/ppo/v1/trainer_base.py:624-651)."""
    return OverrideRow(
        f"trainer.v1.{section}.num_warmup_batches",
        "trainer.async.prefetchBatches",
        PPO_YAML,
        lambda s: number(settings(s).prefetch_batches),
        when,
    )


SEPARATE_ROWS = (
    # A step is as many updates as its batch has mini batches (trainer/ppo/v1/trainer_separate_async.py:55-63).
    OverrideRow("trainer.v1.separate_async.parameter_sync_step", "trainer.miniBatchSize", PPO_YAML, updates, SEPARATE),
    # No replicas beside the trainer (trainer/ppo/v1/trainer_separate_async.py:78-82).
    OverrideRow("actor_rollout_ref.hybrid_engine", "trainer.mode", PPO_YAML, lambda _: False, SEPARATE),
    # workers/rollout/llm_server.py:455-459.
    OverrideRow(f"{ROLLOUT}.nnodes", "workerGroups[].nodes", ROLLOUT_YAML, lambda s: s.rollout_group.nodes, SEPARATE),
    OverrideRow(
        f"{ROLLOUT}.n_gpus_per_node",
        "workerGroups[].devicesPerNode",
        ROLLOUT_YAML,
        lambda s: s.rollout_group.devices_per_node,
        SEPARATE,
    ),
    # How weights are sent (workers/engine_workers.py:677-689). The other modes do not read it.
    OverrideRow(
        f"{WEIGHTS}.backend",
        "accelerator.class",
        ROLLOUT_YAML,
        lambda s: HCCL if facts_of(s).is_npu else TCP,
        SEPARATE,
        free_elsewhere=True,
    ),
    # Without it the number of members may not change, so that no replica could leave or come back
    # (checkpoint_engine/hccl_checkpoint_engine.py:215-225).
    OverrideRow(
        f"+{WEIGHTS}.engine_kwargs.{HCCL}.rebuild_group",
        "accelerator.class",
        "checkpoint_engine/hccl_checkpoint_engine.py",
        lambda _: True,
        both(SEPARATE, ATLAS),
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{WEIGHTS}.custom_backend_module",
        "accelerator.class",
        ROLLOUT_YAML,
        lambda _: TCP_MODULE,
        both(SEPARATE, CPUS),
        free_elsewhere=True,
    ),
)
ROWS = (
    _window("colocate_async", COLOCATE),
    _window("separate_async", SEPARATE),
    *SEPARATE_ROWS,
    # trainer/ppo/v1/replay_buffer.py:520-556: verl counts the version that generates as well.
    OverrideRow(
        "trainer.v1.sampler.max_off_policy_threshold",
        "trainer.async.maxStaleness",
        PPO_YAML,
        lambda s: settings(s).max_staleness + 1,
        ASYNC,
    ),
    OverrideRow(
        "trainer.v1.sampler.max_off_policy_strategy",
        "trainer.async.stale",
        PPO_YAML,
        lambda s: settings(s).stale.lower(),
        ASYNC,
    ),
    # A synchronous job may correct the difference between trainer and engine by overrides of the next three
    # (trainer/ppo/v1/trainer_base.py:1662, 1767-1776).
    OverrideRow(
        f"{CORRECTION}.rollout_is",
        "trainer.async.correction",
        CORRECTION_YAML,
        _level,
        ASYNC,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{CORRECTION}.rollout_is_threshold",
        "trainer.async.correctionThreshold",
        CORRECTION_YAML,
        lambda s: number(settings(s).correction_threshold) if _level(s) else None,
        ASYNC,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{ROLLOUT}.calculate_log_probs",
        "trainer.async.correction",
        ROLLOUT_YAML,
        lambda s: True if _level(s) else None,
        ASYNC,
        free_elsewhere=True,
    ),
    # With more rows the queue fails (TransferQueue 0.1.11, transfer_queue/storage/simple_storage.py:198-204).
    OverrideRow(
        "transfer_queue.backend.SimpleStorage.total_storage_size",
        "trainer.globalBatchSize",
        "trainer/config/transfer_queue/transfer_queue.yaml",
        _storage_size,
        own=False,
    ),
)
