"""The spool: no reader sees a partial file, and a stop can only become more urgent."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rljob_runtime.contract import ContractError, Phase, Progress, SpoolFile, StopMode, StopRequest
from rljob_runtime.files import run_with_timeout, write_atomically
from rljob_runtime.spool.spool import Spool, StepRecord, read_line
from runtime.tests.conftest import full_volume


def test_before_the_first_attempt_there_is_no_progress(spool: Spool) -> None:
    assert spool.progress() is None
    assert spool.last_step(1) is None
    assert spool.stop_request(1) is None


def test_progress_is_changed_field_by_field(spool: Spool) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=2, total_steps=9))
    spool.update_progress(phase=Phase.TRAINING, step=3)
    progress = spool.progress()
    assert progress is not None
    assert (progress.attempt, progress.total_steps, progress.step, progress.phase) == (2, 9, 3, Phase.TRAINING)
    assert progress.observed_time > 0


def test_progress_is_not_updated_before_the_launcher_has_written_it(spool: Spool) -> None:
    with pytest.raises(ContractError, match="the launcher must write it first"):
        spool.update_progress(step=1)


def test_a_reader_never_sees_a_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "value"
    contents = [bytes([65 + n]) * 200_000 for n in range(2)]
    write_atomically(path, contents[0])
    done = threading.Event()

    def write() -> None:
        for n in range(100):
            write_atomically(path, contents[n % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not done.is_set() or not reads:
        assert path.read_bytes() in contents
        reads += 1
    writer.join()
    assert os.listdir(tmp_path) == ["value"]  # noqa: PTH208 - names only


def test_a_failed_write_leaves_the_old_content_and_no_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "value"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new", durable=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["value"]  # noqa: PTH208


def test_a_volume_that_hangs_is_waited_for_within_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    answered = threading.Event()
    assert run_with_timeout(30.0, answered.set, "lost")
    answered.clear()

    def hang() -> None:
        answered.wait(30.0)

    assert not run_with_timeout(0.05, hang, "it is lost")
    answered.set()
    assert capsys.readouterr().err == "rljob: it is lost: no answer within 0.05 s\n"


def test_the_last_complete_line_counts(spool: Spool) -> None:
    for step in (1, 2):
        spool.append_step(1, StepRecord(step=step, time=10.0 + step, metrics={"reward": step / 4}))
    with (spool.attempt_folder(1) / SpoolFile.STEPS).open("ab") as file:
        file.write(b'{"step": 3, "time": 13.0, "metr')
    assert spool.last_step(1) == StepRecord(step=2, time=12.0, metrics={"reward": 0.5})


def test_a_full_disk_is_reported_with_the_file_and_costs_no_later_line(spool: Spool) -> None:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    steps = [StepRecord(step=step, time=10.0, metrics={"reward": step / 4}) for step in (1, 2, 3)]
    file = spool.attempt_folder(1) / SpoolFile.STEPS
    spool.append_step(1, steps[0])
    with full_volume(file.stat().st_size + 20):
        with pytest.raises(OSError, match="File too large") as line:
            spool.append_step(1, steps[1])
        with pytest.raises(OSError, match="File too large") as whole:
            spool.update_progress(step=2)
    assert line.value.filename == str(file)
    assert whole.value.filename == str(spool.root / SpoolFile.CURRENT)
    spool.append_step(1, steps[2])
    lines = file.read_bytes().splitlines()
    assert ([read_line(line) for line in lines], len(lines[1])) == ([steps[0], None, steps[2]], 20)


def test_numbers_that_json_lacks_survive(spool: Spool) -> None:
    spool.append_step(1, StepRecord(step=1, time=1.0, metrics={"loss": float("nan"), "max": float("inf")}))
    record = spool.last_step(1)
    assert record is not None
    metrics = record.metrics
    assert metrics["loss"] != metrics["loss"]
    assert metrics["max"] == float("inf")


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        (StopMode.AFTER_STEP, StopMode.ABORT_ROLLOUT, StopMode.ABORT_ROLLOUT),
        (StopMode.ABORT_ROLLOUT, StopMode.AFTER_STEP, StopMode.ABORT_ROLLOUT),
        (StopMode.AFTER_STEP, StopMode.IMMEDIATE, StopMode.IMMEDIATE),
        (StopMode.IMMEDIATE, StopMode.ABORT_ROLLOUT, StopMode.IMMEDIATE),
        (StopMode.AFTER_STEP, StopMode.STALLED, StopMode.STALLED),
        (StopMode.IMMEDIATE, StopMode.STALLED, StopMode.IMMEDIATE),
        (StopMode.STALLED, StopMode.IMMEDIATE, StopMode.STALLED),
    ],
)
def test_a_stop_is_hastened_but_never_slowed_down(
    spool: Spool, first: StopMode, second: StopMode, result: StopMode
) -> None:
    spool.request_stop(StopRequest(attempt=1, mode=first))
    spool.request_stop(StopRequest(attempt=1, mode=second))
    assert spool.stop_request(1) == StopRequest(attempt=1, mode=result)


def test_an_unreadable_stop_request_still_stops(spool: Spool) -> None:
    write_atomically(spool.attempt_folder(1) / SpoolFile.STOP, b"please")
    assert spool.stop_request(1) == StopRequest(attempt=1, mode=StopMode.AFTER_STEP)


def test_a_stop_is_for_one_attempt(spool: Spool) -> None:
    spool.request_stop(StopRequest(attempt=1, mode=StopMode.AFTER_STEP))
    assert Spool(spool.root).stop_request(2) is None


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_folder_of_an_attempt_is_writable_for_launcher_and_exporter(spool: Spool, umask: int) -> None:
    # Their images have different users; the folder's mode must not follow the umask of the first.
    before = os.umask(umask)
    try:
        spool.request_stop(StopRequest(attempt=1, mode=StopMode.AFTER_STEP))
    finally:
        os.umask(before)
    assert spool.attempt_folder(1).stat().st_mode & 0o777 == 0o777
