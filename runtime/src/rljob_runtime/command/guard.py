"""A process that leads the process group of a command, and kills it when the launcher is gone.

The launcher may be killed at any time, and the command must not train on without it. PR_SET_PDEATHSIG would reach only
the command itself, and could be set only between fork and exec, where a process with threads may deadlock. This process
reads its standard input until the launcher's end of the pipe is closed. As the leader, it keeps the group's number from
being given to other processes. Run as a script, so that it starts without importing the package.
"""

from __future__ import annotations

import os
import signal

READY = b"r"
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What the launcher or the command may send to the whole group."""


def main() -> None:
    """Wait for the end of the launcher, and then kill the group, which includes this process."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.write(1, READY)
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
