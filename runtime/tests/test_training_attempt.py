"""What the trainer reports about its attempt in the spool."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
import types
from pathlib import Path

import pytest

from rljob_runtime.checkpoints import claims
from rljob_runtime.checkpoints.parallelism import SPLIT_FILE
from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE, complete_steps, step_folder
from rljob_runtime.contract import (
    CHECKPOINT_SCORE,
    NOTE_LIMIT,
    NOTES_MAX,
    Phase,
    Progress,
    SpoolFile,
    StopMode,
    TrainerMode,
)
from rljob_runtime.outcomes import FencedError, from_error
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.step_metrics import ROLLOUT_SECONDS, VALIDATION_SCORE, Batch, RolloutWindow
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.trainer import fenced_save
from rljob_runtime.verl_plugin.trainer.metrics import validation_metrics
from runtime.tests.conftest import MakeJob
from runtime.tests.fenced_save_process import WHOLE_MARK, Pause, save


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    (folder / "global_step_10" / "actor").mkdir(parents=True)
    (folder / "global_step_10" / "data.pt").write_bytes(WHOLE_MARK)
    return folder


def shown(spool: Spool) -> Progress:
    progress = spool.progress()
    assert progress is not None
    return progress


def test_notes_are_shown_once_bounded_and_logged(
    make_job: MakeJob, spool: Spool, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = TrainingAttempt(make_job(), 1, spool)
    attempt.note("nobody has written the progress yet")
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    attempt.note("3 prompts\nwere left out")
    attempt.note("3 prompts were left out")
    attempt.note("x" * 10_000)
    assert shown(spool).notes == ("3 prompts were left out", "x" * (NOTE_LIMIT - 1) + "…")
    for number in range(NOTES_MAX):
        attempt.note(f"note {number}")
    assert len(shown(spool).notes) == NOTES_MAX
    assert f"rljob: note {NOTES_MAX - 1}\n" in capfd.readouterr().err


@pytest.mark.parametrize(("step", "checkpoint_step"), [(10, 10), (30, None)])
def test_a_resumed_step_is_a_checkpoint_only_in_the_own_folder(
    make_job: MakeJob, spool: Spool, checkpoints: Path, step: int, checkpoint_step: int | None
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    TrainingAttempt(make_job(checkpoint_path=str(checkpoints)), 1, spool).resumed(step)
    assert (shown(spool).step, shown(spool).checkpoint_step) == (step, checkpoint_step)


@pytest.mark.parametrize(
    ("step", "metrics", "score"),
    [
        (10, {"critic/score/mean": 0.5, VALIDATION_SCORE: 0.7}, {"reward": 0.5, "validation": 0.7}),
        (10, {"critic/score/mean": math.nan}, {"reward": None, "validation": None}),
        (11, {"critic/score/mean": 0.5}, None),
    ],
    ids=["saved", "not a number", "another step"],
)
def test_a_step_that_was_saved_has_its_score_beside_it(
    make_job: MakeJob,
    spool: Spool,
    checkpoints: Path,
    step: int,
    metrics: dict[str, float],
    score: dict[str, float | None] | None,
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1))
    attempt = TrainingAttempt(make_job(checkpoint_path=str(checkpoints)), 1, spool)
    claims.claim(checkpoints, claims.Owner.of(attempt.job, 1))
    (checkpoints / TRACKER_FILE).write_text("10")
    attempt.saved(10, 1.0)
    attempt.record(step, metrics)
    file = checkpoints / "global_step_10" / CHECKPOINT_SCORE
    assert (json.loads(file.read_text()) if file.exists() else None) == score


@pytest.mark.parametrize("step", [0, 10])
def test_an_attempt_says_which_step_it_has_loaded(
    make_job: MakeJob, spool: Spool, checkpoints: Path, step: int
) -> None:
    (checkpoints / "global_step_10" / "actor" / "shard.pt").write_bytes(b"12345678")
    os.utime(checkpoints / "global_step_10" / "data.pt", (1000.0, 1000.0))
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    TrainingAttempt(make_job(checkpoint_path=str(checkpoints)), 1, spool).resumed(step)
    progress = shown(spool)
    assert progress.resumed_from_step == step
    assert (progress.checkpoint_time, progress.checkpoint_bytes) == ((1000.0, 30) if step else (None, None))
    assert progress.checkpoint_seconds is None


def test_a_save_is_shown_when_the_tracker_names_it(
    make_job: MakeJob, spool: Spool, checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    run = TrainingAttempt(make_job(checkpoint_path=str(checkpoints)), 1, spool)
    (checkpoints / "global_step_10" / "actor" / "shard.pt").write_bytes(b"12345678")
    run.saved(10, 2.5)  # asynchronous: a worker is still writing
    assert shown(spool).checkpoint_step is None
    (checkpoints / TRACKER_FILE).write_text("10")
    before = time.time()
    run.record(11, {"timing_s/step": 1.0})
    run.record(12, {"timing_s/step": 1.0})
    progress = shown(spool)
    assert (progress.checkpoint_step, progress.checkpoint_seconds, progress.checkpoint_bytes) == (10, 2.5, 30)
    assert before <= (progress.checkpoint_time or 0) <= time.time()
    said = f"rljob: step 10 is saved in {checkpoints / 'global_step_10'}: 2.5 s, 30 bytes"
    assert capsys.readouterr().out.splitlines() == [said]


def test_a_checkpoint_that_cannot_be_measured_is_shown_without_its_size(
    make_job: MakeJob, spool: Spool, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rljob_runtime.training_attempt.SIZE_SECONDS", -1.0)
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    (checkpoints / TRACKER_FILE).write_text("10")
    TrainingAttempt(make_job(checkpoint_path=str(checkpoints)), 1, spool).saved(10, 2.5)
    assert (shown(spool).checkpoint_step, shown(spool).checkpoint_bytes) == (10, None)


def keeping(make_job: MakeJob, spool: Spool, folder: Path, keep: int | None, attempt: int = 1) -> TrainingAttempt:
    """Return an attempt that owns the folder."""
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    run = TrainingAttempt(make_job(checkpoint_path=str(folder)), attempt, spool)
    claims.claim(folder, claims.Owner.of(run.job, attempt))
    run.keep = keep
    return run


def save_steps(run: TrainingAttempt, folder: Path, *steps: int) -> None:
    for step in steps:
        save(run, step, Pause("nowhere", folder / "go"))
        run.saved(step, 1.0)


@pytest.mark.parametrize(("keep", "left"), [(None, [10, 20, 30, 35, 40]), (1, [40]), (2, [35, 40])])
def test_the_newest_checkpoints_stay_including_those_of_other_attempts(
    make_job: MakeJob, spool: Spool, checkpoints: Path, keep: int | None, left: list[int]
) -> None:
    save_steps(keeping(make_job, spool, checkpoints, keep), checkpoints, 20, 30)
    save_steps(keeping(make_job, spool, checkpoints, keep, attempt=2), checkpoints, 35, 40)
    assert complete_steps(checkpoints) == left
    names = {f"global_step_{step}" for step in left}
    assert {entry.name for entry in checkpoints.iterdir()} == {*names, ".owner", TRACKER_FILE}


def test_the_old_one_stays_until_the_new_one_is_published(make_job: MakeJob, spool: Spool, checkpoints: Path) -> None:
    run = keeping(make_job, spool, checkpoints, keep=1)
    save_steps(run, checkpoints, 10)
    (checkpoints / "global_step_12" / "actor").mkdir(parents=True)  # from an interrupted save; only occupies space
    run.clear(20)
    assert sorted(entry.name for entry in checkpoints.glob("global_step_*")) == ["global_step_10"]


def test_a_save_continues_in_no_folder_of_an_earlier_attempt(
    make_job: MakeJob, spool: Spool, checkpoints: Path
) -> None:
    with (checkpoints / "global_step_10" / "actor" / "shard.pt").open("wb") as frozen:
        save_steps(keeping(make_job, spool, checkpoints, keep=None), checkpoints, 10)
        frozen.write(b"late")
    assert list((checkpoints / "global_step_10" / "actor").iterdir()) == []
    assert not list(checkpoints.glob(".retired-*"))


def test_a_worker_that_was_paused_in_a_save_finds_no_step_of_the_next_attempt(
    make_job: MakeJob, spool: Spool, checkpoints: Path
) -> None:
    first = keeping(make_job, spool, checkpoints, keep=None)
    place = first.new_place()
    assert place is not None
    made = step_folder(place, 20)
    (made / "actor").mkdir(parents=True)
    (made / "actor" / "model.pt").write_bytes(b"first")
    second = keeping(make_job, spool, checkpoints, keep=None, attempt=2)
    save_steps(second, checkpoints, 20)
    (step_folder(checkpoints, 20) / "actor" / "optim.pt").write_bytes(b"second")
    with pytest.raises(FileNotFoundError):
        (made / "actor" / "optim.pt").write_bytes(b"first")
    with pytest.raises(FencedError):
        first.publish(20, made)
    assert [path.name for path in (step_folder(checkpoints, 20) / "actor").iterdir()] == ["optim.pt"]
    assert (step_folder(checkpoints, 20) / "actor" / "optim.pt").read_bytes() == b"second"


def test_what_cannot_be_deleted_does_not_end_the_run(
    make_job: MakeJob,
    spool: Spool,
    checkpoints: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(folder: Path, *_: object) -> None:
        raise PermissionError(f"not yours: {folder.name}")

    run = keeping(make_job, spool, checkpoints, keep=1)
    monkeypatch.setattr("rljob_runtime.checkpoints.saved_steps.shutil.rmtree", fail)
    save_steps(run, checkpoints, 20)
    assert complete_steps(checkpoints) == [20]
    assert (
        f"old checkpoints in {checkpoints} are not deleted yet: not yours: .retired-global_step_10."
        in capfd.readouterr().err
    )
    monkeypatch.setattr("rljob_runtime.checkpoints.saved_steps.deletable_steps", fail)
    save_steps(run, checkpoints, 30)
    assert complete_steps(checkpoints) == [20, 30]
    assert f"old checkpoints in {checkpoints} were not deleted: not yours: checkpoints" in capfd.readouterr().err


@pytest.mark.parametrize("stopping", [True, False])
def test_a_deletion_that_hangs_holds_up_no_stop_and_is_the_only_one(
    make_job: MakeJob,
    spool: Spool,
    checkpoints: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    stopping: bool,
) -> None:
    begun: list[str] = []
    go = threading.Event()

    def hang(place: Path) -> None:
        begun.append(place.name)
        go.wait(60)

    monkeypatch.setattr("rljob_runtime.checkpoints.saved_steps.shutil.rmtree", hang)
    limits = (60, 0.05) if stopping else (0.05, 60)
    monkeypatch.setattr("rljob_runtime.training_attempt.DELETE_SECONDS", limits[0])
    monkeypatch.setattr("rljob_runtime.training_attempt.DELETE_SECONDS_OF_A_STOP", limits[1])
    run = keeping(make_job, spool, checkpoints, keep=1)
    if stopping:
        run.request_stop(StopMode.AFTER_STEP)
    before = time.monotonic()
    save_steps(run, checkpoints, 20, 30)
    assert time.monotonic() - before < 30
    go.set()
    assert (complete_steps(checkpoints), len(begun)) == ([20, 30], 1)
    assert len(list(checkpoints.glob(".retired-*"))) == 1
    assert "an earlier deletion is still running" in capfd.readouterr().err


def test_the_one_before_stays_beside_one_that_lost_a_part(make_job: MakeJob, spool: Spool, checkpoints: Path) -> None:
    run = keeping(make_job, spool, checkpoints, keep=1)
    save(run, 20, Pause("nowhere", checkpoints / "go"))
    (checkpoints / "global_step_20" / "actor" / "optim_world_size_2_rank_1.pt").write_bytes(b"")
    run.saved(20, 1.0)
    assert complete_steps(checkpoints) == [10, 20]
    run.clear(30)
    assert complete_steps(checkpoints) == [10, 20]
    save_steps(run, checkpoints, 30)
    assert complete_steps(checkpoints) == [30]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_deletion_that_breaks_off_leaves_the_next_one_its_turn(
    make_job: MakeJob, spool: Spool, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    run = keeping(make_job, spool, checkpoints, keep=1)
    with monkeypatch.context() as broken:
        broken.setattr("rljob_runtime.checkpoints.saved_steps.deletable_steps", fail)
        save_steps(run, checkpoints, 20)
    assert complete_steps(checkpoints) == [10, 20]
    save_steps(run, checkpoints, 30)
    assert complete_steps(checkpoints) == [30]


def test_nothing_goes_while_a_mark_cannot_be_read(
    make_job: MakeJob, spool: Spool, checkpoints: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = keeping(make_job, spool, checkpoints, keep=1)
    mark = checkpoints / "global_step_10" / "data.pt"
    mark.unlink()
    mark.symlink_to("/proc/self/mem")
    save_steps(run, checkpoints, 20)
    assert sorted(entry.name for entry in checkpoints.glob("global_step_*")) == ["global_step_10", "global_step_20"]
    assert f"old checkpoints in {checkpoints} were not deleted: " in capfd.readouterr().err


def test_a_new_owner_takes_the_place_in_which_the_one_before_would_have_set_a_step_aside(
    make_job: MakeJob, spool: Spool, checkpoints: Path
) -> None:
    place = checkpoints / ".retired-10.0"
    place.mkdir()
    keeping(make_job, spool, checkpoints, keep=1, attempt=2)
    assert not list(checkpoints.glob(".retired-*"))


def test_a_process_that_lost_the_folder_deletes_nothing_in_it(
    make_job: MakeJob, spool: Spool, checkpoints: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = keeping(make_job, spool, checkpoints, keep=1)
    save(run, 20, Pause("nowhere", checkpoints / "go"))
    claims.claim(checkpoints, claims.Owner.of(run.job, 2))
    place = checkpoints / ".retired-30.of-the-new-owner"
    place.mkdir()
    run.saved(20, 1.0)
    assert place.exists()
    assert f"old checkpoints in {checkpoints} were not deleted: " in capfd.readouterr().err
    with pytest.raises(FencedError):
        run.clear(20)
    assert complete_steps(checkpoints) == [10, 20]


def test_a_job_without_checkpoints_has_nothing_to_clear(make_job: MakeJob, spool: Spool) -> None:
    TrainingAttempt(make_job(), 1, spool).clear(1)


@pytest.mark.parametrize("lost", [False, True])
def test_a_step_records_its_parallelism_before_its_mark_and_of_the_owner_only(
    make_job: MakeJob, spool: Spool, checkpoints: Path, lost: bool
) -> None:
    run = keeping(make_job, spool, checkpoints, keep=None)
    run.split = {"tensor_model_parallel_size": 2}
    state = fenced_save.FencedState(
        types.SimpleNamespace(state_dict=lambda: "state"), run, checkpoints / "global_step_10"
    )
    if lost:
        claims.claim(checkpoints, claims.Owner.of(run.job, 2))
        with pytest.raises(FencedError):
            state.state_dict()
    else:
        assert state.state_dict() == "state"
    assert (checkpoints / "global_step_10" / SPLIT_FILE).exists() is not lost


def test_a_state_without_checkpoints_is_just_given(make_job: MakeJob, spool: Spool) -> None:
    run = TrainingAttempt(make_job(), 1, spool)
    assert fenced_save.FencedState(types.SimpleNamespace(state_dict=lambda: "state"), run, None).state_dict() == "state"


class Section(types.SimpleNamespace):
    """A section of verl's configuration."""

    def get(self, name: str) -> object:
        return getattr(self, name, None)


