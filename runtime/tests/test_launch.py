"""How an attempt ends: what stands in the spool when the head's lock is free, and that the outcome is always given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rljob_runtime import launch, log_rules
from rljob_runtime.contract import (
    AttemptVariable,
    ExitCode,
    JobConfig,
    LogRule,
    Outcome,
    Phase,
    PodVariable,
    Progress,
    SpoolFile,
)
from rljob_runtime.launch import Ending, Patience
from rljob_runtime.outcomes import FencedError, RefusedError
from rljob_runtime.ray_cluster import head_lock, launcher_lives
from rljob_runtime.spool import Spool
from runtime.tests.conftest import MakeJob

DONE = Outcome(int(ExitCode.DONE), "Completed", "trained 40 steps", last_step=40)
RULE = LogRule("hccl", "HCCL.*timeout")


@dataclass
class Head:
    """A head pod whose job is there; `run` stands for everything that needs Ray and verl."""

    spool: Spool
    environ: dict[str, str]
    run: Callable[[], Outcome] = lambda: DONE
    seen: list[tuple[str, bool, Phase]] = field(default_factory=list)
    """At each part of an end: whether the lock is held, and the phase that everybody is told."""

    def look(self, part: str) -> None:
        progress = self.spool.progress()
        assert progress is not None
        self.seen.append((part, launcher_lives(self.spool.root), progress.phase))

    def launch(self) -> Ending:
        return launch.launch(self.environ, Patience(predecessor_seconds=0.0))


@pytest.fixture
def head(make_job: MakeJob, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    job = make_job(log_rules=(RULE,))
    (tmp_path / "job.json").write_bytes(job.to_json())
    head = Head(
        spool,
        {
            PodVariable.POD_UID: "pod",
            PodVariable.SPOOL: str(spool.root),
            PodVariable.CONFIG: str(tmp_path / "job.json"),
            AttemptVariable.ATTEMPT: "3",
            AttemptVariable.SUBMISSION_ID: "sums-uid01-1-3",
            AttemptVariable.HEAD_POD_UID: "pod",
            AttemptVariable.JOB_DIGEST: job.digest(),
        },
    )
    monkeypatch.setattr(launch, "run_claimed", lambda *_: head.run())
    return head


@pytest.fixture
def looking(head: Head, monkeypatch: pytest.MonkeyPatch) -> Head:
    end = launch.end

    def judge(outcome: Outcome, *_: object) -> Outcome:
        head.look("judged")
        return outcome

    def end_and_look(spool: Spool, outcome: Outcome) -> None:
        end(spool, outcome)
        head.look("end")

    monkeypatch.setattr(log_rules, "judged", judge)
    monkeypatch.setattr(launch, "end", end_and_look)
    return head


def raising(error: BaseException) -> Callable[[], Outcome]:
    def run() -> Outcome:
        raise error

    return run


def progress_of(spool: Spool) -> Progress:
    progress = spool.progress()
    assert progress is not None
    return progress


def test_who_finds_the_lock_free_finds_the_outcome_too(looking: Head) -> None:
    ending = looking.launch()
    assert (ending.outcome, ending.mirror is not None) == (DONE, True)
    assert looking.seen == [("end", True, Phase.ENDED)]
    assert not launcher_lives(looking.spool.root)
    assert progress_of(looking.spool).outcome == DONE


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("a bug"), "RunFailed"),
        (RefusedError(ExitCode.BAD_CONFIG, "PathMissing", "no model"), "PathMissing"),
        (FencedError("attempt 4 owns it"), "Fenced"),
        (KeyboardInterrupt(), "RunFailed"),
    ],
)
def test_a_failing_launcher_frees_its_lock_when_its_outcome_stands(
    looking: Head, error: BaseException, reason: str
) -> None:
    looking.run = raising(error)
    ending = looking.launch()
    assert (ending.outcome.reason, ending.mirror is not None) == (reason, True)
    assert looking.seen == [("judged", True, Phase.STARTING), ("end", True, Phase.ENDED)]
    assert not launcher_lives(looking.spool.root)
    assert progress_of(looking.spool).outcome == ending.outcome


def lose_the_folder(spool: Spool) -> None:
    spool.root.rename(spool.root.with_name("gone"))
    spool.root.write_text("no folder")


def lose_the_progress(spool: Spool) -> None:
    (spool.root / SpoolFile.CURRENT).unlink()


@pytest.mark.parametrize("lose", [lose_the_folder, lose_the_progress])
@pytest.mark.parametrize("error", [None, RuntimeError("a bug")])
def test_a_spool_that_fails_takes_nothing_from_the_last_line(
    head: Head, lose: Callable[[Spool], None], error: Exception | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> Outcome:
        lose(head.spool)
        return raising(error)() if error else DONE

    head.run = run
    outcome = head.launch().outcome
    assert (outcome.reason, outcome.message) == (
        ("RunFailed", "RuntimeError: a bug") if error else ("Completed", "trained 40 steps")
    )
    assert f"rljob: the spool does not show the end {outcome.reason}: " in capsys.readouterr().err


def test_a_launcher_that_meets_another_one_leaves_its_spool_alone(head: Head) -> None:
    running = Progress(pod_uid="pod", phase=Phase.TRAINING, attempt=2, step=7)
    with head_lock(head.spool.root, 0):
        head.spool.write_progress(running)
        ending = head.launch()
    assert (ending.outcome.reason, ending.outcome.last_step, ending.mirror) == ("HeadBusy", 7, None)
    assert head.spool.progress() == running


def test_what_is_no_attempt_touches_nothing(head: Head, make_job: MakeJob) -> None:
    head.environ[AttemptVariable.JOB_DIGEST] = JobConfig.digest(make_job(name="another"))
    assert head.launch().outcome.reason == "WrongConfig"
    assert head.launch().outcome.last_step == 0
    assert not head.spool.root.exists()
