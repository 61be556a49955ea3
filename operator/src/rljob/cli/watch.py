"""`rljob top` and `rljob status --watch`: show the current state repeatedly until there is nothing more to see.

This needs no terminal library: `table`, `progress_bar` and four control sequences that every terminal supports suffice.
Without a terminal nothing is redrawn: `top` prints one table, and `status --watch` prints a line for each change.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from rljob.api.printing import one_line
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.progress_line import Line, progress_line
from rljob.cli.status import ENDED, describe, failed, progress_bar, table
from rljob.cli.terminal import send_control
from rljob.reading import figures, start
from rljob.reading.figures import ABSENT
from rljob.reading.start import STARTING

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

INTERRUPTED = 130
PATIENCE_SECONDS = 300.0
"""Seconds that the API server may be unreachable before a watch gives up."""
BAR = 16
HOLDING = ("Training", "Stopping")
WITH_NODES = frozenset({"AllPodsReady", "PodStarting", "ImagePullFailed", "ContainerConfigInvalid", "ContainerFailed"})
"""Reasons of a start whose pods have nodes (`core.attempts.start_diagnosis`, which takes long to import)."""
SECOND_SCREEN, FIRST_SCREEN = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\033[H", "\033[K", "\033[J"
Look = tuple["Manifest", str]
"""A job, and an error message if it could not be read again."""


class Screen:
    """The terminal's alternate screen, on which each page replaces the previous one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __enter__(self) -> Self:
        """Switch to the alternate screen, which leaves the user's screen unchanged."""
        self._send(SECOND_SCREEN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch back to the user's screen."""
        self._send(FIRST_SCREEN)

    def draw(self, page: str) -> None:
        """Show as much of a page as fits."""
        columns, rows = shutil.get_terminal_size()
        # Messages are untrusted text. What is longer than a line would scroll the screen.
        lines = (one_line(line)[: columns - 1] for line in page.split("\n"))
        shown = f"{CLEAR_LINE}\r\n".join(list(lines)[: rows - 1])
        self._send(f"{HOME}{shown}{CLEAR_LINE}{CLEAR_BELOW}")

    def _send(self, text: str) -> None:
        send_control(text, self._out)
        self._out.flush()


def top(
    place: kubectl.Place, *, everywhere: bool, once: bool, interval_seconds: float, out: TextIO | None = None
) -> int:
    """Show every job until Ctrl-C."""
    out = out or sys.stdout
    jobs = kubectl.list_jobs(place, everywhere=everywhere)
    if once or not out.isatty():
        print(overview(jobs, datetime.now(UTC)), file=out)
        return 0
    seen = time.monotonic()
    trouble = ""
    with Screen(out) as screen:
        try:
            while True:
                screen.draw(overview(jobs, datetime.now(UTC)) + trouble)
                time.sleep(interval_seconds)
                try:
                    jobs, trouble = kubectl.list_jobs(place, everywhere=everywhere), ""
                    seen = time.monotonic()
                except UsageError as error:
                    trouble = f"\n\n{_trouble(seen, error)}"
        except KeyboardInterrupt:
            return 0


def overview(jobs: Sequence[Manifest], now: datetime) -> str:
    """Return the table of jobs, unfinished ones first, below a summary line. Pure."""
    if not jobs:
        return "no RLJobs"
    ordered = sorted(jobs, key=lambda job: (_state(job) in ENDED, _place(job)))
    several = len({job["metadata"].get("namespace") for job in jobs}) > 1
    head = ("NAME", "STATE", "STEP", "REWARD", "TPS/CARD", "DP IDLE", "LEFT", "CARDS", "RESTARTS")
    rows = [head, *(_row(job, now, several=several) for job in ordered)]
    states = [_state(job) for job in jobs]
    counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    cards = sum(_cards(job) for job in jobs)
    return f"RLJobs: {counted}; {figures.count(cards, 'card')} held  {now:%H:%M:%S} UTC\n\n{table(rows)}"


def _row(job: Manifest, now: datetime, *, several: bool) -> tuple[str, ...]:
    status = job.get("status") or {}
    progress = status.get("progress") or {}
    namespace, name = _place(job)
    bar = progress_bar(progress, BAR) if progress.get("totalSteps") else figures.steps(progress)
    cards = _cards(job)
    return (
        f"{namespace}/{name}" if several else name,
        _state(job),
        start.stage(status, now) or (str(status.get("reason") or ABSENT) if bar == ABSENT else bar),
        figures.reward(progress.get("reward")),
        figures.rate(progress.get("tokensPerSecondPerCard")),
        figures.share(progress.get("clusterIdleRatio")),
        figures.left(status, now),
        f"{cards:g}" if cards else ABSENT,
        str(status.get("restarts", 0)),
    )


def _place(job: Manifest) -> tuple[str, str]:
    return job["metadata"].get("namespace", "default"), job["metadata"]["name"]


def _state(job: Manifest) -> str:
    return str((job.get("status") or {}).get("state") or "Unknown")


def _cards(job: Manifest) -> float:
    """Count the cards that a job holds, from the time that its pods have nodes until its attempt has ended."""
    status = job.get("status") or {}
    attempts = status.get("attempts") or [{"endTime": "none"}]
    running = not attempts[-1].get("endTime")
    reasons = {entry.get("reason") for entry in status.get("conditions") or () if entry.get("type") == "ClusterReady"}
    holds = running or _state(job) in HOLDING or (_state(job) == STARTING and bool(reasons & WITH_NODES))
    return float((status.get("resolved") or {}).get("cards") or 0) if holds else 0.0


def watch_status(name: str, place: kubectl.Place, interval_seconds: float, out: TextIO | None = None) -> int:
    """Show one job until it ends, then its page; the exit code reflects how it ended."""
    out = out or sys.stdout
    looks = _looks(name, place, interval_seconds)
    try:
        job = _on_screen(looks, out) if out.isatty() else _in_lines(looks, out)
    except KeyboardInterrupt:
        return INTERRUPTED
    print(describe(_current(job)), file=out)
    return 1 if failed(job) else 0


def _on_screen(looks: Iterator[Look], out: TextIO) -> Manifest:
    job, _ = next(looks)
    with Screen(out) as screen:
        screen.draw(describe(_current(job)))
        for job, trouble in looks:
            screen.draw(describe(_current(job)) + (f"\n\n{trouble}" if trouble else ""))
    return job


def _in_lines(looks: Iterator[Look], out: TextIO) -> Manifest:
    line, shown = Line(out), ("", "", False)
    for job, trouble in looks:
        here = (_state(job), start.words(job.get("status") or {}), bool(trouble))
        if _state(job) not in ENDED:
            line.draw(trouble or _line(job), important=here != shown)
        shown = here
    line.end()
    return job


def _current(job: Manifest) -> Manifest:
    return start.with_current(job, datetime.now(UTC))


def _line(job: Manifest) -> str:
    status = job.get("status") or {}
    age = datetime.now(UTC) - datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    message = start.current(status, datetime.now(UTC))
    return progress_line(age.total_seconds(), _state(job), status.get("progress") or {}, message)


def _looks(name: str, place: kubectl.Place, interval_seconds: float) -> Iterator[Look]:
    """Yield the job at each update until it ends, with an error message while the API server is unreachable.

    A new job of the same name is a different job.
    """
    job, seen = kubectl.get_job(name, place), time.monotonic()
    yield job, ""
    while _state(job) not in ENDED:
        time.sleep(interval_seconds)
        try:
            found = kubectl.get_job(name, place)
        except kubectl.NotFoundError as error:
            raise UsageError(f"{name} no longer exists; it was deleted") from error
        except UsageError as error:
            if time.monotonic() - seen > PATIENCE_SECONDS:
                raise
            yield job, _trouble(seen, error)
            continue
        if found["metadata"].get("uid") != job["metadata"].get("uid"):
            raise UsageError(f"{name} no longer exists; it was deleted and another job of this name was created")
        job, seen = found, time.monotonic()
        yield job, ""


def _trouble(seen: float, error: UsageError) -> str:
    return f"out of date since {time.monotonic() - seen:.0f} s: {error}"