@pytest.mark.parametrize(
    ("said", "keep"),
    [({}, None), ({"max_actor_ckpt_to_keep": 3}, 3), ({"remove_previous_ckpt_in_save": True}, 1)],
)
def test_verl_is_left_no_limit_of_its_own(said: dict[str, object], keep: int | None) -> None:
    trainer = Section(**{"max_actor_ckpt_to_keep": None, "max_critic_ckpt_to_keep": 3} | said)
    assert fenced_save.take_limit(types.SimpleNamespace(trainer=trainer)) == keep
    assert not any(vars(trainer).values())


def test_the_median_counts_from_a_steps_begin_to_its_record(
    make_job: MakeJob, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 90.0, 100.0, 110.0, 120.0, 132.0, 132.0, 232.0])  # start and record of three steps, and of ten
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    run = TrainingAttempt(make_job(), 1, spool)
    medians = []
    for step in (5, 6, 7):
        run.step_began()
        run.record(step, {"timing_s/step": 1.0, ROLLOUT_SECONDS: 2.0 * step})
        medians.append(shown(spool).median_step_seconds)
    assert medians == [90.0, 50.0, 12.0]
    assert shown(spool).record_seconds is None
    assert shown(spool).median_rollout_seconds == 12.0
    assert (shown(spool).first_step, shown(spool).step) == (5, 7)
    recorded = shown(spool).step_time
    assert recorded is not None
    ended = spool.update_progress(phase=Phase.ENDED)
    assert (ended.step_time, ended.observed_time >= recorded) == (recorded, True), "the time of the step stays"
    run.step_began()
    run.record(17, {})
    assert (shown(spool).median_step_seconds, shown(spool).record_seconds) == (11.0, 51.0)


