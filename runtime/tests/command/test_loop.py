"""Attempts of a real program: what is recorded, how it is stopped, and where the next attempt continues."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rljob_runtime.command import loop, start
from rljob_runtime.command.loop import Loop
from rljob_runtime.command.process import CommandFailedError
from rljob_runtime.command.trainer import RAY_JOB_CONFIG, CommandTrainer, child_environment
from rljob_runtime.contract import (
    CheckpointLayout,
    CommandCheckpoint,
    CommandConfig,
    CommandMetric,
    CommandProgress,
    CommandStop,
    ExitCode,
    JobConfig,
    Phase,
    Progress,
    ProgressSource,
    RuleCondition,
    StartStage,
    StopMode,
    StopRequest,
    StopRule,
)
from rljob_runtime.outcomes import RefusedError, from_error
from rljob_runtime.preflight import Attempt
from rljob_runtime.spool.spool import Spool, read_line
from rljob_runtime.trainer import WORKER_HOOK, Result, Setup
from runtime.tests.command import training_command
from runtime.tests.command.test_tensorboard import RECORDED
from runtime.tests.conftest import MakeJob

PROGRAM = (sys.executable, training_command.__file__, "--steps={steps}")
CONSOLE = CommandProgress(ProgressSource.VERL_CONSOLE)
SAVES = CommandCheckpoint(
    CheckpointLayout.PATTERN,
    pattern="step-{step}/state.json",
    complete="step-{step}/DONE",
    resume_args=("--resume={checkpoint}",),
)
BAD_SCORE = StopRule("good", "critic/score/mean", RuleCondition.ABOVE, 0.25, succeeds=True)


@dataclass
class Run:
    """A job whose attempts run in this process."""

    job: JobConfig
    spool: Spool

    def begin(self, attempt: int) -> Loop:
        self.spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=attempt))
        assert self.job.command is not None
        setup = Setup(self.job, attempt, self.spool, self.spool.root, {})
        chosen = start.choose(self.job, Attempt(attempt, "s", "p", self.spool.root))
        return Loop(setup, self.job.command, chosen, {**os.environ, "MARK": "mark"})

    def attempt(self, number: int = 1) -> Result:
        return self.begin(number).run()

    def stop_after(self, step: int) -> None:
        """Ask for a stop, in the background, when a step is recorded."""

        def ask() -> None:
            ends = time.monotonic() + 60
            while time.monotonic() < ends and ((now := self.spool.progress()) is None or now.step < step):
                time.sleep(0.05)
            self.spool.request_stop(StopRequest(1, StopMode.AFTER_STEP))

        threading.Thread(target=ask, daemon=True).start()

    def with_command(self, script: str, progress: CommandProgress = CONSOLE) -> Run:
        command = CommandConfig(("bash", "-c", script), progress=progress)
        return Run(dataclasses.replace(self.job, command=command), self.spool)

    @property
    def progress(self) -> Progress:
        progress = self.spool.progress()
        assert progress is not None
        return progress

    def steps(self, attempt: int = 1) -> dict[int, dict[str, float]]:
        lines = (self.spool.attempt_folder(attempt) / "steps.jsonl").read_bytes().splitlines()
        records = [record for line in lines if (record := read_line(line)) is not None]
        return {record.step: dict(record.metrics) for record in records}


MakeRun = Callable[..., Run]


@pytest.fixture
def run(make_job: MakeJob, spool: Spool, tmp_path: Path) -> MakeRun:
    def make(*args: str, command: dict[str, object] | None = None, saves: bool = False, **changes: object) -> Run:
        folder = ("--folder={checkpoints}",) if saves else ()
        given: dict[str, object] = {"progress": CONSOLE, "checkpoint": SAVES if saves else None} | (command or {})
        made = CommandConfig(args=(*PROGRAM, *folder, *args), **given)  # type: ignore[arg-type]
        path = str(tmp_path / "ckpt") if saves else None
        return Run(make_job(**{"total_steps": 5, "checkpoint_path": path, "command": made} | changes), spool)

    return make


def test_steps_are_recorded_from_the_output_which_is_forwarded(run: MakeRun, capfd: pytest.CaptureFixture[str]) -> None:
    job = run()
    assert job.attempt() == Result(5)
    assert list(job.steps()) == [1, 2, 3, 4, 5]
    assert job.steps()[3]["critic/score/mean"] == pytest.approx(0.3)
    progress = job.progress
    assert (progress.phase, progress.step, progress.first_step, progress.resumed_from_step) == (Phase.TRAINING, 5, 1, 0)
    assert (progress.reward, progress.step_seconds) == (0.5, 2.0)
    out = capfd.readouterr().out
    assert "step:5 - critic/score/mean:0.5" in out
    assert "ended at 5 with mark" in out


def test_steps_are_recorded_from_a_file_with_the_keys_of_the_command(run: MakeRun, tmp_path: Path) -> None:
    records = tmp_path / "records-1.jsonl"
    records.write_text('{"step": 4, "score": 9}\n')
    names = {CommandMetric.REWARD: "score", CommandMetric.TOKENS: "ntok"}
    told = CommandProgress(ProgressSource.JSON_LINES, path="records-{attempt}.jsonl", metrics=names)
    job = run(
        f"--records={records}", "--seconds=0.6", command={"progress": told, "working_dir": str(tmp_path)}, total_steps=3
    )
    assert job.attempt() == Result(3)
    assert [(step, figures["score"]) for step, figures in job.steps().items()] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert job.progress.reward == 0.3
    told_last = job.spool.start(1)
    assert told_last is not None
    assert told_last.stage == StartStage.RUNNING_COMMAND
    assert job.progress.step_seconds == pytest.approx(0.6, abs=0.55)
    assert job.progress.tokens_per_second_per_card == pytest.approx(100 / (job.progress.step_seconds or 0))


def test_steps_are_recorded_from_event_files(run: MakeRun, tmp_path: Path) -> None:
    told = CommandProgress(ProgressSource.TENSORBOARD, path=str(tmp_path / "logs"))
    file = tmp_path / "logs" / "run" / "events.out.tfevents.1.host"
    job = run().with_command(f"sleep 0.5; mkdir -p {file.parent}; base64 -d {RECORDED} > {file}", told)
    assert job.attempt() == Result(3)
    seen = job.spool.start(1)
    assert seen is not None
    assert StartStage.WAITING_FOR_RECORDS in {seen.stage, *(passed.stage for passed in seen.passed)}
    assert {step: figures["critic/score/mean"] for step, figures in job.steps().items()} == {1: 0.25, 2: 0.5, 3: 1.0}


def test_an_attempt_continues_where_the_one_before_has_saved(run: MakeRun, tmp_path: Path) -> None:
    job = run("--fail-at=4", saves=True)
    with pytest.raises(CommandFailedError, match="exit status 1; ValueError: step 4 is bad") as failed:
        job.attempt(1)
    outcome = from_error(failed.value, last_step=3)
    assert (outcome.exit_code, outcome.reason) == (ExitCode.FAILED, "RunFailed")
    assert (job.progress.step, job.progress.checkpoint_step) == (3, 2)
    again = run(saves=True)
    assert again.attempt(2) == Result(5)
    assert list(again.steps(2)) == [3, 4, 5]
    assert (again.progress.resumed_from_step, again.progress.checkpoint_step) == (2, 5)
    assert sorted(path.name for path in (tmp_path / "ckpt").iterdir()) == [
        "sums-uid01-1-attempt-1",
        "sums-uid01-1-attempt-2",
    ]
    assert sorted(path.name for path in (tmp_path / "ckpt" / "sums-uid01-1-attempt-2").iterdir()) == [
        "step-4",
        "step-5",
    ]


@pytest.mark.parametrize("how", [CommandStop.SIGNAL, CommandStop.FILE])
def test_a_stop_lets_the_command_save(run: MakeRun, tmp_path: Path, how: CommandStop) -> None:
    file = tmp_path / "stop-1"
    file.touch()  # left by an earlier attempt
    settings = {"stop": how, "stop_file": f"{tmp_path}/stop-{{attempt}}", "stop_seconds": 60.0}
    args = (f"--stop-file={file}",) if how is CommandStop.FILE else ()
    job = run("--seconds=0.3", *args, command=settings, saves=True, total_steps=1000)
    job.stop_after(3)
    result = job.attempt()
    assert (result.stopped_by, result.step) == (StopMode.AFTER_STEP, job.progress.step)
    assert result.step >= 3
    assert (job.progress.phase, job.progress.checkpoint_step) == (Phase.STOPPING, result.step)


@pytest.mark.parametrize("settings", [{"stop": CommandStop.NONE}, {"stop_seconds": 0.2, "stop": CommandStop.FILE}])
def test_a_command_that_is_not_asked_or_does_not_stop_is_ended(run: MakeRun, settings: dict[str, object]) -> None:
    job = run("--seconds=0.3", command={"stop_file": "/tmp/rljob-absent-stop", **settings}, total_steps=1000)
    job.stop_after(2)
    before = time.monotonic()
    assert job.attempt().stopped_by is StopMode.AFTER_STEP
    assert time.monotonic() - before < 30


def test_a_run_that_has_its_last_step_is_complete_although_it_was_asked_to_stop(run: MakeRun) -> None:
    job = run().with_command("trap '' TERM; echo step:5; sleep 3")
    job.stop_after(5)
    assert job.attempt() == Result(5)
    assert job.progress.phase is Phase.STOPPING, "the request arrived"


def test_old_steps_are_deleted(run: MakeRun, tmp_path: Path) -> None:
    job = run(saves=True, total_steps=6, command={"checkpoint": dataclasses.replace(SAVES, keep=2)})
    assert job.attempt() == Result(6)
    saved = tmp_path / "ckpt" / "sums-uid01-1-attempt-1"
    assert {path.name for path in saved.iterdir()} == {"step-4", "step-6"}


def test_a_stop_rule_ends_the_run(run: MakeRun) -> None:
    job = run("--seconds=0.2", stop_rules=(BAD_SCORE,), total_steps=1000)
    result = job.attempt()
    assert result.matched is not None
    assert (result.matched.rule, result.step, result.stopped_by) == (BAD_SCORE, 3, None)
    assert list(job.steps()) == [1, 2, 3]


def test_repeated_and_earlier_steps_and_the_validation_at_the_start_do_not_count(run: MakeRun) -> None:
    lines = "step:0 - a:1|step:2 - a:2|step:2 - a:3|step:1 - a:4|step:9999999999 - a:5|step:-3|step:3 - a:nan"
    job = run().with_command(f"echo '{lines}' | tr '|' '\\n'")
    assert job.attempt() == Result(3)
    assert {step: figures["a"] for step, figures in job.steps().items() if step < 3} == {2: 2.0}
    assert "the command ended by itself after step 3 of 5" in job.progress.notes


def test_a_stop_before_the_first_step_is_passed_on_to_the_command(run: MakeRun, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/saved; exit 0' TERM; touch {tmp_path}/up; while true; do sleep 0.1; done"
    job = run().with_command(script)
    attempt = job.begin(1)

    def ask() -> None:
        ends = time.monotonic() + 60
        while time.monotonic() < ends and not ((tmp_path / "up").exists() and job.spool.has_begun(1)):
            time.sleep(0.05)
        job.spool.request_stop(StopRequest(1, StopMode.AFTER_STEP))

    threading.Thread(target=ask, daemon=True).start()
    assert attempt.run() == Result(0, StopMode.AFTER_STEP)
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("told", [CONSOLE, None])
def test_a_stop_may_wait_for_the_command_once_there_is_something_to_save(
    run: MakeRun, told: CommandProgress | None
) -> None:
    job = run(command={"progress": told})
    assert not job.spool.has_begun(1)
    assert job.attempt() == Result(5 if told else 0)
    assert job.spool.has_begun(1)


def test_a_pattern_that_takes_for_ever_does_not_block_the_launcher(
    run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MATCH_SECONDS", 0.1)
    slow = CommandProgress(ProgressSource.PATTERN, pattern=r"(x+x+)+y(?P<step>\d+)|at (?P<at>\d+)")
    job = run().with_command(f"for n in 1 2 3 4 5; do echo {'x' * 60}; done", slow)
    before = time.monotonic()
    assert job.attempt() == Result(0)
    assert time.monotonic() - before < 30
    assert any("it is not used any more" in note for note in job.progress.notes)


def test_a_command_that_is_not_found_is_never_tried_again(run: MakeRun) -> None:
    with pytest.raises(RefusedError, match="exit status 127"):
        run().with_command("absent-program").attempt()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"args": ()}, "args is empty"),
        ({"args": ("a", "{checkpoints}")}, r"args\[1\]: {checkpoints} has no value"),
        ({"stop": CommandStop.FILE}, "stop.file is missing"),
        ({"stop": CommandStop.FILE, "stop_file": "{checkpoint}/x"}, "stop.file: {checkpoint} has no value"),
        (
            {"progress": CommandProgress(ProgressSource.JSON_LINES)},
            "progress.path is missing; JSONLines needs the file",
        ),
        (
            {"progress": CommandProgress(ProgressSource.TENSORBOARD)},
            "progress.path is missing; TensorBoard needs the f",
        ),
        ({"progress": CommandProgress(ProgressSource.PATTERN, pattern="(")}, "progress.pattern"),
        ({"checkpoint": CommandCheckpoint(CheckpointLayout.PATTERN)}, "checkpoint.pattern"),
        (
            {"checkpoint": CommandCheckpoint(CheckpointLayout.VERL, resume_args=("{checkpoints}",))},
            r"checkpoint.resumeArgs\[0\]",
        ),
    ],
)
def test_a_command_that_can_never_run_is_refused_before_the_cluster_is_waited_for(
    make_job: MakeJob, spool: Spool, changes: dict[str, object], told: str
) -> None:
    command = CommandConfig(**{"args": ("train",), **changes})  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=f"launcher.command.{told}"):
        CommandTrainer().prepare(Setup(make_job(command=command), 1, spool, spool.root, {}))


def test_the_trainer_runs_the_command_with_the_environment_of_the_launcher(
    run: MakeRun, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job = run()
    monkeypatch.setenv("MARK", "theirs")
    job.spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=1))
    trainer = CommandTrainer()
    trainer.prepare(Setup(job.job, 1, job.spool, job.spool.root, {"RLJOB_RUN": "r"}))
    assert not trainer.only_evaluates(job.job)
    assert trainer.environment(job.job, {}) == {}
    assert trainer.environment(dataclasses.replace(job.job, core_binding=True), {}) == {"RLJOB_BIND_BY_RAY": "1"}
    assert trainer.loads == {}
    assert trainer.train() == Result(5)
    assert "with theirs" in capfd.readouterr().out


def test_the_commands_ray_job_gets_the_variables_and_the_hook() -> None:
    supervisors = {"runtime_env": {"env_vars": {"A": "1", "B": "2"}}, "metadata": {"job_submission_id": "s"}}
    environ = child_environment({RAY_JOB_CONFIG: json.dumps(supervisors), "X": "y"}, {"B": "3"})
    assert json.loads(environ.pop(RAY_JOB_CONFIG)) == {
        "runtime_env": {"env_vars": {"A": "1", "B": "3"}, "worker_process_setup_hook": WORKER_HOOK},
        "metadata": {"job_submission_id": "s"},
    }
    assert environ == {"X": "y", "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1", "PYTHONUNBUFFERED": "1"}
    for broken in ("", "{"):
        fresh = json.loads(child_environment({RAY_JOB_CONFIG: broken}, {})[RAY_JOB_CONFIG])
        assert re.search(r"set_up$", fresh["runtime_env"]["worker_process_setup_hook"])
