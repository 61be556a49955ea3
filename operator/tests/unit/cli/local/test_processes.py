"""Children end with the run: by SIGTERM, then by SIGKILL, including grandchildren and shared memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rljob.cli.local.processes import MARK, Processes, marked, wait_until

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
)
# A child that leaves its session and outlives its parent.
DAEMON = (
    sys.executable,
    "-c",
    "import os, time\nif os.fork() == 0:\n os.setsid(); print(os.getpid(), flush=True); time.sleep(60)",
)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_an_obedient_and_a_stubborn_child_both_end(tmp_path: Path) -> None:
    processes = Processes(dict(os.environ), shared_memory=tmp_path)
    children = [processes.start(command, {}, tmp_path / "log", tmp_path) for command in (SLEEP, STUBBORN)]
    assert wait_until(lambda: children[0].tail(2) == "up\nup", 10)
    processes.end_all(0.5)
    assert [child.exit_code for child in children] == [-signal.SIGTERM, -signal.SIGKILL]


def test_a_grandchild_that_left_its_session_is_found_by_its_mark(tmp_path: Path) -> None:
    processes = Processes(dict(os.environ), shared_memory=tmp_path)
    child = processes.start(DAEMON, {}, tmp_path / "log", tmp_path)
    assert wait_until(lambda: child.exit_code is not None and bool(child.tail(1)), 10)
    grandchild = int(child.tail(1))
    assert grandchild in marked(processes.mark)
    processes.end_all(1)
    assert wait_until(lambda: not alive(grandchild), 5)


def test_the_guard_cleans_up_after_a_run_that_is_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = f"""
import os, pathlib, time
from rljob.cli.local.guard import start_guard
from rljob.cli.local.processes import Processes
here = pathlib.Path({str(tmp_path)!r})
processes = Processes(dict(os.environ))
guard = start_guard(processes, here / "temporary")
child = processes.start({DAEMON!r}, {{}}, here / "log", here)
print(guard.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        guard = int(run.stdout.readline())
        log = tmp_path / "log"
        assert wait_until(lambda: log.exists() and bool(log.read_text()), 10)
        run.kill()
    grandchild = int(log.read_text())
    assert wait_until(lambda: not alive(grandchild) and not temporary.exists() and not alive(guard), 15)


def test_only_shared_memory_of_this_run_that_nobody_maps_is_removed(tmp_path: Path) -> None:
    (tmp_path / "psm_before").write_bytes(b"")
    processes = Processes({}, shared_memory=tmp_path)
    (tmp_path / "psm_ours").write_bytes(b"")
    (tmp_path / "else").write_bytes(b"")
    processes.end_all(0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else", "psm_before"]


def test_a_child_gets_the_mark_and_its_log_is_appended_to(tmp_path: Path) -> None:
    processes = Processes(dict(os.environ), shared_memory=tmp_path)
    command = (sys.executable, "-c", f"import os; print(os.environ['{MARK}'], os.environ['A'])")
    for value in ("1", "2"):
        child = processes.start(command, {"A": value}, tmp_path / "logs/log", tmp_path)
        assert wait_until(lambda child=child: child.exit_code == 0, 10)  # type: ignore[misc]
    assert child.tail(5) == f"{processes.mark} 1\n{processes.mark} 2"


def test_waiting_is_bounded() -> None:
    begun = time.monotonic()
    assert not wait_until(lambda: False, 0.2)
    assert time.monotonic() - begun < 5
