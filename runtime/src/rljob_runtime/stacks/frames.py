"""Condense the stacks of all processes into one line that shows which processes wait where. Pure.

When a process group hangs, most ranks wait in a collective and the rank that never entered it is elsewhere. Processes
are therefore grouped by place, collectives first.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rljob_runtime.stacks.gather import Stack
from rljob_runtime.stacks.service_loops import is_service_loop

LINE_CHARACTERS = 1000
TITLE_CHARACTERS = 40
NAMED = 4
"""Maximum number of processes without rank that are named per group."""
THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]++.*\(most recent call first\)")
FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.+)$')
COLLECTIVE = "/torch/distributed/"
STANDARD = re.compile(r"/lib/python3\.\d+/(?!site-packages/|dist-packages/)|^<frozen ")
WITHOUT_MEANING = re.compile(
    r"/(site|dist)-packages/(ray|zmq|tqdm)/|/rljob_runtime/(__main__|stall|stacks/)"
    r"|/torch/_ops\.py|/c10d_logger\.py|/vllm/distributed/device_communicators/shm_broadcast\.py"
)
"""Functions that occur in every stack, or between a wait and its caller."""
LIBRARIES = re.compile(r"/(site|dist)-packages/|/rljob_runtime/")


class Kind(enum.IntEnum):
    """What a process does, in the order of the report."""

    COLLECTIVE = 0
    SILENT = 1
    USER_CODE = 2
    """A reward function, an agent, or other code of the job."""
    BUSY = 3
    IDLE = 4


@dataclass(frozen=True)
class Frame:
    """One frame of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return the function with the end of its path."""
        short = "/".join(self.file.split("/")[-3:])
        return f"{self.function} ({short}:{self.line})"


@dataclass(frozen=True)
class Place:
    """Where a process is."""

    kind: Kind
    frame: Frame | None = None
    state: str = ""


def threads(text: str) -> list[list[Frame]]:
    """Parse the output of faulthandler: the frames of each thread, innermost first; the oldest thread first."""
    found: list[list[Frame]] = []
    current: list[Frame] = []
    for line in text.splitlines():
        if THREAD.match(line):
            current = []
            found.insert(0, current)  # faulthandler writes the newest thread first
        elif frame := FRAME.match(line):
            current.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    return found


def place_of(stack: Stack) -> Place:
    """Return where a process is: the thread in a collective, otherwise the thread that is deepest in its work."""
    every = threads(stack.text)
    if not any(every):
        return Place(Kind.SILENT, state=stack.state)
    working = [frames for frames in map(_meaningful, every) if frames and not _waits_for_work(frames[0])]
    for frames in working:
        if COLLECTIVE in frames[0].file:
            return Place(Kind.COLLECTIVE, frames[0])
    if not working:
        return Place(Kind.IDLE)
    # Libraries keep their own threads, which are one or two frames deep.
    frame = max(working, key=len)[0]
    return Place(Kind.BUSY if LIBRARIES.search(frame.file) else Kind.USER_CODE, frame)


def summarize(stacks: Sequence[Stack]) -> str:
    """Return one line that shows which processes wait where: ranks of process groups first, idle processes last."""
    groups: dict[tuple[bool, Place], list[Stack]] = {}
    for stack in stacks:
        groups.setdefault((stack.rank is None, place_of(stack)), []).append(stack)

    def weight(group: tuple[tuple[bool, Place], list[Stack]]) -> tuple[bool, bool, Kind, int]:
        (unranked, place), members = group
        return place.kind is Kind.IDLE, unranked, place.kind, -len(members)

    ordered = sorted(groups.items(), key=weight)
    line = "; ".join(_describe(place, members) for (_, place), members in ordered) or "no process returned its stack"
    return line if len(line) <= LINE_CHARACTERS else f"{line[: LINE_CHARACTERS - 4]} ..."


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: 0-2, 5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(str(end) for end in run) for run in runs)


def _meaningful(frames: Sequence[Frame]) -> list[Frame]:
    return [f for f in frames if not STANDARD.search(f.file) and not WITHOUT_MEANING.search(f.file)]


def _waits_for_work(frame: Frame) -> bool:
    return is_service_loop(frame.file, frame.function)


def _describe(place: Place, members: Sequence[Stack]) -> str:
    subject = _subject(place, members)
    if place.kind is Kind.SILENT:
        return f"{subject} did not answer, state {place.state}"
    if place.frame is None:
        return f"{subject} {'is' if len(members) == 1 else 'are'} idle"
    if place.kind is Kind.COLLECTIVE:
        return f"{subject} {'waits' if len(members) == 1 else 'wait'} in {place.frame}"
    return f"{subject} {'is' if len(members) == 1 else 'are'} in {place.frame}"


def _subject(place: Place, members: Sequence[Stack]) -> str:
    ranked = [stack.rank for stack in members if stack.rank is not None]
    if ranked and len(set(ranked)) == len(members):
        one = f" (pid {members[0].pid} on {members[0].node})" if len(members) == 1 else ""
        return f"{'rank' if len(ranked) == 1 else 'ranks'} {ranges(ranked)}{one}"
    if place.kind is Kind.IDLE:
        return f"{len(members)} {'process' if len(members) == 1 else 'processes'}"
    named = [f"{_title(stack)} (pid {stack.pid} on {stack.node})" for stack in members]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more


def _title(stack: Stack) -> str:
    program, space, rest = stack.title.partition(" ")
    return f"{program.rpartition('/')[2]}{space}{rest}"[:TITLE_CHARACTERS] or "process"
