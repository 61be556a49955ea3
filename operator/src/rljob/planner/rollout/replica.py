"""One replica during a simulation: its events, and what policies do at them.

Between two events, which are the end of a response, a check of a periodic policy and a cache that fills up, every
running response gains one token per step. So a window between events is one multiplication, and a rollout of 8,192
responses takes about as many windows, however long the responses are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rljob.planner.rollout.moves import Load, Running, plan_drop, plan_two_stages
from rljob.planner.rollout.outcome import GearChange, Totals
from rljob.planner.rollout.policies import Policy, Rebalance
from rljob.planner.rollout.queueing import Queue
from rljob.planner.rollout.state import Ranks
from rljob.planner.rollout.step_time import StepTime
from rljob.planner.rollout.traces import RolloutRequest

UNBOUNDED = 1 << 60
WORTH = 1.5
"""A drop must save this many times its cost."""
RECENT = 64
"""After the end of this many responses, the estimate of how fast they end forgets half."""
GROWTH = 1.5
"""Length that a response is expected to reach, as a multiple of what it has: beyond t tokens, a lognormal distribution
with the sigma of the published DeepSeek-V3 run (0.95) adds about 0.4 t."""
FEWER = 0.98
"""A drop for which caches had no room is tried again when this share of the responses is left."""


@dataclass(frozen=True)
class Engine:
    """One replica: ranks that decode in lockstep."""

    ranks: int
    sequences: int
    """Largest number of responses that a rank decodes at a time (max_num_seqs)."""
    step_time: StepTime
    cache_tokens: int | None = None
    """Tokens that the cache of a rank holds; None if it is never full."""
    prefill_seconds: float = 0.0
    """Seconds for each token of a prompt; the other ranks wait."""
    move_seconds: float = 0.0
    """Seconds to move one token of a cache over a link."""
    check_seconds: float = 0.0
    """Seconds in which all ranks exchange their loads."""


Source = Callable[[Ranks], Queue]
"""Makes the queue of a replica's ranks."""


class Replica:
    """The state of a replica."""

    def __init__(self, requests: Sequence[RolloutRequest], engine: Engine, policy: Policy, source: Source) -> None:
        self._requests, self._engine, self._policy = requests, engine, policy
        self.ranks = Ranks(requests, engine.ranks, engine.cache_tokens)
        self.totals = Totals()
        self.finishes: list[float] = []
        self.gears: list[GearChange] = []
        self._queue = source(self.ranks)
        self._done = [0] * len(requests)
        """Tokens that a response had when its cache was dropped."""
        self._ends: list[tuple[int, int]] = []
        self._step = 0
        self._exposure, self._ended = 0.0, 0.0
        self._too_many = len(requests) + 1
        self._longest_of: dict[int, int] = {}
        """Longest finished response of each prompt."""
        self._asked, self._answer = (-1, -1, -1), 0.0
        """Changes of the ranks, step and number of steps of the last duration, and that duration."""

    @property
    def busy(self) -> bool:
        """Whether a response runs."""
        return self.ranks.live > 0

    def begin(self) -> None:
        """Let the first responses run."""
        self._admit()

    def next_seconds(self) -> float:
        """Return when the next event is, in seconds since the start of the rollout."""
        return self.totals.seconds + self._duration(self._next_event() - self._step)

    def advance(self) -> None:
        """Decode until the next event, and do what follows from it."""
        ended = self._decode_until_event()
        self._preempt()
        self._admit()
        match self._policy.rebalance:
            case Rebalance.PERIODIC if self._step % self._policy.interval == 0:
                self._rebalance_periodically()
                self._admit()
            case Rebalance.EVENT if ended:
                self._drop_gear()

    def _decode_until_event(self) -> int:
        """Decode, and return how many responses finished."""
        begin = self._step
        until = self._next_event()
        self._decode(until - begin)
        self._step = until
        ended = 0
        while self._ends and self._ends[0][0] <= until:
            end, index = heapq.heappop(self._ends)
            # A preempted response ends later than was noted.
            if self.ranks.home[index] >= 0 and self._end(index) == end:
                self.ranks.remove(index, until, self.totals.seconds)
                self._queue.finished(index)
                request = self._requests[index]
                self._longest_of[request.prompt] = max(request.tokens, self._longest_of.get(request.prompt, 0))
                self.finishes.append(self.totals.seconds)
                ended += 1
        self._ended += ended
        if self._ended > RECENT:
            self._exposure, self._ended = self._exposure / 2, self._ended / 2
        return ended

    def _next_event(self) -> int:
        until = self._ends[0][0]
        if (full := self.ranks.next_full()) is not None:
            until = min(until, full)
        if self._policy.rebalance is Rebalance.PERIODIC:
            interval = self._policy.interval
            until = min(until, (self._step // interval + 1) * interval)
        return until

    def _end(self, index: int) -> int:
        return self.ranks.begin[index] + self._requests[index].tokens

    def _duration(self, steps: int) -> float:
        """Return the seconds of the next steps. A replica is asked again and again while others have their events."""
        ranks, asked = self.ranks, (self.ranks.changes, self._step, steps)
        if self._asked != asked:
            gear = self._policy.gear(ranks.largest)
            cached = ranks.fullest(self._step + steps / 2)
            seconds = self._engine.step_time.seconds(gear, ranks.longest(self._step), cached, steps)
            self._asked, self._answer = asked, seconds
        return self._answer

    def _decode(self, steps: int) -> None:
        ranks, totals = self.ranks, self.totals
        gear = self._policy.gear(ranks.largest)
        if not self.gears or self.gears[-1].gear != gear:
            self.gears.append(GearChange(self._step, totals.seconds, gear))
        seconds = self._duration(steps)
        totals.windows += 1
        totals.steps += steps
        totals.seconds += seconds
        totals.idle_rank_seconds += ranks.empty * seconds
        totals.row_seconds += gear * self._engine.ranks * seconds
        totals.padded_row_seconds += (gear * (self._engine.ranks - ranks.empty) - ranks.live) * seconds
        self._exposure += ranks.live * steps

    def _admit(self) -> None:
        """Let waiting responses run where there is a row and room in the cache; all ranks wait for their prompts."""
        tokens: dict[int, int] = {}
        for index, rank in self._queue.admissible(self._engine.sequences, self._room):
            self.ranks.add(index, rank, self._step, self._done[index])
            heapq.heappush(self._ends, (self._end(index), index))
            tokens[rank] = tokens.get(rank, 0) + self._requests[index].prompt_tokens + self._done[index]
            self.totals.recomputed_tokens += self._done[index]
        if tokens:
            self._stop_for(prefill=max(tokens.values()) * self._engine.prefill_seconds)

    def _room(self, index: int, rank: int) -> bool:
        needed = self._requests[index].prompt_tokens + self._done[index] + 1
        return self.ranks.has_room(rank, self._step, needed)

    def _stop_for(self, prefill: float = 0.0, move: float = 0.0) -> None:
        totals = self.totals
        totals.prefill_seconds += prefill
        totals.move_seconds += move
        totals.seconds += prefill + move
        totals.idle_rank_seconds += self.ranks.empty * (prefill + move)

    def _preempt(self) -> None:
        """Drop the cache of the newest response of a rank that is full, as vLLM does; it is computed again later."""
        for rank in self.ranks.overflowing(self._step):
            while self.ranks.free(rank, self._step) < 0:
                index = next(reversed(self.ranks.all[rank].running))
                self._done[index] = self._step - self.ranks.begin[index]
                self.ranks.remove(index, self._step, self.totals.seconds)
                self._queue.preempted(index, rank)
                self.totals.preemptions += 1

    def _rebalance_periodically(self) -> None:
        ranks, engine = self.ranks, self._engine
        loads = [Load(len(rank.running), len(rank.waiting), self._usage(i)) for i, rank in enumerate(ranks.all)]
        carried: list[tuple[int, int, int]] = []
        for move in plan_two_stages(loads, self._policy.gears, engine.sequences):
            if not move.cached:
                self._queue.hand_over(move.source, move.target, move.count)
                self.totals.moves += move.count
                continue
            for _ in range(move.count):
                index = next(reversed(ranks.all[move.source].running))
                carried.append((index, move.source, move.target))
                ranks.move(index, move.target, self._step, self.totals.seconds)
        self._carry(carried)

    def _usage(self, rank: int) -> float:
        capacity = self._engine.cache_tokens
        return 0.0 if capacity is None else 1 - self.ranks.free(rank, self._step) / capacity

    def _carry(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Count (response, source, target); every rank waits for the link with the most tokens."""
        links: dict[tuple[int, int], int] = {}
        for index, source, target in moves:
            tokens = self.ranks.tokens(index, self._step)
            self.totals.moved_tokens += tokens
            for end in ((source, 0), (target, 1)):
                links[end] = links.get(end, 0) + tokens
        self.totals.moves += len(moves)
        slowest = max(links.values(), default=0)
        self._stop_for(move=self._engine.check_seconds + slowest * self._engine.move_seconds)

    def _drop_gear(self) -> None:
        """Move responses if all ranks then fit into a smaller gear, and if it saves more than it costs."""
        ranks, policy = self.ranks, self._policy
        now = policy.gear(ranks.largest)
        if not ranks.live or self._queue.size or ranks.live > self._too_many:
            return
        for gear in policy.gears:
            if gear >= now:
                return
            if ranks.live <= gear * self._engine.ranks and self._pays(now, gear):
                moves = plan_drop(*self._movable(gear))
                if moves:
                    self._too_many = len(self._requests) + 1
                    self._carry([(one.request, source, target) for one, source, target in moves])
                    for one, _, target in moves:
                        ranks.move(one.request, target, self._step, self.totals.seconds)
                else:
                    self._too_many = int(ranks.live * FEWER)
                return

    def _pays(self, now: int, gear: int) -> bool:
        """Return whether a drop saves enough, by how fast responses end and what the surplus has in its caches."""
        engine, ranks = self._engine, self.ranks
        context, cached = ranks.longest(self._step), ranks.fullest(self._step)
        slow, fast = (engine.step_time.seconds(size, context, cached, 1) for size in (now, gear))
        # The fullest rank would get there by itself after the ends of its surplus, one after the other.
        rate = max(1.0, self._ended) / self._exposure
        steps = sum(1 / count for count in range(gear + 1, ranks.largest + 1)) / rate
        surplus = max(ranks.largest - gear, 0)
        cost = engine.check_seconds + surplus * (cached / ranks.largest) * engine.move_seconds
        return (slow - fast) * steps > WORTH * cost

    def _movable(self, gear: int) -> tuple[list[list[Running]], int, list[int]]:
        """Return the running responses of each rank, the gear, and the tokens that each cache will have left."""
        ranks, step, capacity = self.ranks, self._step, self._engine.cache_tokens
        running = [[Running(i, ranks.tokens(i, step), self._expected(i)) for i in rank.running] for rank in ranks.all]
        if capacity is None:
            return running, gear, [UNBOUNDED] * len(running)
        return running, gear, [capacity - sum(one.expected for one in held) for held in running]

    def _expected(self, index: int) -> int:
        request = self._requests[index]
        grown = int(GROWTH * (self._step - self.ranks.begin[index]))
        return request.prompt_tokens + max(grown, self._longest_of.get(request.prompt, 0))
