"""The queue of keys between events and workers, with the semantics of client-go's workqueue.

Three sets make it level-triggered. `dirty` holds the keys that need work, `processing` those that a worker has, and the
queue itself the keys that are dirty and not processing, in order. Adding a dirty key changes nothing, so a thousand
events cost one round. A key that becomes dirty while a worker processes it is not given to a second worker; it returns
to the queue when the first one is done, so no event is lost and no key is processed concurrently.

There are three lanes, since a thousand jobs that are created at once must not delay those that have NPUs. To begin a
job takes five requests, and the API server may take a second for each: that lane gets one turn of sixteen while started
jobs wait (at one of four, these still waited for half a minute), and one of 64 and two workers while new ones wait to
be looked at. A look costs no request, unless it has to be answered, and gets one turn of four. No lane may have more
keys in processing than `at_once` allows, and a lane may hold back a group (`may_take`). A key whose lane changes while
it waits moves to its new lane. Within a lane, groups of keys, here the jobs of a namespace, take turns: a user who
creates a thousand jobs delays only their own.

Delays are kept in a heap; of several requests for one key the earliest wins. Backoff grows with each failure from half
a second to five minutes; its jitter is a hash of the key and the attempt, so that a run can be reproduced exactly.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import math
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from rljob.core.jitter import jittered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rljob.telemetry.metrics import Metrics

Key = TypeVar("Key")

BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_LAST_SECONDS = 300.0
RETRY_JITTER = 0.2
"""Keys that failed together must not return together."""


TOGETHER_SECONDS = 0.5
"""Longer delays end on half seconds of the clock, so that many of them cost one wake-up."""
TOGETHER_FROM_SECONDS = 10.0
"""Only from this delay on is the rounding at most a twentieth of it."""


HELD_BACK_SECONDS = 30.0
"""A worker looks again after this time where keys wait and none may be taken."""


class Lane(enum.StrEnum):
    """Priorities of keys, the highest first."""

    BEGUN = "begun"
    """Jobs that may have NPUs."""
    NEW = "new"
    """Jobs that were not looked at yet in their present form."""
    TO_BEGIN = "to_begin"
    """Valid jobs for which nothing was created yet."""


TURNS = {Lane.NEW: 4, Lane.TO_BEGIN: 16}
"""While other lanes wait, one turn in this many goes to the lane, or to a lane with fewer turns, so that no key waits
forever."""
TURNS_BEHIND_NEW = 64
"""The same for jobs that are to begin, while others wait to be looked at."""
BEGIN_BEHIND_NEW = 2
"""Jobs that begin at once while others wait to be looked at: a beginning is five requests that a thousand looks
would wait for."""


class Waiting(Generic[Key]):
    """Keys that wait in one lane: those of a group in order of arrival, and the groups in turn."""

    def __init__(self, group_of: Callable[[Key], str], may_take: Callable[[str], bool]) -> None:
        self._group_of = group_of
        self._may_take = may_take
        self._groups: OrderedDict[str, OrderedDict[Key, None]] = OrderedDict()
        self._since: dict[Key, float] = {}

    def put(self, key: Key, since: float) -> None:
        """Add a key that does not wait yet; a group that had none waits for one key of each other group."""
        self._since[key] = since
        self._groups.setdefault(self._group_of(key), OrderedDict())[key] = None

    @property
    def has_next(self) -> bool:
        """Whether a key waits whose group is not held back."""
        return any(map(self._may_take, self._groups))

    def take(self) -> tuple[Key, float]:
        """Remove the next key; return it and since when it waited."""
        group = next(filter(self._may_take, self._groups))
        key = next(iter(self._groups[group]))
        self._groups.move_to_end(group)
        return key, self.leave(key)

    def leave(self, key: Key) -> float:
        """Remove a key that waits; return since when it waited."""
        group = self._group_of(key)
        del self._groups[group][key]
        if not self._groups[group]:
            del self._groups[group]
        return self._since.pop(key)

    def of(self, group: str) -> int:
        """Return how many keys of a group wait."""
        return len(self._groups.get(group, ()))

    def __contains__(self, key: Key) -> bool:
        """Report whether a key waits."""
        return key in self._since

    def __len__(self) -> int:
        """Return how many keys wait."""
        return len(self._since)


class KeyQueue(Generic[Key]):
    """Keys that need a round; one event loop only."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        metrics: Metrics,
        lane_of: Callable[[Key], Lane] = lambda _: Lane.BEGUN,
        at_once: Mapping[Lane, int] | None = None,
        group_of: Callable[[Key], str] = lambda _: "",
        may_take: Callable[[Lane, str], bool] = lambda *_: True,
    ) -> None:
        self._monotonic = monotonic
        self._at_once = at_once or {}
        self._processing_in: dict[Lane, set[Key]] = {lane: set() for lane in Lane}
        self._metrics = metrics
        self._lane_of = lane_of
        self._lanes: dict[Lane, Waiting[Key]] = {lane: Waiting(group_of, partial(may_take, lane)) for lane in Lane}
        self._turn = 0
        self._dirty: set[Key] = set()
        self._processing: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0
        self._wake = asyncio.Event()
        self._waiting = asyncio.Lock()
        """One worker waits for the next key, and the others for their turn: a key wakes one of them."""
        for lane in Lane:
            metrics.queue_wait_seconds.labels(lane)
        metrics.queue_depth.set_function(lambda: len(self))
        metrics.queue_longest_running.set_function(self._longest_running)

    def add(self, key: Key) -> None:
        """Request a round as soon as possible."""
        self._due.pop(key, None)
        if key in self._dirty:
            self._change_lanes(key)
            return
        self._dirty.add(key)
        self._metrics.queue_adds.inc()
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Request a round after a delay; an earlier request stands, and a dirty key needs no other."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._monotonic() + seconds
        if seconds >= TOGETHER_FROM_SECONDS:
            due = math.ceil(due / TOGETHER_SECONDS) * TOGETHER_SECONDS
        if key in self._dirty or self._due.get(key, due + 1) <= due:
            return
        earliest = self.next_due_seconds()
        self._due[key] = due
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, key))
        if earliest is None or seconds < earliest:
            # Otherwise the waiting worker wakes up before it in any case.
            self._wake.set()

    def add_failed(self, key: Key, at_least_seconds: float = 0.0) -> float:
        """Request another round after this key's backoff; return the delay."""
        attempt = self._failures.get(key, 0)
        self._failures[key] = attempt + 1
        self._metrics.queue_retries.inc()
        delay = max(backoff_seconds(str(key), attempt), at_least_seconds)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """Reset the key's backoff: its round succeeded."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """Return how often the key failed in a row."""
        return self._failures.get(key, 0)

    def get_nowait(self) -> Key | None:
        """Return the next key, or None; it stays in processing until `done`."""
        self._promote()
        lane = self._next_lane()
        if lane is None:
            return None
        key, since = self._lanes[lane].take()
        now = self._monotonic()
        self._dirty.discard(key)
        self._processing[key] = now
        self._processing_in[lane].add(key)
        self._metrics.queue_wait_seconds.labels(lane).observe(now - since)
        return key

    async def get(self) -> Key:
        """Wait for the next key."""
        async with self._waiting:
            while (key := self.get_nowait()) is None:
                self._wake.clear()
                delay = self.next_due_seconds()
                if len(self):
                    # Time alone may end what holds a group back.
                    delay = min(HELD_BACK_SECONDS, HELD_BACK_SECONDS if delay is None else delay)
                try:
                    async with asyncio.timeout(delay):
                        await self._wake.wait()
                except TimeoutError:
                    continue
            return key

    def again(self, key: Key) -> bool:
        """Keep processing a key that became dirty, instead of returning it; report whether it had."""
        if key not in self._dirty:
            return False
        self._dirty.discard(key)
        return True

    def done(self, key: Key) -> None:
        """End the processing of a key; if it became dirty meanwhile, it waits for its next round."""
        self._metrics.queue_work_seconds.observe(self._monotonic() - self._processing.pop(key))
        for held in self._processing_in.values():
            held.discard(key)
        if key in self._dirty:
            self._enqueue(key)
        elif len(self):
            # They may have waited because their lane was at its limit.
            self._wake.set()

    def next_due_seconds(self) -> float | None:
        """Return the seconds until the earliest delayed key, or None."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - self._monotonic()) if self._heap else None

    def waiting_in(self, lane: Lane, group: str | None = None) -> int:
        """Return how many keys wait in a lane, all or those of one group."""
        return len(self._lanes[lane]) if group is None else self._lanes[lane].of(group)

    def __len__(self) -> int:
        """Return how many keys wait for a worker, without delayed ones."""
        return sum(map(len, self._lanes.values()))

    @property
    def idle(self) -> bool:
        """Whether no key waits or is processed; there may be delayed ones."""
        return not len(self) and not self._processing

    def _next_lane(self) -> Lane | None:
        """Return the lane whose turn it is."""
        waiting = [lane for lane in Lane if self._lanes[lane].has_next and self._has_capacity(lane)]
        if len(waiting) > 1:
            self._turn += 1
            # The last lanes have the fewest turns, so they are considered first.
            turns = TURNS | ({Lane.TO_BEGIN: TURNS_BEHIND_NEW} if self._lanes[Lane.NEW] else {})
            return next((lane for lane in reversed(waiting) if self._turn % turns.get(lane, 1) == 0), waiting[0])
        return waiting[0] if waiting else None

    def _has_capacity(self, lane: Lane) -> bool:
        most = self._at_once.get(lane, math.inf)
        if lane is Lane.TO_BEGIN and self._lanes[Lane.NEW]:
            most = min(most, BEGIN_BEHIND_NEW)
        return len(self._processing_in[lane]) < most

    def _enqueue(self, key: Key) -> None:
        self._lanes[self._lane_of(key)].put(key, self._monotonic())
        self._wake.set()

    def _change_lanes(self, key: Key) -> None:
        """Move a key that waits to its present lane; one that is processed moves there afterwards."""
        held = next((lane for lane, keys in self._lanes.items() if key in keys), None)
        if held is not None and self._lane_of(key) is not held:
            self._lanes[held].leave(key)
            self._enqueue(key)

    def _promote(self) -> None:
        while self.next_due_seconds() == 0.0:
            _, _, key = heapq.heappop(self._heap)
            self.add(key)

    def _longest_running(self) -> float:
        now = self._monotonic()
        return now - min(self._processing.values(), default=now)


def backoff_seconds(key: str, attempt: int) -> float:
    """Return the delay after the n-th failure in a row, counted from 0; the same for the same key and attempt."""
    base = min(BACKOFF_FIRST_SECONDS * 2.0 ** min(attempt, 32), BACKOFF_LAST_SECONDS / (1 + RETRY_JITTER))
    return jittered(base, f"{key}/{attempt}", RETRY_JITTER)
