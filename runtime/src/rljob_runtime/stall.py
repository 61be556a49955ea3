"""What the launcher does when the operator says that no step comes: keep the stacks of every process, then end.

The stacks of the head's processes are gathered here and those of the worker nodes by Ray tasks, side by side, because a
Ray that hangs must not cost the head's. They are written into the spool and onto the log volume, one file a process
with the ends of its logs; what matters becomes the message of the outcome. All within STALL_SECONDS.
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
from rljob_runtime.files import in_time
from rljob_runtime.outcomes import bounded
from rljob_runtime.stacks.frames import essential
from rljob_runtime.stacks.gather import Stack, gather

FOLDER = "stacks"
HERE_SECONDS = 5.0
ELSEWHERE_SECONDS = 0.5 * STALL_SECONDS
"""A Ray task on an idle node may first have to start a Python process."""
WRITE_SECONDS = 0.15 * STALL_SECONDS
"""For the spool, and once more for the log volume."""
RULES_SECONDS = 0.2 * STALL_SECONDS
"""For the restart rules that look at the log."""
TOTAL_BYTES = 64 << 20
"""Of all files together; 1,024 processes with stacks of usual size fit twice."""


def outcome_of(name: str, step: int, since: float, targets: Sequence[Path]) -> Outcome:
    """Keep the stacks of the run `name` below each of `targets`, and name the end.

    `step` is the last one that is complete, `since` the Unix time from which on none came.
    """
    try:
        stacks = gather_everywhere(name)
    except Exception:  # noqa: BLE001 - whatever went wrong, the run must end as it was asked to
        traceback.print_exc()
        stacks = []
    line = essential(stacks)
    kept = [
        str(target / FOLDER)
        for target in targets
        if in_time(WRITE_SECONDS, functools.partial(write, target, line, stacks), "the stacks are not kept")
    ]
    counted = f"{_count(len(stacks), 'process', 'es')} on {_count(len({stack.node for stack in stacks}), 'node', 's')}"
    where = f"; stacks of {counted} are in {kept[-1]}" if kept and stacks else ""
    told = f"no step for {time.time() - since:.0f} s after step {step}: {line}{where}"
    return Outcome(int(ExitCode.STALLED), "Stalled", bounded(told), last_step=step)


def gather_everywhere(name: str) -> list[Stack]:
    """Give the stacks of all nodes; those that come in time."""
    elsewhere: list[Stack] = []
    asking = threading.Thread(target=lambda: elsewhere.extend(_gather_elsewhere(name)), daemon=True)
    deadline = time.monotonic() + ELSEWHERE_SECONDS
    asking.start()
    here = gather(name, "the head", HERE_SECONDS)
    asking.join(max(0.0, deadline - time.monotonic()))
    return here + list(elsewhere)


def write(target: Path, line: str, stacks: Sequence[Stack]) -> None:
    """Write a summary and one file a process."""
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
    """Write out one process."""
    rank = "" if stack.rank is None else f", rank {stack.rank}"
    head = f"{stack.title}\npid {stack.pid} on {stack.node}{rank}, state {stack.state}\n\n"
    logs = "".join(f"\n--- the end of {name}\n{end}\n" for name, end in stack.logs.items())
    return head + (stack.text or "it did not answer\n") + logs


def _count(number: int, word: str, plural: str) -> str:
    return f"{number} {word}{'' if number == 1 else plural}"


def _gather_elsewhere(name: str) -> list[Stack]:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return []
    try:
        return ray_cluster.stacks_elsewhere(name, ELSEWHERE_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever Ray says, the head's stacks must be kept
        print(f"rljob: no stacks of the worker nodes: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return []
