"""The end of an attempt: the spool's content when the head's lock is released, and that there is always an outcome."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from rljob_runtime import launch, preflight
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
    StartProgress,
)
from rljob_runtime.launch import Ending, Launch, Patience
from rljob_runtime.outcomes import FencedError, RefusedError
from rljob_runtime.ray_cluster import head_lock, launcher_lives
from rljob_runtime.spool import log_rules
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin.launcher import VerlTrainer
from runtime.tests.conftest import FullDisk, MakeJob
from runtime.tests.fenced_save_process import JOB

DONE = Outcome(int(ExitCode.DONE), "Completed", "trained 40 steps", last_step=40)
RULE = LogRule("hccl", "HCCL.*timeout")


@dataclass
class Head:
    """A head pod with its job. `run` replaces everything that needs Ray and verl."""

    spool: Spool
    environ: dict[str, str]
    run: Callable[[], Outcome] = lambda: DONE
    seen: list[tuple[str, bool, Phase]] = field(default_factory=list)
    """For each part of an end: whether the lock is held, and the published phase."""

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

    def end_and_look(launched: Launch, outcome: Outcome) -> Outcome:
        ended = end(launched, outcome)
        head.look("end")
        return ended

    monkeypatch.setattr(log_rules, "apply_rules", judge)
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


def test_a_start_says_from_its_beginning_what_it_does(head: Head) -> None:
    told: list[StartProgress | None] = []

    def run() -> Outcome:
        told.append(progress_of(head.spool).start)
        return DONE

    head.run = run
    head.launch()
    assert [start.stage for start in told if start] == ["Preparing"]
    assert progress_of(head.spool).start is None


def test_the_outcome_is_written_before_the_lock_is_released(looking: Head) -> None:
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
    assert f"rljob: cannot write the outcome {outcome.reason} to the spool: " in capsys.readouterr().err


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


def test_half_of_a_pair_in_a_cause_takes_nothing_from_the_end(head: Head) -> None:
    head.run = raising(ValueError("the answer was cut: \ud83d"))
    ending = head.launch()
    assert (ending.outcome.reason, ending.mirror is not None) == ("RunFailed", True)
    assert progress_of(head.spool).outcome == ending.outcome


def test_what_fails_beside_the_run_still_finishes_the_log_volume(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "end", lambda *_: raising(RuntimeError("a bug"))())
    ending = head.launch()
    assert (ending.outcome.message, ending.mirror is not None) == ("RuntimeError: a bug", True)


def test_a_full_disk_takes_the_log_and_the_progress_but_not_the_outcome(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> Outcome:
        lose_the_folder(head.spool)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(head.spool.root / "attempt-3" / "steps.jsonl"))

    head.run = run
    monkeypatch.setattr(sys, "stderr", FullDisk())
    ending = head.launch()
    assert (ending.outcome.reason, ending.outcome.exit_code) == ("DiskFull", ExitCode.ENVIRONMENT)
    assert ending.mirror is not None


class LeftError(BaseException):
    """Replaces the exit of the process."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the exit codes with which the process would have exited."""
    codes: list[int] = []

    def leave(code: int) -> NoReturn:
        codes.append(code)
        raise LeftError

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(launch, "LEAVE_SECONDS", 0.01)
    return codes


@pytest.fixture
def launched(spool: Spool) -> Launch:
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = Launch(attempt, JOB, spool, Patience(), Mirror(JOB, 1), VerlTrainer())
    launch.begin(launched)
    return launched


LOST = Outcome(int(ExitCode.ENVIRONMENT), "NodeLost", "the worker at 10.0.0.7 is gone", last_step=40)


def test_a_watcher_that_comes_second_changes_nothing(
    launched: Launch, exits: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    launch.end(launched, DONE)
    with pytest.raises(LeftError):
        launch.leave_early(launched, LOST)
    assert (exits, progress_of(launched.spool).outcome) == ([ExitCode.DONE], DONE)
    assert capsys.readouterr().out == "", "the last line is for the one that came first"


def test_a_run_that_ends_while_a_watcher_leaves_changes_nothing(
    launched: Launch, exits: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> Outcome:
        with pytest.raises(LeftError):
            launch.leave_early(launched, LOST)
        return DONE

    monkeypatch.setattr(launch, "run_claimed", run)
    with pytest.raises(LeftError):
        launch.run_alone(launched, {})
    assert (exits, progress_of(launched.spool).outcome) == ([ExitCode.ENVIRONMENT] * 2, LOST)
    assert Outcome.from_json(capsys.readouterr().out.splitlines()[-1]) == LOST


@pytest.mark.parametrize(("full", "lines"), [("stdout", []), ("stderr", [DONE])])
def test_a_full_disk_costs_the_log_volume_nothing(
    launched: Launch,
    exits: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    full: str,
    lines: list[Outcome],
) -> None:
    finished: list[bool] = []
    monkeypatch.setattr(launched.mirror, "finish", lambda _, *, failed: finished.append(failed))
    monkeypatch.setattr(sys, full, FullDisk())
    with pytest.raises(LeftError):
        launch.leave(Ending(DONE, launched.mirror))
    assert (exits, finished) == ([ExitCode.DONE], [False])
    assert [Outcome.from_json(line) for line in capsys.readouterr().out.splitlines() if line] == lines


def test_an_exit_code_outlives_whatever_the_last_messages_meet(
    exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    with pytest.raises(LeftError):
        launch.leave(Ending(LOST))
    assert exits == [ExitCode.ENVIRONMENT]
