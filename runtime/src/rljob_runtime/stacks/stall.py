"""Handle a stall that the operator has detected: save the stacks of every process, then end the run.

The launcher gathers the head's stacks itself and those of worker nodes by Ray tasks, in parallel, because a hanging Ray
must not prevent the former. They are written to the spool and the log volume, one file per process with the ends of its
logs. A summary becomes the message of the outcome. Everything together takes at most STALL_SECONDS.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from rljob_runtime import ray_cluster
from rljob_runtime.contract import STALL_SECONDS, ExitCode, Outcome
from rljob_runtime.files import run_with_timeout
from rljob_runtime.outcomes import bounded
from rljob_runtime.stacks.frames import summarize
from rljob_runtime.stacks.gather import Stack, gather

FOLDER = "stacks"
HERE_SECONDS = 5.0
ELSEWHERE_SECONDS = 0.5 * STALL_SECONDS
"""A Ray task on an idle node may first have to start a Python process."""
WRITE_SECONDS = 0.15 * STALL_SECONDS
"""For the spool, and again for the log volume."""
RULES_SECONDS = 0.2 * STALL_SECONDS
"""For evaluating the restart rules on the log."""
TOTAL_BYTES = 64 << 20
"""Total size of the files; twice the usual size for 1,024 processes."""


def outcome_of(name: str, step: int, since: float, targets: Sequence[Path]) -> Outcome:
    """Save the stacks of the run `name` below each of `targets`, and return the outcome.

    `step` is the last complete step, `since` the Unix time since which no step has completed.
    """
    try:
        stacks = gather_everywhere(name)
    except Exception:  # noqa: BLE001 - the run must end in any case
        traceback.print_exc()
        stacks = []
    line = summarize(stacks)
    kept = [
        str(target / FOLDER)
        for target in targets
        if run_with_timeout(WRITE_SECONDS, functools.partial(write, target, line, stacks), "cannot save the stacks")
    ]
    counted = f"{_count(len(stacks), 'process', 'es')} on {_count(len({stack.node for stack in stacks}), 'node', 's')}"
    where = f"; stacks of {counted} are in {kept[-1]}" if kept and stacks else ""
    message = f"no step for {time.time() - since:.0f} s after step {step}: {line}{where}"
    return Outcome(int(ExitCode.STALLED), "Stalled", bounded(message), last_step=step)


def gather_everywhere(name: str) -> list[Stack]:
    """Return the stacks of all nodes that answer in time."""
    elsewhere: list[Stack] = []
    asking = threading.Thread(target=lambda: elsewhere.extend(_gather_elsewhere(name)), daemon=True)
    deadline = time.monotonic() + ELSEWHERE_SECONDS
    asking.start()
    here = gather(name, "the head", HERE_SECONDS)
    asking.join(max(0.0, deadline - time.monotonic()))
    return here + list(elsewhere)


def write(target: Path, line: str, stacks: Sequence[Stack]) -> None:
    """Write a summary and one file per process."""
    folder = target / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.txt").write_text(f"{line}\n")
    left = TOTAL_BYTES
    for stack in stacks:
        text = describe(stack)
        left -= len(text)
        if left < 0:
            break
        node = re.sub(r"[^0-9A-Za-z.-]", "-", stack.node)
        (folder / f"{node}-{stack.pid}.txt").write_text(text)


def describe(stack: Stack) -> str:
    """Return the text of one process's file."""
    rank = "" if stack.rank is None else f", rank {stack.rank}"
    head = f"{stack.title}\npid {stack.pid} on {stack.node}{rank}, state {stack.state}\n\n"
    logs = "".join(f"\n--- end of {name}\n{end}\n" for name, end in stack.logs.items())
    return head + (stack.text or "the process did not answer\n") + logs


def _count(number: int, word: str, plural: str) -> str:
    return f"{number} {word}{'' if number == 1 else plural}"


def _gather_elsewhere(name: str) -> list[Stack]:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return []
    try:
        return ray_cluster.stacks_elsewhere(name, ELSEWHERE_SECONDS)
    except Exception as error:  # noqa: BLE001 - an error of Ray must not lose the head's stacks
        print(f"rljob: no stacks of the worker nodes: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return []
