"""Rows of the judge: a model that scores responses, on devices of its own.

Lines are those of verl 0.9.1, below verl/.
"""

from __future__ import annotations

from collections.abc import Callable

from rljob.api.training import Judge
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.launchers.verl.rows import ATLAS, OverrideRow, RowCondition, both, number
from rljob_runtime.contract import OverrideValue

REWARD_YAML = "trainer/config/reward/reward.yaml"
MODEL = "reward.reward_model"
ENGINE = f"{MODEL}.rollout"
JUDGED = RowCondition("reward.judge is set", lambda s: s.reward.judge is not None)


def settings(spec: RLJobSpec) -> Judge:
    """Return the settings of a job with a judge."""
    if spec.reward.judge is None:
        raise AssertionError("the rows of the judge are those of jobs with one")
    return spec.reward.judge


def group_of(spec: RLJobSpec) -> WorkerGroup:
    """Return the group of the judge; a job without one is refused (core.validation.roles)."""
    return spec.judge_group or spec.trainer_group


def _row(key: str, field: str, value: Callable[[RLJobSpec], OverrideValue]) -> OverrideRow:
    return OverrideRow(key, field, REWARD_YAML, value, JUDGED, free_elsewhere=True)


ROWS = (
    _row(f"{MODEL}.enable", "reward.judge", lambda _: True),
    # Without its own pool the judge takes turns with the rollout and scores after the batch was sampled
    # (trainer/ppo/v1/trainer_base.py:577-579; experimental/reward_loop/reward_loop.py:320).
    _row(f"{MODEL}.enable_resource_pool", "reward.judge", lambda _: True),
    _row(f"{MODEL}.nnodes", "workerGroups[].nodes", lambda s: group_of(s).nodes),
    _row(f"{MODEL}.n_gpus_per_node", "workerGroups[].devicesPerNode", lambda s: group_of(s).devices_per_node),
    _row(f"{MODEL}.model_path", "reward.judge.path", lambda s: settings(s).path),
    _row(f"{ENGINE}.name", "rollout.engine", lambda s: s.rollout.engine.lower()),
    _row(f"{ENGINE}.tensor_model_parallel_size", "reward.judge.tensor", lambda s: settings(s).tensor),
    _row(f"{ENGINE}.max_model_len", "reward.judge.maxTokens", lambda s: settings(s).max_tokens),
    _row(
        f"{ENGINE}.gpu_memory_utilization", "reward.judge.memoryFraction", lambda s: number(settings(s).memory_fraction)
    ),
    # It would sleep after its start, and nothing wakes a judge with its own pool
    # (experimental/reward_loop/reward_model.py:54-55, reward_loop.py:343-345).
    _row(f"{ENGINE}.free_cache_engine", "reward.judge", lambda _: False),
    # As in the rollout: the runtime binds the engine's processes, and nothing may bind them twice.
    OverrideRow(
        f"+{ENGINE}.engine_kwargs.vllm.additional_config.enable_cpu_binding",
        "optimizations.coreBinding",
        "workers/rollout/vllm_rollout/vllm_async_server.py",
        lambda _: False,
        both(JUDGED, ATLAS),
        free_elsewhere=True,
    ),
)