def test_with_prompts_in_flight_the_wait_for_responses_is_what_a_stop_would_save(
    make_job: MakeJob, spool: Spool
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    run = TrainingAttempt(make_job(mode=TrainerMode.COLOCATE_ASYNC), 1, spool)
    run.record(5, {"timing_s/gen": 3.0})
    assert shown(spool).median_rollout_seconds == 3.0


def steps_of(file: Path) -> list[int]:
    return [json.loads(line)["step"] for line in file.read_text().splitlines()]


def test_the_log_volume_has_every_step_in_order_when_the_run_ends(
    make_job: MakeJob, spool: Spool, tmp_path: Path
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    run = TrainingAttempt(make_job(log_path=str(tmp_path / "volume")), 1, spool)
    run.record_validation(0, {VALIDATION_SCORE: 0.5}, only=False)
    for step in range(1, 40):
        run.record(step, {"timing_s/step": 1.0})
    run.close()
    copy = tmp_path / "volume" / "sums-uid01-1" / "attempt-1" / "steps.jsonl"
    assert steps_of(copy) == list(range(40)) == steps_of(spool.attempt_folder(1) / "steps.jsonl")


@pytest.mark.parametrize("pending", [1, 256], ids=["records are dropped", "records wait at the end"])
def test_a_log_volume_that_hangs_costs_its_copy_and_no_step(
    make_job: MakeJob,
    spool: Spool,
    tmp_path: Path,
    pending: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("rljob_runtime.spool.mirror.PENDING_STEPS", pending)
    monkeypatch.setattr("rljob_runtime.spool.mirror.DRAIN_SECONDS", 0.1)
    folder = tmp_path / "volume" / "sums-uid01-1" / "attempt-1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "steps.jsonl")  # without a reader, it cannot be opened for writing either
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    run = TrainingAttempt(make_job(log_path=str(tmp_path / "volume")), 1, spool)
    for step in range(1, 6):
        run.record(step, {"timing_s/step": 1.0})
    run.close()
    assert (shown(spool).step, steps_of(spool.attempt_folder(1) / "steps.jsonl")) == (5, [1, 2, 3, 4, 5])
    assert capsys.readouterr().err.count("records are not copied to the log volume") == 1


@pytest.mark.parametrize(("only", "reward"), [(True, 0.625), (False, None)])
def test_a_validation_before_training_is_a_record_of_its_own(
    make_job: MakeJob, spool: Spool, only: bool, reward: float | None
) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    TrainingAttempt(make_job(), 1, spool).record_validation(0, {VALIDATION_SCORE: 0.625}, only=only)
    record = spool.last_step(1)
    assert record is not None
    assert (record.step, record.metrics) == (0, {VALIDATION_SCORE: 0.625})
    assert (shown(spool).step, shown(spool).reward) == (0, reward)


def test_the_validation_score_is_the_mean_of_all_answers_that_were_scored() -> None:
    assert validation_metrics([1.0, None, 0.0, 1.0, 0.5]) == {VALIDATION_SCORE: 0.625}
    assert validation_metrics([None]) == {}


def test_a_validation_score_that_is_no_number_does_not_end_the_evaluation(make_job: MakeJob, spool: Spool) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING))
    TrainingAttempt(make_job(), 1, spool).record_validation(0, {VALIDATION_SCORE: math.nan}, only=True)
    record = spool.last_step(1)
    assert record is not None
    assert math.isnan(record.metrics[VALIDATION_SCORE])
    assert shown(spool).reward is None


def test_figures_that_cannot_be_made_do_not_end_the_step(
    make_job: MakeJob, spool: Spool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert TrainingAttempt(make_job(), 1, spool).own_metrics({"timing_s/step": 9.0}, RolloutWindow(), Batch()) == {}
    assert "perf/total_num_tokens" in capsys.readouterr().err


def test_a_spool_that_fails_does_not_keep_a_stop_from_its_save(make_job: MakeJob, spool: Spool) -> None:
    (spool.root / SpoolFile.CURRENT).mkdir(parents=True)  # a folder, which cannot be read as a file
    run = TrainingAttempt(make_job(), 1, spool)
    run.request_stop(StopMode.AFTER_STEP)
    assert run.stop_mode() is run.stop_mode() is StopMode.AFTER_STEP


def test_a_run_whose_node_has_no_room_for_its_records_is_not_its_users_failure(make_job: MakeJob, spool: Spool) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    spool.attempt_folder(1).mkdir()
    (spool.attempt_folder(1) / SpoolFile.STEPS).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        TrainingAttempt(make_job(), 1, spool).record(4, {"timing_s/step": 1.0})
    assert caught.value.errno == errno.ENOSPC
    assert from_error(caught.value, disk=spool.root).reason == "DiskFull"
