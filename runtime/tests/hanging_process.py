"""A process that hangs, for test_stacks.py: `python -m runtime.tests.hanging_process HOW`; says `hangs` then."""

from __future__ import annotations

import os
import sys
import threading

from rljob_runtime.stacks.register import register


def wait_for_a_partner() -> None:
    """Wait in Python, as a driver does."""
    print("hangs", flush=True)
    threading.Event().wait()


def read_from_nobody() -> None:
    """Wait in the kernel, as a collective does, while another thread looks busy."""
    print("a line of the log", file=sys.stderr, flush=True)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    end, _other = os.pipe()
    print("hangs", flush=True)
    os.read(end, 1)


def fork_and_wait() -> None:
    """Fork a child that registers anew."""
    if os.fork() == 0:
        register()
        wait_for_a_partner()
    threading.Event().wait()


if __name__ == "__main__":
    register()
    {"wait": wait_for_a_partner, "read": read_from_nobody, "fork": fork_and_wait}[sys.argv[1]]()
