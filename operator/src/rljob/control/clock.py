"""The only place where the machinery learns the time, so that tests decide it.

Wall-clock time goes into decisions and statuses; monotonic time measures waits and never jumps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Two readings of time."""

    def now(self) -> datetime:
        """Wall-clock time in UTC."""

    def monotonic(self) -> float:
        """Seconds that only grow."""


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()


@dataclass
class FrozenClock:
    """Time that stands still until it is told to advance."""

    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0

    def now(self) -> datetime:
        """See `Clock.now`."""
        return self.time

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time pass, on both readings."""
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds
