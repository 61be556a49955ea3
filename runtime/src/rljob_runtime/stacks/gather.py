"""Request the stacks of every process of the run on this node, and read the ends of their logs.

Runs in the launcher for the head and in a Ray task on each worker node. Each process is asked through its pipe. After
half of the time, a process that has not answered gets the signal (register.py has the reason), but only if it handles
it: by default the signal ends a process. A process that is stopped or blocked in the kernel does not answer; its state
is reported instead.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.stacks.register import QUESTIONS, SIGNAL, SUFFIX, root, start_ticks

MAX_PROCESSES = 256
STACK_BYTES = 64 * 1024
"""Limit per process. The hundred frames that faulthandler writes per thread have about 8 KiB."""
LOG_BYTES = 8 * 1024
"""Size of the end of each of a process's two logs."""
TITLE_CHARACTERS = 120
WORKER_LOG = re.compile(r"^worker-[0-9a-f]+-(?P<job>[0-9a-f]{8})-\d+\.(err|out)$")
"""Name of a worker's log in Ray: worker, job, pid (ray/_private/node.py, 2.60)."""
POLL_SECONDS = 0.05
QUIET_SECONDS = 0.5
"""A file that has grown and then not changed for this long is complete."""


@dataclass(frozen=True)
class Stack:
    """One process at the time of the request."""

    node: str
    pid: int
    title: str
    """Its command line, into which Ray puts the actor's class and method."""
    rank: int | None
    """RANK from its environment, for a worker of a process group."""
    state: str
    """State in the kernel: `S (sleeping)`, `D (disk sleep)`, `T (stopped)`."""
    text: str
    """Output of faulthandler; empty if the process did not answer."""
    logs: dict[str, str] = field(default_factory=dict)
    """Name of a log -> its end."""


@dataclass
class Asked:
    """A process that was asked for its stacks."""

    pid: int
    file: Path
    before: int
    size: int
    changed: float

    def rests(self, now: float) -> bool:
        """Check the file and return whether the answer is complete."""
        size = self.file.stat().st_size
        if size != self.size:
            self.size, self.changed = size, now
        return self.size > self.before and now - self.changed >= QUIET_SECONDS


def gather(name: str, node: str, seconds: float) -> list[Stack]:
    """Return the stacks of the run `name` on this node by pid, within `seconds`."""
    begun = time.monotonic()
    asked = list(_ask(sorted((root() / name).glob(f"*{SUFFIX}"))[:MAX_PROCESSES]))
    waiting = _answers(asked, begun + seconds / 2)
    for process in waiting:
        if process.size == process.before:
            _signal(process)
    _answers(waiting, begun + seconds)
    return sorted((_describe(process, node) for process in asked), key=lambda stack: stack.pid)


def error_logs(run: str) -> list[Path]:
    """Return the error logs of a run's Ray workers on this node, including workers that have already ended."""
    folders: set[tuple[Path, str]] = set()
    for file in (root() / run).glob(f"*{SUFFIX}"):
        try:
            path = Path(f"/proc/{file.name.partition('-')[0]}/fd/2").readlink()
        except OSError:
            continue
        if match := WORKER_LOG.match(path.name):
            folders.add((path.parent, match["job"]))
    return sorted(path for folder, job in folders for path in folder.glob(f"worker-*-{job}-*.err"))


def is_running(run: str) -> bool:
    """Return whether a process of the run `run` is alive on this node."""
    for file in (root() / run).glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError, ValueError):
            if _living(file) is not None:
                return True
    return False


def catches(pid: int) -> bool:
    """Return whether a process handles the signal."""
    mask = int(_status(pid).get("SigCgt", "0"), 16)
    return bool(mask & 1 << (SIGNAL - 1))


def ask(file: Path) -> None:
    """Ask the process of this file through its pipe. Raises OSError if no process reads it."""
    pipe = os.open(file.with_suffix(QUESTIONS), os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(pipe, b"?")
    finally:
        os.close(pipe)


def _ask(files: Iterable[Path]) -> Iterable[Asked]:
    for file in files:
        try:
            pid = _living(file)
            if pid is None:
                continue
            size = file.stat().st_size
            with contextlib.suppress(OSError):
                ask(file)
        except (OSError, ValueError):
            continue  # the process has ended or belongs to another user
        yield Asked(pid, file, size, size, time.monotonic())


def _signal(process: Asked) -> None:
    with contextlib.suppress(OSError):
        if _living(process.file) is not None:
            os.kill(process.pid, SIGNAL)


def _living(file: Path) -> int | None:
    """Return the pid of the process that created this file, if it is alive and handles the signal."""
    pid, ticks = (int(word) for word in file.name.removesuffix(SUFFIX).split("-"))
    return pid if start_ticks(pid) == ticks and catches(pid) else None


def _answers(waiting: list[Asked], deadline: float) -> list[Asked]:
    """Wait until each process has answered; return those that have not by the deadline."""
    while waiting and (now := time.monotonic()) < deadline:
        waiting = [process for process in waiting if not process.rests(now)]
        time.sleep(POLL_SECONDS)
    return waiting


def _describe(process: Asked, node: str) -> Stack:
    pid = process.pid
    with process.file.open("rb") as file:
        file.seek(process.before)
        text = file.read(STACK_BYTES).decode(errors="replace")
    title = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:TITLE_CHARACTERS]
    return Stack(node, pid, title, _rank(pid), _status(pid).get("State", "gone"), text, _logs(pid))


def _rank(pid: int) -> int | None:
    variables = dict(entry.partition("=")[::2] for entry in _read(f"/proc/{pid}/environ").split("\0"))
    rank = variables.get("RANK", "")
    return int(rank) if rank.isdigit() else None


def _logs(pid: int) -> dict[str, str]:
    """Read the ends of the files that the process prints to. Ray gives each worker two files of its own."""
    found = {}
    for number in (1, 2):
        try:
            path = Path(f"/proc/{pid}/fd/{number}").readlink()
            if path.is_file():
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - LOG_BYTES))
                    found[path.name] = file.read(LOG_BYTES).decode(errors="replace")
        except OSError:
            continue
    return found


def _status(pid: int) -> dict[str, str]:
    lines = (line.partition(":") for line in _read(f"/proc/{pid}/status").splitlines())
    return {key: value.strip() for key, _, value in lines}


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""
