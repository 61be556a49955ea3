"""Time controlled by tests: both readings of `control.clock.Clock` are constant until the test advances them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class FrozenClock:
    """A clock that is constant until it is advanced."""

    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0

    def now(self) -> datetime:
        """See `control.clock.Clock.now`."""
        return self.time

    def monotonic(self) -> float:
        """See `control.clock.Clock.monotonic`."""
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Advance both readings."""
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds
