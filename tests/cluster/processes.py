"""Long-running processes: started detached, found again by a pid file, and ended only by pid.

A pid alone is not an identity, because the kernel reuses numbers. A pid file therefore also contains the start time
that the kernel recorded, and a signal is sent only if both match. It contains a hash of what was started too, so that
`up` can distinguish a component that must be replaced from one that runs as it should.
"""

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError

POLL_SECONDS = 0.1
SHOWN_LOG_LINES = 30
# The kubelet repeats this every ten seconds if it does not know the disk; it is harmless.
NOISE = "cannot find filesystem info for device"
# Field 22 of /proc/<pid>/stat, counted from the state that follows the command name.
START_TIME_FIELD = 19


@dataclass(frozen=True)
class Process:
    """A process that was started, with its identity."""

    pid: int
    start_ticks: int
    fingerprint: str = ""

    def alive(self) -> bool:
        """Return whether this process still runs (a zombie does not)."""
        return start_ticks(self.pid) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process is still the one that was started."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def start_ticks(pid: int) -> int | None:
    """Return when the kernel started that process, in clock ticks since boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may contain spaces and brackets; the last bracket ends it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[START_TIME_FIELD])


def read_pid_file(path: Path) -> Process | None:
    """Return the process of a pid file; None if there is no readable file."""
    try:
        return Process(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_pid_file(path: Path, process: Process) -> None:
    """Write a pid file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(process)))
    fresh.replace(path)


def running(path: Path) -> Process | None:
    """Return the process of a pid file, if it still runs."""
    process = read_pid_file(path)
    return process if process and process.alive() else None


def fingerprint(command: Sequence[str], files: Iterable[Path]) -> str:
    """Return a hash of a command and the content of its files."""
    digest = hashlib.sha256("\0".join(command).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def start(
    command: Sequence[str], *, pid_file: Path, log: Path, environment: Mapping[str, str], files: Iterable[Path] = ()
) -> Process:
    """Start a process in its own session, so that neither a terminal nor the end of the caller affects it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    ticks = start_ticks(child.pid)
    if ticks is None:
        raise ClusterError(f"{command[0]} exited immediately:\n{tail(log)}")
    process = Process(child.pid, ticks, fingerprint(command, files))
    write_pid_file(pid_file, process)
    # The child outlives this command on purpose; without this, Popen would warn about it.
    child.returncode = 0
    return process


def end(processes: Iterable[Process], *, grace_seconds: float) -> None:
    """End processes: SIGTERM first, and SIGKILL for those that are left after the grace period."""
    left = [process for process in processes if process.alive()]
    for process in left:
        process.send(signal.SIGTERM)
    left = _wait_gone(left, grace_seconds)
    for process in left:
        process.send(signal.SIGKILL)
    left = _wait_gone(left, 10)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise ClusterError(f"these processes survive SIGKILL (see /proc/<pid>/stack): {pids}")


def _wait_gone(processes: list[Process], seconds: float) -> list[Process]:
    deadline = time.monotonic() + seconds
    left = processes
    while left and time.monotonic() < deadline:
        reap()
        left = [process for process in left if process.alive()]
        if left:
            time.sleep(POLL_SECONDS)
    return left


def reap() -> None:
    """Collect ended children of this command, so that they do not remain as zombies."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def wait_until(
    check: Callable[[], bool], *, what: str, seconds: float, log: Path, process: Process | None = None
) -> None:
    """Wait until check holds. If a process is given, its end ends the wait too.

    Raises:
        ClusterError: with the tail of the log, at the deadline or when the process has ended.
    """
    deadline = time.monotonic() + seconds
    while not check():
        reap()
        ended = process is not None and not process.alive()
        if ended or time.monotonic() > deadline:
            seen = "its process ended" if ended else f"not within {seconds:.0f} s"
            raise ClusterError(f"{what}: {seen}; the end of {log}:\n{tail(log)}")
        time.sleep(POLL_SECONDS)


def tail(log: Path, lines: int = SHOWN_LOG_LINES) -> str:
    """Return the last lines of a log."""
    try:
        content = log.read_text(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    shown = [line for line in content.splitlines() if NOISE not in line]
    return "\n".join(shown[-lines:])
