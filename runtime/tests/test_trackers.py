"""Variables of trackers: one run per job, offline without a key; variables of the pod take precedence."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime import trackers
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin.trainer import tracking
from runtime.tests.conftest import MakeJob

UID = "0f9e8d7c-6b5a-4321-8765-abcdefabcdef"


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_run_is_the_same_for_every_attempt_and_cluster_of_a_job(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(uid=UID, log_path=str(tmp_path / "logs"), overrides={"trainer.logger": ["console", "wandb"]})
    later = make_job(**{**vars(job), "cluster_name": "sums-0f9e8-2", "cluster_generation": 2})
    first = trackers.environment(job, tmp_path / "spool-1", {})
    assert first == trackers.environment(later, tmp_path / "spool-2", {})
    assert first["WANDB_RUN_ID"] == "0f9e8d7c6b5a43218765a"
    assert first["WANDB_RESUME"] == "allow"
    assert Path(first["WANDB_DIR"]) == tmp_path / "logs/trackers/sums-0f9e8/wandb"
    assert Path(first["WANDB_DIR"]).is_dir()


@pytest.mark.parametrize("name", ["wandb", "swanlab"])
def test_without_a_key_a_tracker_stays_offline_and_logs_it(
    make_job: MakeJob, tmp_path: Path, at_home: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    job, mode = make_job(overrides={"trainer.logger": name}), f"{name.upper()}_MODE"
    assert trackers.environment(job, tmp_path, {})[mode] == "offline"
    assert f"{name} has no key; its run is stored in {tmp_path}" in capsys.readouterr().err
    assert mode not in trackers.environment(job, tmp_path, {f"{name.upper()}_API_KEY": "k"})
    assert mode not in trackers.environment(job, tmp_path, {mode: "disabled"})
    assert capsys.readouterr().err == ""
    login = Path(trackers.KEYS[name][1].replace("~", str(at_home)))
    login.parent.mkdir(parents=True, exist_ok=True)
    login.touch()
    assert mode not in trackers.environment(job, tmp_path, {})


def test_what_the_pod_sets_wins(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(overrides={"trainer.logger": ["tensorboard", "mlflow"]})
    own = {"TENSORBOARD_DIR": "/mine", "MLFLOW_TRACKING_URI": "http://mlflow:5000", "UNRELATED": "x"}
    assert trackers.environment(job, tmp_path, own) == {
        "TENSORBOARD_DIR": "/mine",
        "MLFLOW_TRACKING_URI": "http://mlflow:5000",
    }


@pytest.mark.parametrize("logger", [None, "console", ["console", "file"], ["of-tomorrow"]])
def test_a_job_without_trackers_gets_nothing(make_job: MakeJob, tmp_path: Path, logger: str | list[str] | None) -> None:
    job = make_job(overrides={} if logger is None else {"trainer.logger": logger})
    assert trackers.environment(job, tmp_path, {}) == {}
    trackers.require_packages(job)
    assert not (tmp_path / "trackers").exists()


def test_a_log_volume_that_fails_costs_the_folder_not_the_run(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").touch()
    job = make_job(log_path=str(tmp_path / "logs"), overrides={"trainer.logger": ["tensorboard"]})
    values = trackers.environment(job, tmp_path / "spool", {})
    assert values == {"TENSORBOARD_DIR": str(tmp_path / "spool/trackers/sums-uid-1/tensorboard")}
    assert "trackers cannot write to the log volume" in capsys.readouterr().err


def test_a_tracker_that_the_image_lacks_is_refused_with_a_way_out(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(trackers.PACKAGES, "rl_insight", "no_such_package_of_rl_insight")
    with pytest.raises(
        RefusedError, match="lacks rl_insight; build an image with `pip install no-such-package"
    ) as caught:
        trackers.require_packages(make_job(overrides={"trainer.logger": ["console", "rl_insight"]}))
    assert (caught.value.code, caught.value.reason) == (64, "TrackerMissing")


def test_parameters_that_a_run_has_are_not_logged_again() -> None:
    logged: list[tuple[dict[str, Any], dict[str, Any]]] = []
    log = tracking.only_new(lambda params, **options: logged.append((params, options)), frozenset({"trainer/steps"}))
    log({"trainer/steps": 4, "trainer/seed": 1}, run_id="r")
    log({"trainer/steps": 5})
    assert logged == [({"trainer/seed": 1}, {"run_id": "r"})]


def test_a_tracker_that_cannot_be_prepared_is_left_to_verl(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config: Any = SimpleNamespace(trainer=SimpleNamespace(logger=["mlflow"], project_name="p", experiment_name="e"))
    tracking.prepare(config, make_job(), 3)
    assert "mlflow was not prepared for the steps after 3" in capsys.readouterr().err


class Tracker:
    """Replaces verl's Tracking."""

    def __init__(self, finish: Callable[[int], None], *names: str) -> None:
        self.logger = dict.fromkeys(names)
        self._finish = finish

    def finish(self, exit_code: int) -> None:
        self._finish(exit_code)


@pytest.mark.parametrize("failed", [True, False])
def test_a_tracker_is_finished_with_the_runs_end_and_its_own_context(failed: bool) -> None:
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current")
    current.set("the run")
    seen: list[Any] = []
    tracking.finish(Tracker(lambda code: seen.extend((code, current.get()))), failed=failed)
    assert seen == [int(failed), "the run"]


def test_a_tracker_that_cannot_be_reached_is_reported_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "FINISH_SECONDS", 0.05)
    answered, begun = threading.Event(), time.monotonic()

    def hang(_: int) -> None:
        answered.wait(30.0)

    tracking.finish(Tracker(hang), failed=False)
    assert time.monotonic() - begun < 10.0
    answered.set()
    assert capsys.readouterr().err == "rljob: trackers were not finished: no answer within 0.05 s\n"


def test_what_a_tracker_raises_at_the_end_is_only_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("no such run")

    tracking.finish(Tracker(fail), failed=False)
    assert capsys.readouterr().err == "rljob: trackers were not finished: RuntimeError('no such run')\n"


@pytest.mark.parametrize(("run", "ended"), [("run-1", ["run-1"]), (None, [])])
def test_mlflows_run_which_only_its_own_thread_knows_is_ended_too(
    monkeypatch: pytest.MonkeyPatch, run: str | None, ended: list[str]
) -> None:
    own, seen = threading.get_ident(), list[str]()

    def active_run() -> SimpleNamespace | None:
        mine = run is not None and threading.get_ident() == own
        return SimpleNamespace(info=SimpleNamespace(run_id=run)) if mine else None

    client = SimpleNamespace(set_terminated=seen.append)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=active_run, MlflowClient=lambda: client))
    tracking.finish(Tracker(lambda _: None, "mlflow"), failed=False)
    assert seen == ended
