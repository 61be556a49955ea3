"""Records on the log volume outlive the pods. A broken volume never stops a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rljob_runtime.spool.mirror import DRAIN_SECONDS, TRUNCATED, Copy, Mirror
from rljob_runtime.spool.spool import Spool, StepRecord, read_line
from rljob_runtime.stacks.register import VARIABLE
from runtime.tests.conftest import FullDisk, MakeJob, full_volume

ROOT = Path(__file__).parents[3]
RECORD = StepRecord(step=1, time=2.0, metrics={"reward": 0.5})


def test_step_records_are_copied(make_job: MakeJob, tmp_path: Path) -> None:
    mirror = Mirror(make_job(log_path=str(tmp_path)), 3)
    mirror.append_step(RECORD)
    mirror.drain()
    line = (tmp_path / "sums-uid01-1" / "attempt-3" / "steps.jsonl").read_text()
    assert json.loads(line) == {"step": 1, "time": 2.0, "metrics": {"reward": 0.5}}


def test_the_drivers_log_is_copied_as_it_grows(make_job: MakeJob, tmp_path: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "volume" / "sums-uid01-1" / "attempt-1" / "driver.log"
    mirror = Mirror(make_job(log_path=str(tmp_path / "volume")), 1)
    log.write_text("one\n")
    mirror.copy(log)
    log.write_text("one\ntwo\n")
    mirror.copy(log)
    mirror.copy(log)
    assert copy.read_text() == "one\ntwo\n"


def test_what_a_full_volume_did_not_take_of_a_log_is_copied_once_it_has_room(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, copy = tmp_path / "log", tmp_path / "volume" / "sums-uid01-1" / "attempt-1" / "driver.log"
    text = "".join(f"line {number}\n" for number in range(500))
    log.write_text(text)
    mirror = Mirror(make_job(log_path=str(tmp_path / "volume")), 1)
    with full_volume(2000):
        mirror.copy(log)
        mirror.copy(log)
    assert copy.read_text() == text[:2000]
    assert "records are not copied to the log volume" in capsys.readouterr().err
    mirror.copy(log)
    assert copy.read_text() == text


def test_what_a_copy_held_before_stays_and_a_copy_that_is_deleted_is_created_again(tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "copy"
    copy = Copy(log, target)
    target.write_text("of another run, and longer than the log\n")
    for text in ("one\n", "one\ntwo\n"):
        log.write_text(text)
        copy.grow()
    assert target.read_text() == "of another run, and longer than the log\none\ntwo\n"
    target.unlink()
    copy.grow()
    assert target.read_text() == "one\ntwo\n"


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_step_that_a_full_volume_did_not_take_is_written_once_it_has_room(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rljob_runtime.spool.mirror.COPY_EVERY_SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", FullDisk())  # a message that cannot be written ends nothing
    steps = [StepRecord(step=step, time=2.0, metrics={"reward": 0.5}) for step in (1, 2, 3)]
    file = tmp_path / "sums-uid01-1" / "attempt-3" / "steps.jsonl"
    mirror = Mirror(make_job(log_path=str(tmp_path)), 3)
    mirror.append_step(steps[0])
    wait_until(lambda: file.exists() and file.read_bytes().endswith(b"\n"))
    size = file.stat().st_size + 20
    with full_volume(size):
        mirror.append_step(steps[1])
        mirror.append_step(steps[2])
        wait_until(lambda: file.stat().st_size == size)
    mirror.drain()
    assert [record for line in file.read_bytes().splitlines() if (record := read_line(line))] == steps


@pytest.fixture
def ray_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of Ray's logs. A worker of the run, which prints to one of them, is alive."""
    folder = tmp_path / "session" / "logs"
    folder.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    with (folder / f"worker-{'a' * 56}-02000000-77.err").open("w") as log:
        environment = {**os.environ, "TMPDIR": str(tmp_path / "t"), VARIABLE: "sums-uid01-1-attempt-1"}
        words = [sys.executable, "-m", "runtime.tests.hanging_process", "read"]
        (tmp_path / "t").mkdir()
        with subprocess.Popen(words, env=environment, cwd=ROOT, stderr=log, stdout=subprocess.PIPE) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"hangs\n"
            yield folder
            worker.kill()


