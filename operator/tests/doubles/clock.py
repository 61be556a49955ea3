"""Time that tests decide: both readings of `control.clock.Clock`, standing still until they are told to advance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class FrozenClock:
    """Time that stands still until it is told to advance."""

    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0

    def now(self) -> datetime:
        """See `control.clock.Clock.now`."""
        return self.time

    def monotonic(self) -> float:
        """See `control.clock.Clock.monotonic`."""
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time pass, on both readings."""
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds
