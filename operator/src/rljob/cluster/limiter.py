"""Limits on the rate of requests to the API server, and on the share of its time that they may use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class TokenBucket:
    """Grants `per_second` requests on average and `burst` at once; waiting callers are served in order.

    A caller takes its token at once, possibly below zero, and sleeps until the bucket would have held it. So no caller
    overtakes another, and no task or queue is needed.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._sleep = sleep
        self._tokens = float(burst)
        self._seen = monotonic()
        self._paused_until = self._seen

    async def take(self) -> float:
        """Wait for one token and return the seconds waited."""
        self._fill()
        self._tokens -= 1
        wait = max(-self._tokens / self._per_second, self._paused_until - self._seen, 0.0)
        if wait:
            await self._sleep(wait)
        return wait

    def pause(self, seconds: float) -> None:
        """Grant nothing for a while, because the server asked for it."""
        self._paused_until = max(self._paused_until, self._monotonic() + seconds)

    def try_take(self) -> bool:
        """Take a token if there is one; return whether it was taken."""
        self._fill()
        if self._tokens < 1 or self._paused_until > self._seen:
            return False
        self._tokens -= 1
        return True

    def _fill(self) -> None:
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._per_second)
        self._seen = now


class TimeShare:
    """Grants deferrable requests while they use at most a share of all time, so that a slow server gets fewer.

    Up to `in_hand` seconds accumulate while there are no requests. After a request that took very long there is a pause
    of at most `longest_pause` seconds.
    """

    def __init__(self, share: float, in_hand: float, longest_pause: float, monotonic: Callable[[], float]) -> None:
        self._share = share
        self._most = in_hand
        self._least = -share * longest_pause
        self._monotonic = monotonic
        self._left = in_hand
        self._usual = 0.0
        self._seen = monotonic()

    def has_room(self) -> bool:
        """Return whether another request may start now."""
        self._fill()
        return self._left > 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Record the time of a request. While it runs, it is assumed to take as long as the previous one."""
        expected, begun = self._usual, self._monotonic()
        self._left -= expected
        try:
            yield
        finally:
            self._fill()
            self._usual = self._seen - begun
            self._left = max(self._least, self._left + expected - self._usual)

    def _fill(self) -> None:
        now = self._monotonic()
        self._left = min(self._most, self._left + (now - self._seen) * self._share)
        self._seen = now
