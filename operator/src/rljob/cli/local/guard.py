"""Clean up after a local run that was killed. The guard runs beside it and waits on a pipe that closes with the run.

Ray's workers outlive a killed Ray by minutes and hold gigabytes meanwhile. The guard kills the processes that carry the
run's mark, and removes its temporary folder and shared memory. A run that ends normally cleans up itself and dismisses
the guard.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from rljob.cli.local.processes import Processes

DONE = b"done"


def start_guard(processes: Processes, temporary: Path) -> subprocess.Popen[bytes]:
    """Start the guard of a run. It carries no mark and is in another process group."""
    command = (
        sys.executable,
        "-m",
        __name__,
        processes.mark,
        str(temporary),
        *map(str, processes.segments_before or ()),
    )
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Inform the guard that cleanup is done, and wait for its end."""
    guard.communicate(DONE)


def main() -> None:
    """Wait for the end of the run, and clean up unless the run did."""
    mark, temporary, *segments = sys.argv[1:]
    if sys.stdin.buffer.read() == DONE:
        return
    processes = Processes({}, mark=mark, segments_before=frozenset(map(Path, segments)))
    processes.end_all(0)
    shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    main()
