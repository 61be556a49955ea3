"""Let this process tell its stacks, into a file that the collector finds: a thread of its own answers each question.

Called in every process of a run: by Ray as each worker begins (the launcher sets it as the hook of the job), by our
plug-ins in verl and vLLM for processes that others start, and by the launcher. The thread writes while it holds the
GIL: CPython gives the memory of frames back that a running thread has left, and `faulthandler` dies of SIGSEGV if it
walks them then. A process that is in a collective or in a system call has let go of the GIL; in one that has not, no
frame changes, and it is asked by SIGUSR1, whose C-level handler needs no interpreter. Never raises.
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
"""Name of the run's folder below `root()`; without it nothing is registered."""
SIGNAL = signal.SIGUSR1
"""Free in verl 0.9.1, vLLM 0.23, TransferQueue 0.1.11 and Ray 2.60 (of which only Tune takes it)."""
SUFFIX = ".stack"
QUESTIONS = ".questions"
"""Of the named pipe beside it: each byte asks once."""

_open: dict[int, tuple[IO[bytes], IO[bytes]]] = {}
"""Pipe and file of this process; one that was forked has to open its own."""


def root() -> Path:
    """Give the folder of all runs on this node: the same for every process, for they share their TMPDIR."""
    return Path(tempfile.gettempdir()) / "rljob-stacks"


def run_name(job: JobConfig, attempt: int) -> str:
    """Name an attempt's processes, the same on every node: the value of VARIABLE."""
    return f"{job.cluster_name}-attempt-{attempt}"


def register() -> None:
    """Register this process, once."""
    name, pid = os.environ.get(VARIABLE), os.getpid()
    if not name or pid in _open:
        return
    try:
        folder = root() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{pid}-{start_ticks(pid)}{SUFFIX}"
        os.mkfifo(path.with_suffix(QUESTIONS), mode=0o600)
        # Open for writing too: without a writer, reading would not wait.
        questions = path.with_suffix(QUESTIONS).open("r+b", buffering=0)
        file = path.open("ab", buffering=0)
        _open.clear()
        _open[pid] = questions, file
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
        threading.Thread(target=_answer, args=(questions, file), name="rljob-stacks", daemon=True).start()
    except (OSError, ValueError, RuntimeError) as error:
        print(f"rljob: this process will not tell its stacks: {error}", file=sys.stderr)  # noqa: T201


def _answer(questions: IO[bytes], file: IO[bytes]) -> None:
    while questions.read(1):
        faulthandler.dump_traceback(file, all_threads=True)


def start_ticks(pid: int) -> int:
    """Give when a process began, in the kernel's ticks: with its pid, that names it for good."""
    # The second field is the program's name in parentheses and may hold anything.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
