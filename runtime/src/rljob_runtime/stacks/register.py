"""Let this process write its stacks into a file that `gather` finds. A dedicated thread answers each request.

Called in every process of a run: by Ray when a worker starts (the launcher sets the hook for the job), by our plug-ins
in verl and vLLM for processes that others start, and by the launcher. The thread writes while it holds the GIL: CPython
frees the memory of frames that a running thread has left, and `faulthandler` crashes with SIGSEGV if it walks them at
that moment. A process in a collective or a system call has released the GIL. In a process that does not release it, no
frame changes, so it is safe to use SIGUSR1, whose C-level handler does not need the interpreter. Never raises.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rljob_runtime.contract import JobConfig

VARIABLE = "RLJOB_STACKS"
"""Name of the run's folder below `root()`. If it is not set, nothing is registered."""
SIGNAL = signal.SIGUSR1
"""Unused in verl 0.9.1, vLLM 0.23, TransferQueue 0.1.11 and Ray 2.60 (only Tune uses it)."""
SUFFIX = ".stack"
QUESTIONS = ".questions"
"""Suffix of the named pipe beside the file. Each byte is one request."""

_open: dict[int, tuple[IO[bytes], IO[bytes]]] = {}
"""Pipe and file by pid. A forked process must open its own."""


def root() -> Path:
    """Return the folder of all runs on this node. All processes share it because they share TMPDIR."""
    return Path(tempfile.gettempdir()) / "rljob-stacks"


def run_name(job: JobConfig, attempt: int) -> str:
    """Return the name of an attempt's processes, the same on every node: the value of VARIABLE."""
    return f"{job.cluster_name}-attempt-{attempt}"


def register() -> None:
    """Register this process. Further calls have no effect."""
    name, pid = os.environ.get(VARIABLE), os.getpid()
    if not name or pid in _open:
        return
    try:
        folder = root() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{pid}-{start_ticks(pid)}{SUFFIX}"
        os.mkfifo(path.with_suffix(QUESTIONS), mode=0o600)
        # Open for writing too: reading from a pipe without a writer would return at once.
        questions = path.with_suffix(QUESTIONS).open("r+b", buffering=0)
        file = path.open("ab", buffering=0)
        _open.clear()
        _open[pid] = questions, file
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
        threading.Thread(target=_answer, args=(questions, file), name="rljob-stacks", daemon=True).start()
    except (OSError, ValueError, RuntimeError) as error:
        print(f"rljob: this process cannot return its stacks: {error}", file=sys.stderr)  # noqa: T201


def _answer(questions: IO[bytes], file: IO[bytes]) -> None:
    while questions.read(1):
        faulthandler.dump_traceback(file, all_threads=True)


def start_ticks(pid: int) -> int:
    """Return a process's start time in the kernel's ticks. Together with the pid it identifies the process."""
    # The second field is the program's name in parentheses, which may contain any character.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
