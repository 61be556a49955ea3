"""Which step an attempt of a command starts from, and what happens to earlier steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.checkpoints import claims
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command import start
from rljob_runtime.contract import (
    CheckpointLayout,
    CommandCheckpoint,
    CommandConfig,
    ExitCode,
    JobConfig,
    ResumeMode,
    ResumeSource,
)
from rljob_runtime.outcomes import FencedError, RefusedError
from rljob_runtime.preflight import Attempt
from runtime.tests.conftest import MakeJob

LAYOUT = CommandCheckpoint(CheckpointLayout.PATTERN, pattern="run/step-{step}", complete="run/step-{step}/DONE")
FIRST = "sums-uid01-1-attempt-1"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


def save(root: Path, *steps: int) -> None:
    for step in steps:
        (root / "run" / f"step-{step}").mkdir(parents=True)
        (root / "run" / f"step-{step}" / "DONE").touch()


def choose(job: JobConfig, number: int = 2, checkpoint_step: int | None = None) -> Start:
    """Choose as the launcher does, with the folder claimed."""
    attempt = Attempt(number, "s", "pod", Path("/spool"), checkpoint_step)
    if job.checkpoint_path is not None:
        claims.claim(Path(job.checkpoint_path), claims.Owner.of(job, number))
    return start.choose(job, attempt)


def job_of(make_job: MakeJob, own: Path, **changes: object) -> JobConfig:
    return make_job(checkpoint_path=str(own), command=CommandConfig(("train",), checkpoint=LAYOUT), **changes)


def test_an_attempt_resumes_from_the_newest_step_of_all(make_job: MakeJob, own: Path) -> None:
    assert choose(job_of(make_job, own)) == Start()
    save(own / FIRST, 5, 9)
    (own / FIRST / "run" / "step-9" / "DONE").unlink()
    made = own / FIRST / "run" / "step-5"
    assert choose(job_of(make_job, own)) == Start(made, 5, f"the run resumes from step 5 in {own / FIRST}")


def test_a_command_that_saves_nothing_starts_at_step_0(make_job: MakeJob, own: Path) -> None:
    save(own, 5)
    assert choose(make_job(checkpoint_path=str(own), command=CommandConfig(("train",)))) == Start()
    assert choose(make_job(checkpoint_path=str(own))) == Start()


@pytest.mark.parametrize("checkpoint_step", [None, 5])
def test_saved_steps_that_are_gone_are_not_silently_trained_again(
    make_job: MakeJob, own: Path, checkpoint_step: int | None
) -> None:
    if checkpoint_step is None:
        assert choose(job_of(make_job, own)) == Start()
        return
    with pytest.raises(RefusedError, match="had saved step 5 there: restore that folder") as refused:
        choose(job_of(make_job, own), checkpoint_step=checkpoint_step)
    assert (refused.value.code, refused.value.reason) == (ExitCode.BAD_CONFIG, "CheckpointGone")


def test_a_step_beyond_the_end_is_refused(make_job: MakeJob, own: Path) -> None:
    save(own, 40)
    assert choose(job_of(make_job, own)).step == 40
    save(own, 41)
    with pytest.raises(RefusedError, match=r"step 41 in .* beyond trainer.steps 40"):
        choose(job_of(make_job, own))
    assert choose(job_of(make_job, own, total_steps=0)).step == 41


def test_required_needs_a_step(make_job: MakeJob, own: Path) -> None:
    with pytest.raises(RefusedError, match=r"checkpoint.resume is Required, but"):
        choose(job_of(make_job, own, resume=ResumeMode.REQUIRED))
    save(own / FIRST, 3)
    assert choose(job_of(make_job, own, resume=ResumeMode.REQUIRED)).step == 3


def test_another_jobs_folder_counts_while_the_own_one_is_empty(make_job: MakeJob, own: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    save(other / "x-attempt-1", 4, 6)

    def chosen(step: int | None) -> Start:
        return choose(job_of(make_job, own, resume_from=ResumeSource(str(other), step)))

    assert (chosen(None).step, chosen(4).step) == (6, 4)
    with pytest.raises(RefusedError, match=r"checkpoint.from: .* has no complete step 5"):
        chosen(5)
    save(other, 40)
    with pytest.raises(RefusedError, match=r"step 40 is not before trainer.steps 40"):
        chosen(None)
    save(own / FIRST, 2)
    assert chosen(None).step == 2


def test_never_sets_the_steps_of_earlier_jobs_aside_once(make_job: MakeJob, own: Path) -> None:
    save(own, 3)
    save(own / FIRST, 5)
    job = job_of(make_job, own, resume=ResumeMode.NEVER)
    aside = own / "set-aside-by-sums-uid01-1-attempt-1"
    assert choose(job, 1) == Start(message=f"the run starts at step 0; earlier steps are now in {aside}")
    assert (aside / FIRST / "run" / "step-5" / "DONE").exists()
    assert (aside / "run" / "step-3" / "DONE").exists()
    assert choose(job, 2) == Start()
    save(own / FIRST, 7)
    assert choose(job, 3, checkpoint_step=7).step == 7, "the job's own step"


def test_never_refuses_a_folder_that_has_lost_the_jobs_steps(make_job: MakeJob, own: Path) -> None:
    save(own, 3)
    with pytest.raises(RefusedError, match=r"CheckpointGone|had saved step 7"):
        choose(job_of(make_job, own, resume=ResumeMode.NEVER), checkpoint_step=7)
    assert (own / "run" / "step-3").exists()


def test_an_attempt_that_has_lost_the_folder_sets_nothing_aside(make_job: MakeJob, own: Path) -> None:
    save(own, 3)
    job = job_of(make_job, own, resume=ResumeMode.NEVER)
    claims.claim(own, claims.Owner.of(job, 3))
    with pytest.raises(FencedError):
        start.choose(job, Attempt(2, "s", "pod", Path("/spool")))
    assert (own / "run" / "step-3").exists()