def test_error_logs_of_the_runs_workers_are_copied_and_no_others(
    make_job: MakeJob, tmp_path: Path, ray_logs: Path
) -> None:
    ended = f"worker-{'b' * 56}-02000000-78.err"
    (ray_logs / ended).write_text("one\n")
    for other in (f"worker-{'c' * 56}-01000000-79.err", f"worker-{'a' * 56}-02000000-77.out", "agent.err"):
        (ray_logs / other).write_text("not of this job\n")
    mirror = Mirror(make_job(log_path=str(tmp_path / "volume")), 1)
    mirror.copy(None)
    (ray_logs / ended).write_text("one\ntwo\n")
    mirror.copy(None)
    copies = {file.name: file.read_text() for file in (tmp_path / "volume/sums-uid01-1/attempt-1/workers").iterdir()}
    assert copies == {f"worker-{'a' * 56}-02000000-77.err": "a line of the log\n", ended: "one\ntwo\n"}


def test_a_workers_log_is_copied_up_to_its_bound(tmp_path: Path) -> None:
    log, copy = tmp_path / "log", Copy(tmp_path / "log", tmp_path / "to" / "copy", limit=6)
    for text in ("1234", "123456", "123456789", "1234567890"):
        log.write_text(text)
        copy.grow()
    assert (tmp_path / "to" / "copy").read_bytes() == b"123456" + TRUNCATED


def test_after_a_failure_the_ends_of_rays_own_logs_are_kept(
    make_job: MakeJob, tmp_path: Path, ray_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rljob_runtime.spool.mirror.RAY_BYTES", 5)
    (ray_logs / "raylet.out").write_text("1234567890")
    driver, folder = ray_logs / "job-driver-x.log", tmp_path / "volume/sums-uid01-1/attempt-1"
    driver.write_text("the end\n")
    mirror = Mirror(make_job(log_path=str(tmp_path / "volume")), 1)
    mirror.finish(driver, failed=False)
    assert sorted(entry.name for entry in folder.iterdir()) == ["driver.log", "workers"]
    mirror.finish(driver, failed=True)
    assert (folder / "raylet.out").read_text() == "67890"
    assert sorted(entry.name for entry in folder.iterdir()) == ["driver.log", "raylet.out", "workers"]


def test_a_broken_volume_is_reported_once(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    mirror = Mirror(make_job(log_path=str(tmp_path / "file")), 1)
    mirror.append_step(RECORD)
    mirror.append_step(RECORD)
    begun = time.monotonic()
    mirror.drain()
    assert time.monotonic() - begun < DRAIN_SECONDS, "what does not answer is waited for, not what refuses"
    mirror.copy(tmp_path / "file")
    assert capsys.readouterr().err.count("records are not copied") == 1


def test_without_a_log_path_nothing_is_written(make_job: MakeJob, tmp_path: Path) -> None:
    mirror = Mirror(make_job(), 1)
    mirror.append_step(RECORD)
    mirror.drain()
    mirror.copy(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_samples_are_copied_and_the_head_pod_keeps_the_newest(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(log_path=str(tmp_path / "logs"))
    spool = Spool(tmp_path / "spool")
    mirror = Mirror(job, 1)
    for number in range(5):
        spool.write_samples(1, f"{number}.jsonl", b"{}\n", keep=2)
        mirror.write_samples(f"{number}.jsonl", b"{}\n")
        mirror.drain()
    assert mirror.folder is not None
    kept, copied = (
        sorted(each.name for each in (root / "samples").iterdir())
        for root in (tmp_path / "spool/attempt-1", mirror.folder)
    )
    assert kept == ["3.jsonl", "4.jsonl"]
    assert copied == [f"{number}.jsonl" for number in range(5)]
