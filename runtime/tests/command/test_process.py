"""A command runs as a real child process: its output, its stop and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rljob_runtime.command import process
from rljob_runtime.command.lines import LINE_BYTES
from rljob_runtime.command.process import Child, CommandFailedError
from rljob_runtime.contract import CommandStop, ExitCode
from rljob_runtime.outcomes import RefusedError
from runtime.tests.command import launching_process

Start = Callable[..., Child]
SECRET = "s3cr3t-word"


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[Child] = []

    def begin(*args: str, folder: str | None = None, reads: bool = True) -> Child:
        children.append(Child(args, folder, os.environ, reads=reads))
        return children[-1]

    yield begin
    for child in children:
        list(child.close())


def finish(child: Child, seconds: float = 30.0) -> tuple[int, list[str]]:
    """Take the lines until the command has ended; return its exit status and the lines."""
    lines: list[str] = []
    ends = time.monotonic() + seconds
    while (status := child.poll()) is None:
        assert time.monotonic() < ends, "the command has not ended"
        lines += child.lines(0.05)
    return status, [*lines, *child.close()]


def wait_for_line(child: Child, wanted: str) -> None:
    ends = time.monotonic() + 30
    while wanted not in list(child.lines(0.1)):
        assert time.monotonic() < ends, f"no line {wanted!r}"


def lives(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(*pids: int) -> None:
    ends = time.monotonic() + 30
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < ends, "processes are left"
        time.sleep(0.05)


def test_output_is_forwarded_and_read_in_order(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    status, lines = finish(start("bash", "-c", "echo one; echo two >&2; printf 'half'; exit 3"))
    assert (status, lines) == (3, ["one", "two", "half"])
    assert capfd.readouterr().out == "one\ntwo\nhalf"


def test_a_flood_of_output_is_forwarded_whole(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    script = "import sys; sys.stdout.write('x' * 3_000_000 + chr(10)); [print(n) for n in range(50_000)]"
    status, lines = finish(start(sys.executable, "-c", script))
    assert (status, len(lines[0]), len(lines)) == (0, LINE_BYTES, 50_001)
    assert len(capfd.readouterr().out) == 3_000_001 + sum(len(f"{number}\n") for number in range(50_000))


def test_lines_that_nobody_reads_are_forwarded_only(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    child = start("seq", "5000", reads=False)
    assert finish(child) == (0, [])
    assert capfd.readouterr().out.count("\n") == 5000


def test_the_command_waits_while_its_lines_are_not_taken(start: Start) -> None:
    child = start("yes")
    time.sleep(0.5)
    assert child._pending.qsize() == process.PENDING_LINES
    child.kill()
    assert finish(child)[0] == -signal.SIGKILL


def test_it_runs_in_its_folder_with_its_variables_and_without_input(tmp_path: Path) -> None:
    child = Child(["bash", "-c", "pwd; echo $A; cat"], str(tmp_path), {**os.environ, "A": "b"}, reads=True)
    assert finish(child) == (0, [str(tmp_path), "b"])


@pytest.mark.parametrize(
    ("args", "folder", "told"),
    [
        (("/absent/program", SECRET), None, r"launcher.command.args\[0\]: the command cannot be started: No such file"),
        (("/etc/passwd", SECRET), None, "cannot be started: Permission denied"),
        (("true", f"{SECRET}\0"), None, "cannot be started: embedded null byte"),
        (("true", SECRET), "/absent", "launcher.command.workingDir: '/absent' is not a folder of the head pod"),
    ],
)
def test_a_command_that_cannot_start_is_refused_without_its_arguments(
    start: Start, args: tuple[str, ...], folder: str | None, told: str
) -> None:
    with pytest.raises(RefusedError, match=told) as refused:
        start(*args, folder=folder)
    assert refused.value.code is ExitCode.BAD_CONFIG
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("absent-program", "exit status 127: a command was not found"),
        ("/etc/passwd", "exit status 126: a command is not executable"),
    ],
)
def test_a_shell_that_cannot_run_a_command_is_refused(start: Start, script: str, told: str) -> None:
    child = start("bash", "-c", script)
    status, _ = finish(child)
    with pytest.raises(RefusedError, match=told):
        child.require_started(status)
    child.require_started(1)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 3", "the command failed: exit status 3"),
        ("echo 'no file /code/a.py'; echo; exit 2", "the command failed: exit status 2; no file /code/a.py"),
        ("echo '(W pid=7) a.b.OddError: x'; echo other; exit 1", "the command failed: exit status 1; a.b.OddError: x"),
        ("kill -SEGV $$", "the command failed: ended by SIGSEGV"),
        ("kill -40 $$", "the command failed: ended by signal 40"),
        ("kill -KILL $$", "killed by SIGKILL, which the launcher did not send; the usual cause is that memory ran out"),
    ],
)
def test_a_failure_is_described_with_its_cause(start: Start, script: str, told: str) -> None:
    child = start("bash", "-c", script)
    status, _ = finish(child)
    assert str(child.failure(status)).endswith(told)


def test_a_signal_lets_the_command_save(start: Start) -> None:
    child = start("bash", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for_line(child, "ready")
    child.stop(CommandStop.SIGNAL, None, 60.0)
    status, lines = finish(child)
    assert (status, lines[-1]) == (0, "saved")


def test_a_file_lets_the_command_save(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "new" / "stop"
    child = start("bash", "-c", f"echo ready; until [ -e {file} ]; do sleep 0.05; done; echo saved")
    wait_for_line(child, "ready")
    child.stop(CommandStop.FILE, file, 60.0)
    assert finish(child) == (0, ["saved"])


@pytest.mark.parametrize(
    ("how", "file", "seconds"),
    [
        (CommandStop.SIGNAL, None, 0.3),
        (CommandStop.FILE, Path("/proc/absent/stop"), 600.0),
        (CommandStop.NONE, None, 600.0),
    ],
)
def test_a_command_that_does_not_stop_is_killed_with_its_children(
    start: Start, how: CommandStop, file: Path | None, seconds: float
) -> None:
    child = start("bash", "-c", launching_process.SCRIPT)
    line = ""
    while not line.startswith("children"):
        line = next(child.lines(30.0))
    child.stop(how, file, seconds)
    child.stop(CommandStop.SIGNAL, None, 600.0)  # does not extend the limit
    status, _ = finish(child)
    assert status == -signal.SIGKILL
    assert str(child.failure(status)) == "the command failed: ended by SIGKILL"
    wait_until_gone(*(int(pid) for pid in line.split()[1:]))


def test_what_a_command_leaves_behind_is_killed(start: Start) -> None:
    status, lines = finish(start("bash", "-c", "sleep 300 & echo $!"))
    assert status == 0
    wait_until_gone(int(lines[0]))


def test_a_process_outside_the_group_does_not_hold_up_the_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "DRAIN_SECONDS", 0.5)
    before = time.monotonic()
    _, lines = finish(start("bash", "-c", "setsid sleep 20 & echo $!"))
    assert time.monotonic() - before < 15
    os.kill(int(lines[0]), signal.SIGKILL)


def test_a_killed_process_that_does_not_end_is_an_error(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "KILL_SECONDS", -1.0)
    child = start("sleep", "300")
    monkeypatch.setattr(child, "_signal", lambda _: None)
    child.stop(CommandStop.NONE, None, 0.0)
    with pytest.raises(CommandFailedError, match="has not ended within"):
        child.poll()


def test_nothing_of_a_command_outlives_the_launcher() -> None:
    words = [sys.executable, "-m", "runtime.tests.command.launching_process"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        line = next(line for line in launcher.stdout if line.startswith("seen children"))
        pids = [int(pid) for pid in line.split()[2:]]
        assert all(lives(pid) for pid in pids)
        launcher.kill()
        launcher.stdout.close()
    wait_until_gone(*pids)


def test_a_full_disk_does_not_stop_the_command(start: Start) -> None:
    saved, full = os.dup(1), os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, 1)
        status, lines = finish(start("seq", "3"))
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(full)
    assert (status, lines) == (0, ["1", "2", "3"])
