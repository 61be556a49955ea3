"""Responses that wait for a row: one queue for each rank, or one for all."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from rljob.planner.rollout.state import Ranks
from rljob.planner.rollout.traces import RolloutRequest

Room = Callable[[int, int], bool]
"""Whether the cache of a rank has room for a response to begin."""


class Queue(Protocol):
    """Where responses wait."""

    @property
    def size(self) -> int:
        """Number of waiting responses."""

    def admissible(self, limit: int, room: Room) -> Iterator[tuple[int, int]]:
        """Yield (response, rank) and remove it, as long as there are rows; the caller starts each immediately."""

    def finished(self, index: int) -> None:
        """Note that a response is finished."""

    def preempted(self, index: int, rank: int) -> None:
        """Take back a response of a rank."""

    def hand_over(self, source: int, target: int, count: int) -> None:
        """Let the last responses of one rank wait at another."""


class RankQueues:
    """Every rank has its own responses, in the order of arrival."""

    def __init__(self, placed: Sequence[Sequence[int]], ranks: Ranks) -> None:
        self._ranks = ranks
        self.size = sum(map(len, placed))
        for rank, numbers in zip(ranks.all, placed, strict=True):
            rank.waiting.extend(numbers)

    def admissible(self, limit: int, room: Room) -> Iterator[tuple[int, int]]:
        """Yield the first of each rank."""
        if not self.size:
            return
        for number, rank in enumerate(self._ranks.all):
            while rank.waiting and len(rank.running) < limit and room(rank.waiting[0], number):
                self.size -= 1
                yield rank.waiting.popleft(), number

    def finished(self, index: int) -> None:
        """Nothing depends on it."""

    def preempted(self, index: int, rank: int) -> None:
        """Put it in front, as vLLM does."""
        self.size += 1
        self._ranks.all[rank].waiting.appendleft(index)

    def hand_over(self, source: int, target: int, count: int) -> None:
        """Move the last ones."""
        for _ in range(count):
            self._ranks.all[target].waiting.append(self._ranks.all[source].waiting.pop())


class Pool:
    """Responses that wait for any rank of any replica, in the order of their prompts' estimates.

    First comes one response of every prompt, then the others of prompts of which no response has finished, because
    they may be the longest, then those with the longest estimate. The estimate of a prompt is its longest finished
    response.
    """

    def __init__(self, requests: Sequence[RolloutRequest]) -> None:
        self._requests = requests
        self.size = len(requests)
        self._groups: dict[int, deque[int]] = {}
        for index, request in enumerate(requests):
            self._groups.setdefault(request.prompt, deque()).append(index)
        self._estimate: dict[int, int] = {}
        self._order = dict.fromkeys(self._groups, (0, 0))
        """(class, minus the estimate) of each prompt; the smallest is next."""
        self._next = [(0, 0, prompt) for prompt in self._groups]
        heapq.heapify(self._next)

    def first(self) -> int:
        """Return the next response; there must be one."""
        return self._groups[self._next_prompt()][0]

    def take(self) -> None:
        """Remove the next response."""
        prompt = self._next_prompt()
        self._groups[prompt].popleft()
        self.size -= 1
        if self._order[prompt] == (0, 0):
            self._rate(prompt, (1, 0))

    def put(self, index: int) -> None:
        """Put a response back, in front of its prompt's others."""
        prompt = self._requests[index].prompt
        self.size += 1
        self._groups[prompt].appendleft(index)
        self._rate(prompt, self._order[prompt])

    def learn(self, index: int) -> None:
        """Raise the estimate of a finished response's prompt."""
        request = self._requests[index]
        self._estimate[request.prompt] = max(request.tokens, self._estimate.get(request.prompt, 0))
        self._rate(request.prompt, (2, -self._estimate[request.prompt]))

    def _next_prompt(self) -> int:
        while True:
            kind, estimate, prompt = self._next[0]
            if self._groups[prompt] and self._order[prompt] == (kind, estimate):
                return prompt
            heapq.heappop(self._next)

    def _rate(self, prompt: int, order: tuple[int, int]) -> None:
        self._order[prompt] = order
        heapq.heappush(self._next, (*order, prompt))


class SharedQueue:
    """A replica's view of the pool."""

    def __init__(self, pool: Pool, ranks: Ranks) -> None:
        self._pool, self._ranks = pool, ranks

    @property
    def size(self) -> int:
        """Number of waiting responses."""
        return self._pool.size

    def admissible(self, limit: int, room: Room) -> Iterator[tuple[int, int]]:
        """Yield the next response and the rank that runs the fewest."""
        while self._pool.size:
            index = self._pool.first()
            able = [
                (len(rank.running), number)
                for number, rank in enumerate(self._ranks.all)
                if len(rank.running) < limit and room(index, number)
            ]
            if not able:
                return
            self._pool.take()
            yield index, min(able)[1]

    def finished(self, index: int) -> None:
        """Raise the estimate of its prompt."""
        self._pool.learn(index)

    def preempted(self, index: int, rank: int) -> None:
        """Let it wait in front of its prompt's others."""
        del rank
        self._pool.put(index)

    def hand_over(self, source: int, target: int, count: int) -> None:
        """Nothing waits at a rank."""
