"""From events and samples to the timeline of one start, and to the comparison of several. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.start_time.sampler import Seen

LAUNCHER = "rljob_runtime launch"
SHORT = {
    "ray::": "",
    "_private/workers/default_worker.py": "Ray worker, idle",
    "_private/workers/setup_worker.py": "Ray worker, idle",
    "multiprocessing.resource_tracker": "resource tracker",
    "multiprocessing.spawn": "spawned",
    LAUNCHER: "launcher",
    "rljob.cli.main": "rljob run --local",
    "fork_server.server": "fork server",
    "fork_server/client.py": "fork client",
}
"""Part of a command line -> the name in the table; the first that matches."""
WORTH_SECONDS = 0.3
"""Processor time in seconds below which processes share a row."""


@dataclass
class Process:
    """One process of a start; moments are seconds since the launcher began."""

    name: str
    began: float
    forked: bool
    processor: float
    """Seconds of processor time until the first step began."""
    imports: dict[str, float] = field(default_factory=dict)
    """Library -> seconds by the clock that its own modules took."""
    import_processor: float = 0.0
    """Processor seconds of all watched imports."""
    ready: float | None = None
    """End of its last watched import before the first step."""


@dataclass(frozen=True)
class Start:
    """One start."""

    arm: str
    first_step_begun: float
    """Seconds since the launcher began."""
    first_step_done: float
    processor: float
    """Processor seconds of all processes between the launcher's begin and the first step's."""
    processes: tuple[Process, ...]

    @property
    def import_processor(self) -> float:
        """Processor seconds of all watched imports."""
        return sum(process.import_processor for process in self.processes)

    @property
    def importing(self) -> int:
        """How many processes imported torch themselves."""
        return sum("torch" in process.imports for process in self.processes)


def short_name(title: str) -> str:
    """Return what a process is called in the table."""
    if title.startswith("ray::"):
        return title.split(maxsplit=1)[0].removeprefix("ray::")
    if title.startswith("VLLM::"):
        return title.split(maxsplit=1)[0]
    known = next((name for part, name in SHORT.items() if part in title), None)
    if known is not None:
        return known
    words = [word.rpartition("/")[2] for word in title.split()[:3] if not word.startswith("-")]
    return " ".join(words)[:40] or "?"


def start_of(arm: str, events: Iterable[Mapping[str, Any]], seen: Sequence[Seen], begun: float, done: float) -> Start:
    """Return the timeline of a start; `begun` and `done` are of its first step, in Unix seconds.

    Raises ValueError if no launcher was seen.
    """
    by_pid: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        by_pid[event["pid"]].append(event)
    launchers = [
        event["time"]
        for own in by_pid.values()
        for event in own
        if event["event"] == "exec" and LAUNCHER in event["command"]
    ]
    if not launchers:
        raise ValueError("no process of the run is a launcher")
    zero = min(launchers)
    processes, total = [], 0.0
    for one in sorted(seen, key=lambda one: one.began):
        used = one.processor_at(begun) - one.processor_at(zero)
        total += used
        if used > 0:
            processes.append(_process(one, by_pid[one.pid], zero, begun, used))
    return Start(arm, begun - zero, done - zero, total, tuple(processes))


def _process(one: Seen, events: Sequence[Mapping[str, Any]], zero: float, begun: float, used: float) -> Process:
    process = Process(short_name(one.title), one.began - zero, _was_forked(events), used)
    for event in events:
        if event["event"] == "import" and zero <= event["time"] <= begun:
            process.imports[event["library"]] = process.imports.get(event["library"], 0.0) + event["wall"]
            process.import_processor += event["processor"]
            process.ready = event["time"] - zero
    return process


def _was_forked(events: Iterable[Mapping[str, Any]]) -> bool:
    """Report whether the process runs what it was forked with: a fork is followed by an exec otherwise."""
    kinds = [event["event"] for event in events if event["event"] in ("exec", "fork")]
    return kinds[-1:] == ["fork"]


def table(start: Start) -> str:
    """Return the processes of a start as text, in the order in which they began."""
    moments = f"first step begins after {start.first_step_begun:.1f} s, ends after {start.first_step_done:.1f} s"
    processor = f"{start.processor:.1f} s of processor time, {start.import_processor:.1f} of it in imports"
    lines = [
        f"{start.arm}: {moments}; {processor}, {start.importing} processes import torch",
        f"{'began':>7} {'ready':>7} {'cpu':>6} {'import':>7}  process",
    ]
    small = [process for process in start.processes if process.processor < WORTH_SECONDS]
    for process in start.processes:
        if process.processor >= WORTH_SECONDS:
            ready = "" if process.ready is None else f"{process.ready:.1f}"
            own = ", ".join(f"{library} {seconds:.1f}" for library, seconds in sorted(process.imports.items()))
            forked = " (forked)" if process.forked else ""
            lines.append(
                f"{process.began:7.1f} {ready:>7} {process.processor:6.1f} {process.import_processor:7.1f}  "
                f"{process.name}{forked}{': ' + own if own else ''}"
            )
    rest = sum(process.processor for process in small)
    lines.append(f"{'':>7} {'':>7} {rest:6.1f} {'':>7}  {len(small)} others, less than {WORTH_SECONDS} s each")
    return "\n".join(lines)


def comparison(starts: Sequence[Start]) -> str:
    """Return the medians of each arm as text."""
    lines = [f"{'arm':<12} {'starts':>6} {'begins':>8} {'ends':>8} {'cpu':>8} {'imports':>8}   all: begins / cpu"]
    for arm in dict.fromkeys(start.arm for start in starts):
        own = [start for start in starts if start.arm == arm]
        each = ", ".join(f"{start.first_step_begun:.1f} / {start.processor:.1f}" for start in own)
        lines.append(
            f"{arm:<12} {len(own):>6} {_median(start.first_step_begun for start in own):>8} "
            f"{_median(start.first_step_done for start in own):>8} {_median(start.processor for start in own):>8} "
            f"{_median(start.import_processor for start in own):>8}   {each}"
        )
    return "\n".join(lines)


def _median(values: Iterable[float]) -> str:
    return f"{statistics.median(values):.1f}"
