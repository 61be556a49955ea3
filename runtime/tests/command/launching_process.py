"""Starts a command as the launcher does, reports its processes, and waits to be killed.

The command has a background process, and neither ends by SIGTERM.
"""

from __future__ import annotations

import os
import time

from rljob_runtime.command.process import Child

SCRIPT = "trap '' TERM; (trap '' TERM; sleep 300) & echo children $! $$; wait"


def main() -> None:
    child = Child(["bash", "-c", SCRIPT], None, os.environ, reads=True)
    while child.poll() is None:
        for line in child.lines(0.1):
            print(f"seen {line}", flush=True)
    time.sleep(300)


if __name__ == "__main__":
    main()
