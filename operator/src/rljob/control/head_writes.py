"""Bounds the rounds that wait for a head to take a submission or a request to stop.

These stay in the round that decided on them, so a head that never answers the POST holds a worker until the timeout.
The rounds of one namespace may hold a quarter of the workers in this way, and those of all namespaces three quarters.
One more is refused like a busy head, and its job comes back after its backoff.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rljob.cluster.errors import HeadBusy

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class HeadWrites:
    """The writes to heads that are under way."""

    per_namespace: int
    in_total: int
    _held: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of_workers(cls, workers: int) -> HeadWrites:
        """Return the bounds for a number of workers; at least one write is always possible."""
        return cls(max(1, workers // 4), max(1, workers * 3 // 4))

    @contextlib.contextmanager
    def under_way(self, namespace: str) -> Iterator[None]:
        """Hold a place. Raises HeadBusy if there is none."""
        if self._held[namespace] >= self.per_namespace or self._held.total() >= self.in_total:
            raise HeadBusy(f"not sent: {self._held[namespace]} writes to heads of namespace {namespace} are under way")
        self._held[namespace] += 1
        try:
            yield
        finally:
            self._held[namespace] -= 1
            # A namespace that is gone leaves no count.
            self._held += Counter()
