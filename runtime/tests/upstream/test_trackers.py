"""Trackers over two attempts, as opened by verl 0.9.1: one run, and no repeated step if a tracker can discard steps."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime import trackers
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Platform
from rljob_runtime.verl_plugin.trainer import tracking


def job_with(tmp_path: Path, *names: str) -> JobConfig:
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace="team-a",
        name="sums",
        uid="0f9e8d7c-6b5a-4321-8765-abcdefabcdef",
        cluster_name="sums-0f9e8-1",
        cluster_generation=1,
        platform=Platform.CPU,
        nodes=1,
        devices=1,
        dies_per_card=1,
        total_steps=4,
        overrides={"trainer.logger": list(names)},
        log_path=str(tmp_path),
    )


def attempt(job: JobConfig, steps: list[int], value: float, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
    """Log steps as verl's trainer does in one attempt that resumed before them."""
    from omegaconf import OmegaConf
    from verl.utils.tracking import Tracking

    for name, text in trackers.environment(job, Path(str(job.log_path)), os.environ).items():
        monkeypatch.setenv(name, text)
    trainer = {"project_name": job.namespace, "experiment_name": job.name, "logger": job.overrides["trainer.logger"]}
    composed = OmegaConf.create({"trainer": {**trainer, **config}})
    tracking.prepare(composed, job, steps[0] - 1)
    logger = Tracking(job.namespace, job.name, list(composed.trainer.logger), OmegaConf.to_container(composed))
    for step in steps:
        logger.log({"critic/score/mean": value}, step=step)
    logger.finish()


def test_fit_opens_the_trackers_after_the_step_is_known() -> None:
    from verl.trainer.ppo.v1 import PPOTrainerSync

    source = inspect.getsource(PPOTrainerSync.fit)
    assert source.index("self.logger = Tracking(") < source.index("self.on_train_begin()")
    assert "_load_checkpoint()" not in source


def test_trackers_are_finished_only_once() -> None:
    from verl.trainer.main_ppo import TaskRunnerV1
    from verl.utils.tracking import Tracking

    source = inspect.getsource(TaskRunnerV1.__ray_actor_class__.run)
    assert source.index("finally:") < source.index("tracking.finish(exit_code=")
    codes: list[int] = []

    def finish(exit_code: int) -> None:
        codes.append(exit_code)
        raise RuntimeError("not reached")

    trackers_of = Tracking("team-a", "sums", [])
    trackers_of.logger["wandb"] = SimpleNamespace(finish=finish)
    tracking.finish(trackers_of, failed=True)
    trackers_of.finish(exit_code=0)
    assert codes == [1]


def test_verl_imports_what_we_look_for_and_knows_every_tracker() -> None:
    from verl.utils import tracking as upstream

    source = inspect.getsource(upstream)
    assert set(trackers.PACKAGES) <= set(upstream.Tracking.supported_backend)
    assert all(f"import {package}" in source for name, package in trackers.PACKAGES.items() if name != "tensorboard")
    for variable in ("TENSORBOARD_DIR", "SWANLAB_LOG_DIR", "SWANLAB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        assert f'"{variable}"' in source


def test_tensorboard_shows_what_was_trained_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    job = job_with(tmp_path, "tensorboard")
    attempt(job, [1, 2, 3], 0.1, monkeypatch)
    attempt(job, [3, 4], 0.9, monkeypatch)
    seen = EventAccumulator(os.environ["TENSORBOARD_DIR"]).Reload().Scalars("critic/score/mean")
    assert [(event.step, round(event.value, 3)) for event in seen] == [(1, 0.1), (2, 0.1), (3, 0.9), (4, 0.9)]


def test_wandb_keeps_one_run_id_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    job = job_with(tmp_path, "wandb")
    attempt(job, [1, 2], 0.1, monkeypatch)
    attempt(job, [2, 3], 0.9, monkeypatch)
    runs = sorted(path.name for path in Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*"))
    assert runs
    # offline-run-TIME-ID, with the suffix -1 if two runs started within the same second.
    assert {name.split("-")[3] for name in runs} == {trackers.run_id(job)}


def test_mlflow_continues_with_the_jobs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    job = job_with(tmp_path, "mlflow")
    log_params = mlflow.log_params
    for steps, value, folder in (([1, 2, 3], 0.1, "a"), ([3, 4], 0.9, "b")):
        monkeypatch.setattr(mlflow, "log_params", log_params)
        attempt(job, steps, value, monkeypatch, resume_from_path=folder, **{f"only_{folder}": 1})
        monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    client = mlflow.MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    [experiment] = [one for one in client.search_experiments() if one.name == "team-a"]
    [run] = client.search_runs([experiment.experiment_id])
    assert {point.step for point in client.get_metric_history(run.info.run_id, "critic/score/mean")} == {1, 2, 3, 4}
    assert (run.data.params["trainer/resume_from_path"], run.data.params["trainer/only_b"]) == ("a", "1")


def test_swanlab_keeps_one_run_id_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("swanlab")
    monkeypatch.setenv("HOME", str(tmp_path))
    job = job_with(tmp_path, "swanlab")
    attempt(job, [1, 2], 0.1, monkeypatch)
    attempt(job, [2, 3], 0.9, monkeypatch)
    assert any(trackers.run_id(job) in path.name for path in Path(os.environ["SWANLAB_LOG_DIR"]).rglob("*"))
