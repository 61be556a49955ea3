"""The queue of keys between events and workers, with the semantics of client-go's workqueue.

Three sets make it level-triggered. `dirty` holds the keys that need work, `processing` those that a worker has, and the
queue itself the keys that are dirty and not processing, in order. Adding a dirty key changes nothing, so a thousand
events cost one round. A key that turns dirty while a worker has it is not given to a second worker; it goes back into
the queue when the first one is done, so no event is lost and no key is ever in two hands.

There are three lanes, since a thousand jobs that are made at once must not hold up those that have NPUs. To begin is
five requests, and the API server may take a second for one: that has one turn of sixteen while jobs wait that have
begun (at one of four, these still waited for half a minute), and one of 64 while new ones wait to be looked at. A look
is no request, unless it is to be answered, and has one turn of four. Nor may a lane have more keys in hand than
`at_once` says. A key whose lane changes while it waits goes to its new one. Within a lane groups of keys, here the
jobs of a namespace, come by turns: whoever makes a thousand jobs holds up only his own.

Delays are kept in a heap: of several wishes for one key the earliest wins. Backoff grows by failure from half a second
to five minutes; its jitter is a hash of the key and the attempt, so that a run can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from rljob.core.jitter import jittered

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from rljob.telemetry.metrics import Metrics

Key = TypeVar("Key")

BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_LAST_SECONDS = 300.0
RETRY_JITTER = 0.2
"""Keys that failed together must not return together."""


TOGETHER_SECONDS = 0.5
"""Longer delays end on half seconds of the clock: the polls of one cost one waking up, and not a dozen of them."""
TOGETHER_FROM_SECONDS = 10.0
"""A delay may be stretched by a twentieth at most."""


class Lane(enum.StrEnum):
    """Which keys wait for which others: what stands first goes first."""

    BEGUN = "begun"
    """Of a job that may have NPUs."""
    NEW = "new"
    """Of a job that nobody has looked at yet, as it is now."""
    TO_BEGIN = "to_begin"
    """Of a job with which all is well, and for which nothing was made yet."""


TURNS = {Lane.NEW: 4, Lane.TO_BEGIN: 16}
"""While others wait, one turn of so many is that of the lane, or of one with fewer turns: nothing waits for ever."""
TURNS_BEHIND_NEW = 64
"""The same of jobs that are to begin, while others wait to be looked at: that takes seconds at most, for a thousand."""


class Waiting(Generic[Key]):
    """Keys that wait in one lane: those of a group in the order in which they came, and the groups by turns."""

    def __init__(self, group_of: Callable[[Key], Hashable]) -> None:
        self._group_of = group_of
        self._groups: OrderedDict[Hashable, OrderedDict[Key, None]] = OrderedDict()
        self._since: dict[Key, float] = {}

    def put(self, key: Key, since: float) -> None:
        """Let a key wait, which does not wait yet; a group that had none waits for one key of each other."""
        self._since[key] = since
        self._groups.setdefault(self._group_of(key), OrderedDict())[key] = None

    def take(self) -> tuple[Key, float]:
        """Take the next key, and tell since when it waits."""
        group, keys = next(iter(self._groups.items()))
        key = next(iter(keys))
        self._groups.move_to_end(group)
        return key, self.leave(key)

    def leave(self, key: Key) -> float:
        """Let a key that waits go, and tell since when it waits."""
        group = self._group_of(key)
        del self._groups[group][key]
        if not self._groups[group]:
            del self._groups[group]
        return self._since.pop(key)

    def __contains__(self, key: Key) -> bool:
        """Whether a key waits."""
        return key in self._since

    def __len__(self) -> int:
        """How many keys wait."""
        return len(self._since)


class KeyQueue(Generic[Key]):
    """Keys that need a round; one event loop only."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        metrics: Metrics,
        lane_of: Callable[[Key], Lane] = lambda _: Lane.BEGUN,
        at_once: Mapping[Lane, int] | None = None,
        group_of: Callable[[Key], Hashable] = lambda _: None,
    ) -> None:
        self._monotonic = monotonic
        self._at_once = at_once or {}
        self._in_hand: dict[Lane, set[Key]] = {lane: set() for lane in Lane}
        self._metrics = metrics
        self._lane_of = lane_of
        self._lanes: dict[Lane, Waiting[Key]] = {lane: Waiting(group_of) for lane in Lane}
        self._turn = 0
        self._dirty: set[Key] = set()
        self._processing: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0
        self._wake = asyncio.Event()
        self._waiting = asyncio.Lock()
        """One worker waits for the next key, and the others for their turn: a key rouses one of them."""
        for lane in Lane:
            metrics.queue_wait_seconds.labels(lane)
        metrics.queue_depth.set_function(lambda: len(self))
        metrics.queue_longest_running.set_function(self._longest_running)

    def add(self, key: Key) -> None:
        """Ask for a round as soon as possible."""
        self._due.pop(key, None)
        if key in self._dirty:
            self._change_lanes(key)
            return
        self._dirty.add(key)
        self._metrics.queue_adds.inc()
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a round after a delay; an earlier wish stands, and a key that is dirty needs no other."""
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
            # Else the worker that waits wakes up before it in any case.
            self._wake.set()

    def add_failed(self, key: Key, at_least_seconds: float = 0.0) -> float:
        """Ask for another round after this key's backoff; gives the delay."""
        attempt = self._failures.get(key, 0)
        self._failures[key] = attempt + 1
        self._metrics.queue_retries.inc()
        delay = max(backoff_seconds(str(key), attempt), at_least_seconds)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """Start the key's backoff anew: its round went well."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """How often the key failed in a row."""
        return self._failures.get(key, 0)

    def get_nowait(self) -> Key | None:
        """Take the next key, or None; it stays in processing until `done`."""
        self._promote()
        lane = self._next_lane()
        if lane is None:
            return None
        key, since = self._lanes[lane].take()
        now = self._monotonic()
        self._dirty.discard(key)
        self._processing[key] = now
        self._in_hand[lane].add(key)
        self._metrics.queue_wait_seconds.labels(lane).observe(now - since)
        return key

    async def get(self) -> Key:
        """Wait for the next key."""
        async with self._waiting:
            while (key := self.get_nowait()) is None:
                self._wake.clear()
                delay = self.next_due_seconds()
                try:
                    async with asyncio.timeout(delay):
                        await self._wake.wait()
                except TimeoutError:
                    continue
            return key

    def again(self, key: Key) -> bool:
        """Go on with a key that is held and has turned dirty, instead of giving it back; whether it had."""
        if key not in self._dirty:
            return False
        self._dirty.discard(key)
        return True

    def done(self, key: Key) -> None:
        """Give a key back; if it turned dirty meanwhile, it waits for its next round."""
        self._metrics.queue_work_seconds.observe(self._monotonic() - self._processing.pop(key))
        for held in self._in_hand.values():
            held.discard(key)
        if key in self._dirty:
            self._enqueue(key)
        elif len(self):
            # They may have waited for a hand of their lane.
            self._wake.set()

    def next_due_seconds(self) -> float | None:
        """Seconds until the earliest delayed key, or None."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - self._monotonic()) if self._heap else None

    def __len__(self) -> int:
        """How many keys wait for a worker, delayed ones not counted."""
        return sum(map(len, self._lanes.values()))

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is at work; delayed keys may be."""
        return not len(self) and not self._processing

    def _next_lane(self) -> Lane | None:
        """Name the lane whose turn it is."""
        waiting = [lane for lane in Lane if self._lanes[lane] and self._has_a_hand(lane)]
        if len(waiting) > 1:
            self._turn += 1
            turns = TURNS | ({Lane.TO_BEGIN: TURNS_BEHIND_NEW} if Lane.NEW in waiting else {})
            # Those that stand last have the fewest turns, and give none of them away.
            return next((lane for lane in reversed(waiting) if self._turn % turns.get(lane, 1) == 0), waiting[0])
        return waiting[0] if waiting else None

    def _has_a_hand(self, lane: Lane) -> bool:
        return len(self._in_hand[lane]) < self._at_once.get(lane, math.inf)

    def _enqueue(self, key: Key) -> None:
        self._lanes[self._lane_of(key)].put(key, self._monotonic())
        self._wake.set()

    def _change_lanes(self, key: Key) -> None:
        """Let a key that waits go to the lane that is now its own; what is in somebody's hands goes there after."""
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
    """Give the delay after the n-th failure in a row, counted from 0; the same for the same key and attempt."""
    base = min(BACKOFF_FIRST_SECONDS * 2.0 ** min(attempt, 32), BACKOFF_LAST_SECONDS / (1 + RETRY_JITTER))
    return jittered(base, f"{key}/{attempt}", RETRY_JITTER)
