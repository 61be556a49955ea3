"""Child processes of a local run, each in its own session, with bounded waits and reliable cleanup.

Ctrl-C in a terminal reaches only this process, which decides what is saved. Grandchildren carry a mark in their
environment and are killed by process ID; if this process is killed, `guard` does so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MARK = "RLJOB_LOCAL_RUN"
SEGMENTS = "psm_*"
"""Shared memory of Python's multiprocessing, such as weight buckets, which a killed process cannot remove."""
POLL_SECONDS = 0.1
SWEEP_SECONDS = 20.0
"""On a busy machine, a killed process takes a while to release its memory."""

SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - where POSIX shared memory is


@dataclass
class Processes:
    """The child processes of one run."""

    base: Mapping[str, str]
    """Environment of every child."""
    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    shared_memory: Path = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    segments_before: frozenset[Path] | None = None
    """Shared memory of other programs. Defaults to the segments that exist at the start."""

    def __post_init__(self) -> None:
        """Record which shared memory exists."""
        if self.segments_before is None:
            self.segments_before = frozenset(self.shared_memory.glob(SEGMENTS))

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path) -> Child:
        """Start a process whose output is appended to `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                list(command),
                env={**self.base, **environment, MARK: self.mark},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return Child(process, log)

    def end_all(self, seconds: float) -> None:
        """Terminate every process, the youngest first, then kill the rest and remove what they left."""
        for process in reversed(self._started):
            Child(process, Path(os.devnull)).end(seconds)
        self.sweep()
        self.remove_segments()

    def sweep(self) -> None:
        """Kill processes that carry the mark until none is left: grandchildren that left their session or lost Ray."""

        def none_left() -> bool:
            found = marked(self.mark)
            for number in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal.SIGKILL)
            return not found

        wait_until(none_left, SWEEP_SECONDS)

    def remove_segments(self) -> None:
        """Remove shared memory that is new since the start, belongs to this user and is mapped by no process."""
        left = [path for path in self.shared_memory.glob(SEGMENTS) if path not in (self.segments_before or ())]
        mapped = _mapped_files() if left else set()
        for path in left:
            with contextlib.suppress(OSError):
                if str(path) not in mapped and path.stat().st_uid == os.getuid():
                    path.unlink()


@dataclass(frozen=True)
class Child:
    """One process and its session."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self.process.poll()

    def end(self, seconds: float) -> None:
        """Terminate the first process, wait, then kill its session."""
        if self.process.poll() is not None:
            return  # the number may have been reused; what the process left carries the mark
        self.process.terminate()
        if not wait_until(lambda: self.process.poll() is not None, seconds):
            os.killpg(self.process.pid, signal.SIGKILL)
            wait_until(lambda: self.process.poll() is not None, seconds)

    def tail(self, lines: int) -> str:
        """Return the last lines of the log."""
        try:
            with self.log.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 64 * 1024))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition until a deadline; return whether it became true."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def marked(mark: str) -> list[int]:
    """Return the IDs of living processes that carry the mark; none if there is no /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def _mapped_files() -> set[str]:
    """Return the files that processes of this user have mapped."""
    found: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found |= {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if SHARED_MEMORY in line}
    return found
