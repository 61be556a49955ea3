"""Computes on large specs outside the event loop, one at a time, and a quarter of the time for one namespace.

To check a spec of 256 KiB takes some tenths of a second, in which the loop would answer nothing. In a thread, the
interpreter gives the loop a turn every few milliseconds (sys.getswitchinterval). The core is pure: it reads what was
observed, and what it derives belongs to one job, which only one worker holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TypeVar

from rljob.control.memory_budget import MemoryBudget
from rljob.core.observed import Manifest
from rljob.core.validation.validate import at_once

T = TypeVar("T")

LARGE_BYTES = 192 * 1024
"""Of memory: a job with all fields in use takes a fifth of that."""
REST_FACTOR = 3
"""A namespace waits this many times as long as its last computation took: it gets a quarter of a CPU."""
BUSY_SECONDS = 0.2
"""A job looks again after this time while another one is computed."""


@dataclass
class LargeJobs:
    """The line of large jobs."""

    monotonic: Callable[[], float]
    budget: MemoryBudget
    _rests: dict[str, float] = field(default_factory=dict)
    """Until when a namespace waits."""
    _held: dict[str, str] = field(default_factory=dict)
    """The job of a namespace whose round is under way, so that a namespace holds one worker."""
    _computes: asyncio.Lock = field(default_factory=asyncio.Lock)

    def includes(self, job: Manifest) -> bool:
        """Report whether a job is large."""
        return self.budget.of(job["metadata"]["uid"]) >= LARGE_BYTES

    def claim(self, job: Manifest) -> float:
        """Return how long a job waits before its round; 0 if it is not large, or has its turn until `release`."""
        if not self.includes(job):
            return 0.0
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        rest = self._rests.get(namespace, 0.0) - self.monotonic()
        if rest > 0:
            return rest
        return 0.0 if self._held.setdefault(namespace, uid) == uid else BUSY_SECONDS

    def release(self, job: Manifest) -> None:
        """End the turn of a job, if it had one."""
        namespace = job["metadata"]["namespace"]
        if self._held.get(namespace) == job["metadata"]["uid"]:
            del self._held[namespace]

    async def run(self, job: Manifest, function: Callable[[], T]) -> T:
        """Return the result of a function of the core."""
        if not self.includes(job):
            return function()
        namespace = job["metadata"]["namespace"]
        async with self._computes:
            began = self.monotonic()
            try:
                return await asyncio.to_thread(function)
            finally:
                now = self.monotonic()
                earlier = max(self._rests.get(namespace, 0.0), began)
                self._rests = {name: until for name, until in self._rests.items() if until > now}
                self._rests[namespace] = earlier + (1 + REST_FACTOR) * (now - began)

    async def take(self, job: Manifest, parts: Generator[None, None, T]) -> T:
        """Return the result of a computation in parts."""
        return await self.run(job, lambda: at_once(parts))
