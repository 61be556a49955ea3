"""The only source of time in `control`, so that tests can set it.

Wall-clock time goes into decisions and statuses; monotonic time measures waits and never jumps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time."""

    def now(self) -> datetime:
        """Wall-clock time in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()
