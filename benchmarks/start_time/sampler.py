"""Samples from /proc the processor time of every process of a run; it does not depend on what else the machine does."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_SECONDS = 0.2
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Seen:
    """One process, as last sampled."""

    pid: int
    began: float
    """Unix seconds."""
    title: str = ""
    """The last command line: Ray and vLLM write there what a process does."""
    processor: list[tuple[float, float]] = field(default_factory=list)
    """Unix seconds of each change, and processor seconds of the process by then, user and system."""

    def processor_at(self, moment: float) -> float:
        """Return the processor seconds that it had used by a moment."""
        return next((seconds for at, seconds in reversed(self.processor) if at <= moment), 0.0)


class Sampler:
    """Samples, in a thread of its own, every process whose environment holds a mark."""

    def __init__(self, mark: str, proc: Path = Path("/proc")) -> None:
        self._mark, self._proc = mark.encode(), proc
        self._ours: dict[tuple[int, int], Seen | None] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def end(self) -> list[Seen]:
        """Stop; return all processes that were seen."""
        self._ended.set()
        self._thread.join()
        return self.seen()

    def seen(self) -> list[Seen]:
        """Return the processes that were seen so far."""
        return [seen for seen in self._ours.values() if seen is not None]

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.sample(time.time())

    def sample(self, now: float) -> None:
        """Look at every process once."""
        for entry in self._proc.iterdir():
            if entry.name.isdigit():
                try:
                    self._look(entry, now)
                except OSError:
                    continue  # it has ended

    def _look(self, entry: Path, now: float) -> None:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        started, used = int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS
        key = int(entry.name), started
        if key not in self._ours:
            ours = self._mark in (entry / "environ").read_bytes()
            self._ours[key] = Seen(key[0], self._booted + started / TICKS) if ours else None
        seen = self._ours[key]
        if seen is None:
            return
        if not seen.processor or seen.processor[-1][1] != used:
            seen.processor.append((now, used))
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            # A process that ends has none.
            seen.title = title or seen.title
