"""verl's own loop evaluates and saves after the last step, whatever the intervals are (checks/schedule.py)."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime import hydra_config
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, OverrideValue, Platform
from rljob_runtime.spool.spool import Spool

STEPS = 3


def job(every: int) -> JobConfig:
    overrides: dict[str, OverrideValue] = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 32,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.path": "/model",
        "trainer.test_freq": every,
        "trainer.save_freq": every,
    }
    return JobConfig(CONTRACT_VERSION, "ns", "job", "u", "c", 1, Platform.CPU, 1, 2, 2, STEPS, overrides)


def ignore(*_: Any, **__: Any) -> None:
    """Do what takes devices or Ray."""


@pytest.mark.parametrize(("every", "wanted"), [(2, [2, 3]), (3, [3]), (20, [3])])
def test_a_run_evaluates_and_saves_after_its_last_step(
    every: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import transfer_queue
    from verl.trainer.ppo.v1 import PPOTrainerSync, trainer_base

    happened: dict[str, list[int]] = {"evaluated": [], "saved": []}
    trainer: Any = object.__new__(PPOTrainerSync)
    trainer.config = hydra_config.compose(job(every), Spool(Path("/spool")), Path("/scratch"))
    trainer.global_steps, trainer.steps_per_epoch, trainer.total_training_steps = 0, 1000, STEPS

    def note(kind: str) -> Callable[[], dict[str, float]]:
        def at_step() -> dict[str, float]:
            happened[kind].append(trainer.global_steps)
            return {"reward": 1.0}

        return at_step

    trainer._validate, trainer._save_checkpoint = note("evaluated"), note("saved")
    trainer.step = lambda *_: types.SimpleNamespace(keys=[], tags=[], partition_id="train")
    for name in ("_compute_metrics", "_reissue_inflight_prompts", "_shutdown_dump_executor", "on_step_end"):
        setattr(trainer, name, ignore)
    for name in ("_start_profiling", "_stop_profiling"):
        setattr(trainer, name, ignore)
    for name in ("Tracking", "ValidationGenerationsLogger", "DapoFilteredRewardTableLogger"):
        monkeypatch.setattr(trainer_base, name, lambda **_: types.SimpleNamespace(log=ignore))
    monkeypatch.setattr(transfer_queue, "kv_clear", ignore)
    trainer.fit(None)
    assert happened == {"evaluated": wanted, "saved": wanted}
