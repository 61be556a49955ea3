"""Time as the waits of a run read it; tests replace it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 120.0
"""How long a cause that seldom goes away by itself may last: an autoscaler or a registry can end it."""


@dataclass(frozen=True)
class Clock:
    """Time, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    patience_seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Trouble:
    """A cause that does not go away by itself, and since when it is there."""

    since: float | None = None

    def next(self, now: float, *, troubled: bool) -> Trouble:
        """Return the trouble after another poll."""
        if not troubled:
            return Trouble()
        return self if self.since is not None else Trouble(now)

    def lasts(self, clock: Clock) -> bool:
        """Return whether it has lasted long enough to give up."""
        return self.since is not None and clock.now() - self.since >= clock.patience_seconds
