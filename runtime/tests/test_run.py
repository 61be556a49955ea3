"""What the trainer shows of its attempt in the spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.contract import Phase, Progress
from rljob_runtime.figures import VALIDATION_SCORE
from rljob_runtime.spool import Spool
from rljob_runtime.verl_plugin.run import Run, validation_figures
from runtime.tests.conftest import MakeJob


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    (folder / "global_step_10" / "actor").mkdir(parents=True)
    (folder / "global_step_10" / "data.pt").write_bytes(b"")
    return folder


def shown(spool: Spool) -> Progress:
    progress = spool.progress()
    assert progress is not None
    return progress


@pytest.mark.parametrize(("step", "checkpoint_step"), [(10, 10), (30, None)])
def test_a_resumed_step_is_a_checkpoint_only_in_the_own_folder(
    make_job: MakeJob, spool: Spool, checkpoints: Path, step: int, checkpoint_step: int | None
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    Run(make_job(checkpoint_path=str(checkpoints)), 1, spool).resumed(step)
    assert (shown(spool).step, shown(spool).checkpoint_step) == (step, checkpoint_step)


@pytest.mark.parametrize(("only", "reward"), [(True, 0.625), (False, None)])
def test_a_validation_before_training_is_a_record_of_its_own(
    make_job: MakeJob, spool: Spool, only: bool, reward: float | None
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    Run(make_job(), 1, spool).record_validation(0, {VALIDATION_SCORE: 0.625}, only=only)
    record = spool.last_step(1)
    assert record is not None
    assert (record.step, record.metrics) == (0, {VALIDATION_SCORE: 0.625})
    assert (shown(spool).step, shown(spool).reward) == (0, reward)


def test_the_validation_score_is_the_mean_of_all_answers_that_were_scored() -> None:
    assert validation_figures([1.0, None, 0.0, 1.0, 0.5]) == {VALIDATION_SCORE: 0.625}
    assert validation_figures([None]) == {}
