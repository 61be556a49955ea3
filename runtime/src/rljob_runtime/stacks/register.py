"""Let this process tell its stacks: on SIGUSR1 `faulthandler` writes them into a file that the collector finds.

Called in every process of a run: by Ray as each worker begins (the launcher sets it as the hook of the job), by our
plug-ins in verl and vLLM for processes that others start, and by the launcher. The C-level handler needs no running
interpreter, so it answers from a process that hangs in a collective or in a system call. Never raises.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rljob_runtime.contract import JobConfig

VARIABLE = "RLJOB_STACKS"
"""Name of the run's folder below `root()`; without it nothing is registered."""
SIGNAL = signal.SIGUSR1
"""Free in verl 0.9.1, vLLM 0.23, TransferQueue 0.1.11 and Ray 2.60 (of which only Tune takes it)."""
SUFFIX = ".stack"

_open: dict[int, IO[bytes]] = {}
"""The file of this process; one that was forked has to open its own."""


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
        file = (folder / f"{pid}-{start_ticks(pid)}{SUFFIX}").open("ab", buffering=0)
        _open.clear()
        _open[pid] = file
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"rljob: this process will not tell its stacks: {error}", file=sys.stderr)  # noqa: T201


def start_ticks(pid: int) -> int:
    """Give when a process began, in the kernel's ticks: with its pid, that names it for good."""
    # The second field is the program's name in parentheses and may hold anything.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
