"""Lets the event loop do other work while computations of many jobs wait.

What the core computes for one job takes milliseconds, and for a large one a tenth of a second, without a request in
between. The workers therefore ask here between parts of it: after TURN_SECONDS one of them lets the loop turn while
the others wait in line, so that a turn of the loop contains one such time and not one for each worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

TURN_SECONDS = 0.02
"""An answer or an event waits about this long; an exchange with the API server takes several times that."""


class Turns:
    """The turns of one event loop that its workers share."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._line = asyncio.Lock()
        """Its waiters are served in order."""

    async def give_way(self) -> None:
        """Let the loop do other work if it has not done so for TURN_SECONDS."""
        if not self._is_over():
            return
        async with self._line:
            if self._is_over():
                await asyncio.sleep(0)
                self._began = self._monotonic()

    def _is_over(self) -> bool:
        return self._monotonic() - self._began >= TURN_SECONDS

    async def take(self, parts: Generator[None, None, T]) -> T:
        """Return the result of a computation in parts, giving way between them."""
        while True:
            try:
                next(parts)
            except StopIteration as end:
                found: T = end.value
                return found
            await self.give_way()
