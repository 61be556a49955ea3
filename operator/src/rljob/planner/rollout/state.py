"""The ranks of an engine during a simulation: which responses run and wait where, and what their caches hold."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rljob.planner.rollout.traces import RolloutRequest

BLOCK = 128
"""Tokens of a block of the cache (vllm-ascend 0.23.0, platform.py: block_size of NPUs)."""


@dataclass
class Rank:
    """The responses of a rank."""

    running: dict[int, None] = field(default_factory=dict)
    """In the order in which they came, as in vLLM's scheduler."""
    waiting: deque[int] = field(default_factory=deque)
    offset: int = 0
    """The cache holds len(running) × step + offset tokens."""
    last_busy: float = 0.0
    """When its last response ended or left."""
    version: int = 0
    """Counts changes of the running responses."""

    def cached(self, step: float) -> float:
        """Return the tokens in the cache at a step."""
        return len(self.running) * step + self.offset


class Ranks:
    """All ranks, and the facts about them that the simulation asks for at every event."""

    def __init__(self, requests: Sequence[RolloutRequest], ranks: int, capacity: int | None) -> None:
        self._requests = requests
        self._capacity = capacity
        self.all = [Rank() for _ in range(ranks)]
        self.home = [-1] * len(requests)
        """Rank of each running response; -1 for others."""
        self.begin = [0] * len(requests)
        """Step at which each response would have had no token."""
        self.live = 0
        """Number of running responses."""
        self.largest = 0
        """Largest number of running responses of a rank."""
        self.changes = 0
        """How often a response has begun or ended to run on a rank."""
        self._by_size = [ranks] + [0] * len(requests)
        self._oldest: list[tuple[int, int]] = []
        self._full: list[tuple[int, int, int]] = []

    @property
    def empty(self) -> int:
        """Number of ranks without a running response."""
        return self._by_size[0]

    def add(self, index: int, rank: int, step: int, done: int) -> None:
        """Let a response run that has `done` tokens already."""
        self.begin[index] = step - done
        heapq.heappush(self._oldest, (self.begin[index], index))
        self._enter(index, rank, step)

    def remove(self, index: int, step: int, seconds: float) -> int:
        """Take a response from its rank, which is returned."""
        rank = self.home[index]
        held = self.all[rank]
        del held.running[index]
        held.offset -= self._requests[index].prompt_tokens - self.begin[index]
        held.last_busy = seconds
        self.home[index] = -1
        self._resize(len(held.running) + 1, len(held.running))
        self.live -= 1
        self._changed(rank, step)
        return rank

    def move(self, index: int, rank: int, step: int, seconds: float) -> None:
        """Continue a running response elsewhere, with its cache."""
        self.remove(index, step, seconds)
        self._enter(index, rank, step)

    def longest(self, step: int) -> int:
        """Return the tokens of the longest running response; there must be one."""
        while True:
            begin, index = self._oldest[0]
            if self.home[index] >= 0 and self.begin[index] == begin:
                return step - begin
            heapq.heappop(self._oldest)

    def fullest(self, step: float) -> float:
        """Return the tokens in the fullest cache."""
        return max([len(rank.running) * step + rank.offset for rank in self.all])

    def tokens(self, index: int, step: int) -> int:
        """Return the tokens of a running response in the cache."""
        return step - self.begin[index] + self._requests[index].prompt_tokens

    def has_room(self, rank: int, step: int, tokens: int) -> bool:
        """Return whether a rank has free blocks for this many tokens."""
        if self._capacity is None:
            return True
        held = self.all[rank]
        # Each response has less than one block that is not full, so this is often sure without counting blocks.
        surely = self._capacity - held.cached(step) - (len(held.running) + 1) * BLOCK
        return surely >= tokens or self.free(rank, step) >= tokens

    def free(self, rank: int, step: int) -> int:
        """Return the tokens for which a rank, whose cache has a bound, has free blocks; negative if it overflows."""
        return ((self._capacity or 0) // BLOCK - self._blocks(rank, step)) * BLOCK

    def next_full(self) -> int | None:
        """Return the step at which a cache overflows if no response ends before."""
        while self._full:
            step, version, rank = self._full[0]
            if self.all[rank].version == version:
                return step
            heapq.heappop(self._full)
        return None

    def overflowing(self, step: int) -> list[int]:
        """Return the ranks whose cache is too small at a step, and look again at those that only might be full."""
        found = []
        while (when := self.next_full()) is not None and when <= step:
            rank = heapq.heappop(self._full)[2]
            if self.free(rank, step) < 0:
                found.append(rank)
            else:
                self._changed(rank, step)
        return found

    def _enter(self, index: int, rank: int, step: int) -> None:
        held = self.all[rank]
        held.running[index] = None
        held.offset += self._requests[index].prompt_tokens - self.begin[index]
        self.home[index] = rank
        self._resize(len(held.running) - 1, len(held.running))
        self.live += 1
        self._changed(rank, step)

    def _resize(self, before: int, after: int) -> None:
        self._by_size[before] -= 1
        self._by_size[after] += 1
        self.largest = max(self.largest, after)
        while self.largest and not self._by_size[self.largest]:
            self.largest -= 1

    def _changed(self, rank: int, step: int) -> None:
        """Note when the cache of a rank is full at the latest."""
        held = self.all[rank]
        held.version += 1
        self.changes += 1
        if self._capacity is None or not held.running:
            return
        # Each response has less than one block that is not full.
        surely = self._capacity - int(held.cached(step)) - len(held.running) * BLOCK
        steps = surely // len(held.running) if surely > 0 else self._steps_to_overflow(rank, step)
        heapq.heappush(self._full, (step + max(1, steps), held.version, rank))

    def _blocks(self, rank: int, step: int) -> int:
        begin, requests = self.begin, self._requests
        return sum([-((begin[one] - step - requests[one].prompt_tokens) // BLOCK) for one in self.all[rank].running])

    def _steps_to_overflow(self, rank: int, step: int) -> int:
        """Return the number of steps after which the running responses need more blocks than there are."""
        running = self.all[rank].running
        free = self.free(rank, step) // BLOCK
        if free < 0:
            return 0
        rounds, rest = divmod(free, len(running))
        until = sorted(-self.tokens(index, step) % BLOCK for index in running)
        return rounds * BLOCK + until[rest] + 1
