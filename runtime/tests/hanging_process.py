"""A process that hangs, for test_stacks.py: `python -m runtime.tests.hanging_process HOW`. Prints `hangs` first."""

from __future__ import annotations

import ctypes
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


def hold_the_interpreter() -> None:
    """Wait in C without releasing the GIL, as a broken extension does."""
    end, _other = os.pipe()
    print("hangs", flush=True)
    ctypes.PyDLL(None).read(end, ctypes.create_string_buffer(1), 1)


def calculate_for_ever() -> None:
    """Compute in Python in one thread, with a changing number of frames, while another thread waits."""

    def sum_up(depth: int) -> int:
        return sum_up(depth - 1) + 1 if depth else 0

    def calculate() -> None:
        while True:
            # Beyond a few hundred frames, CPython maps memory for them and unmaps it again.
            sum_up(900)

    threading.Thread(target=calculate, daemon=True).start()
    wait_for_a_partner()


def fork_and_wait() -> None:
    """Fork a child that registers again."""
    if os.fork() == 0:
        register()
        wait_for_a_partner()
    threading.Event().wait()


if __name__ == "__main__":
    register()
    ways = {
        "wait": wait_for_a_partner,
        "read": read_from_nobody,
        "hold": hold_the_interpreter,
        "calculate": calculate_for_ever,
        "fork": fork_and_wait,
    }
    ways[sys.argv[1]]()
