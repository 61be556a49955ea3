"""Which trainer an image has, and that verl's implements the launcher's interface."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from rljob_runtime import launch, preflight, trainer
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command.trainer import CommandTrainer
from rljob_runtime.contract import CommandConfig, ExitCode
from rljob_runtime.launch import Launch, Patience
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin.launcher import VerlTrainer, resume_settings
from runtime.tests.conftest import MakeJob

VERL = EntryPoint("verl", "rljob_runtime.verl_plugin.launcher:VerlTrainer", trainer.GROUP)
OURS = EntryPoint("ours", "json:JSONDecoder", trainer.GROUP)
THEIRS = EntryPoint("theirs", "nowhere:Trainer", trainer.GROUP)


def test_an_image_without_another_trainer_runs_verl(make_job: MakeJob) -> None:
    assert isinstance(trainer.load(make_job()), VerlTrainer)
    assert VERL in tuple(entry_points(group=trainer.GROUP))


def test_a_trainer_that_an_image_adds_goes_before_verl() -> None:
    assert trainer.choose([VERL, OURS]) == OURS
    assert trainer.choose([OURS]) == OURS


@pytest.mark.parametrize(
    ("entries", "told"),
    [([], "the image has none"), ([THEIRS, VERL, OURS], "the image has several: ours, theirs; install one of them")],
)
def test_an_image_that_does_not_decide_is_refused(entries: list[EntryPoint], told: str) -> None:
    with pytest.raises(RefusedError, match=told) as refused:
        trainer.choose(entries)
    assert (refused.value.code, refused.value.reason) == (ExitCode.BAD_CONFIG, "TrainerMissing")


def test_a_command_needs_no_trainer_of_the_image(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "entry_points", lambda group: [] if group == trainer.GROUP else [THEIRS])
    assert isinstance(trainer.load(make_job(command=CommandConfig(("train",)))), CommandTrainer)


def test_a_trainer_that_cannot_be_loaded_is_named(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "entry_points", lambda group: [THEIRS] if group == trainer.GROUP else [])
    with pytest.raises(
        RefusedError, match=r"cannot load the entry point theirs \(nowhere:Trainer\): ModuleNotFoundError"
    ):
        trainer.load(make_job())


def test_verl_begins_where_the_launcher_says(tmp_path: Path) -> None:
    assert resume_settings(Start()) == {"trainer.resume_mode": "disable", "trainer.resume_from_path": None}
    step = tmp_path / "global_step_10"
    assert resume_settings(Start(step, 10)) == {
        "trainer.resume_mode": "resume_path",
        "trainer.resume_from_path": str(step),
    }


def test_processes_learn_where_their_plan_is_only_if_they_are_to_be_bound(make_job: MakeJob, spool: Spool) -> None:
    def variables(**changes: object) -> dict[str, str]:
        job = make_job(**changes)
        attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
        launched = Launch(attempt, job, spool, Patience(), Mirror(job, 1), VerlTrainer())
        return launch.environment(launched, {"OMP_NUM_THREADS": "4"})

    assert "RLJOB_BINDING" not in variables()
    assert variables(core_binding=True)["RLJOB_BINDING"] == "sums-uid01-1-attempt-1"
    assert variables()["OMP_NUM_THREADS"] == "4", "what the pod sets wins"
