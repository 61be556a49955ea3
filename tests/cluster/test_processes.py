"""A signal reaches only the process that was started, never one that reuses its number."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import processes
from tests.cluster.errors import ClusterError
from tests.cluster.processes import Process, read_pid_file, start_ticks, write_pid_file

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def started(folder: Path) -> Process:
    return processes.start(
        SLEEPER, pid_file=folder / "sleeper.pid", log=folder / "sleeper.log", environment=dict(os.environ)
    )


def test_a_started_process_is_found_by_its_pid_file(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert processes.running(tmp_path / "sleeper.pid") == process
    processes.end([process], grace_seconds=5)
    assert processes.running(tmp_path / "sleeper.pid") is None


def test_a_recycled_pid_is_neither_alive_nor_signalled() -> None:
    child = subprocess.Popen(SLEEPER)
    ticks = start_ticks(child.pid)
    assert ticks is not None
    earlier = Process(child.pid, ticks - 1)

    assert not earlier.alive()
    processes.end([earlier], grace_seconds=0)

    assert child.poll() is None
    child.kill()
    child.wait()


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    log = tmp_path / "log"
    process = processes.start(
        [sys.executable, "-c", stubborn], pid_file=tmp_path / "pid", log=log, environment=dict(os.environ)
    )
    processes.wait_until(lambda: "up" in log.read_text(), what="stubborn", seconds=10, log=log)
    processes.end([process], grace_seconds=0.3)
    assert not process.alive()


@pytest.mark.parametrize("content", ["", "123", "{", '{"pid": 1}', '{"other": 1}'])
def test_a_damaged_pid_file_names_no_process(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.pid"
    path.write_text(content)
    assert read_pid_file(path) is None


def test_a_pid_file_gives_back_what_was_written(tmp_path: Path) -> None:
    process = Process(12, 345, "abc")
    write_pid_file(tmp_path / "x.pid", process)
    assert read_pid_file(tmp_path / "x.pid") == process


def test_the_fingerprint_follows_the_command_and_its_files(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text("a")
    before = processes.fingerprint(["x"], [path])
    assert processes.fingerprint(["x"], [path]) == before
    assert processes.fingerprint(["y"], [path]) != before
    path.write_text("b")
    assert processes.fingerprint(["x"], [path]) != before


def test_a_wait_fails_with_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\nno space left on device\n")
    with pytest.raises(ClusterError, match="no space left on device"):
        processes.wait_until(lambda: False, what="etcd", seconds=0.2, log=log)


def test_a_wait_ends_with_the_process_it_waits_for(tmp_path: Path) -> None:
    gone = Process(2**22 + 1, 1)
    with pytest.raises(ClusterError, match="its process ended"):
        processes.wait_until(lambda: False, what="etcd", seconds=60, log=tmp_path / "log", process=gone)
