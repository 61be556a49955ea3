"""Micro-batches whose context-parallel groups fit their sequences, for a stack with dynamic context parallelism.

With plain context parallelism every sequence is split over as many dies as the longest one needs. Here the dies of each
micro-batch are partitioned into groups of several sizes: a long sequence gets the dies that it needs for memory, or
more if it would delay the others; short ones are packed on single dies. The plan is compared with one for plain context
parallelism under the same costs, and the cheaper one is returned. All sizes are powers of two and every group begins at
a multiple of its size, so that the communicators are few and exist before the first step.

`dynamic_context.missing` says whether a Megatron-Core can run such plans; the pinned one cannot.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

ROUNDING = 1e-9
"""The time of a sequence is within reach of its own limit in spite of rounding."""


class PackingError(ValueError):
    """The sizes permit no plan."""


@dataclass(frozen=True)
class Cost:
    """Time of a sequence of s tokens on a group of g dies, in any unit: (a s + b s^2) / g + c s (g - 1) / g."""

    linear: float
    quadratic: float
    ring: float
    """Per token, for the exchange of keys and values."""

    def of(self, tokens: int, size: int) -> float:
        """Return the time."""
        return (self.linear * tokens + self.quadratic * tokens * tokens + self.ring * tokens * (size - 1)) / size

    def longest(self, budget: float, size: int) -> int:
        """Return a length that costs no more than the budget, the longest one up to rounding."""
        per_token = self.linear + self.ring * (size - 1)
        total = max(budget, 0.0) * size
        # The root of the quadratic in the form without a difference of nearly equal numbers.
        return int(2 * total / (per_token + sqrt(per_token * per_token + 4 * self.quadratic * total)))


@dataclass(frozen=True)
class Group:
    """Neighbouring dies, and the sequences that they compute together, one after the other."""

    first: int
    size: int
    sequences: tuple[int, ...]
    """Indices of the lengths."""


Plan = tuple[tuple[Group, ...], ...]


@dataclass(frozen=True)
class Packing:
    """The micro-batches of a step."""

    micro_batches: Plan
    seconds: float
    """Time of the step in the unit of the cost: all micro-batches, and the largest once more per further stage."""
    plain_seconds: float
    """The same with plain context parallelism."""
    is_plain: bool
    """Whether this is the plan with plain context parallelism."""


@dataclass(frozen=True)
class Machine:
    """What a plan is for."""

    dies: int
    """Data-parallel times context-parallel dies of a pipeline stage."""
    tokens_per_die: int
    """Most tokens of a micro-batch on a die."""
    cost: Cost
    stages: int = 1
    """Pipeline stages."""


def pack(lengths: Sequence[int], machine: Machine) -> Packing:
    """Return the micro-batches of a step for sequences of these lengths."""
    _check(lengths, machine)
    plain_size = least_size(max(lengths), machine.tokens_per_die)
    every_size = tuple(1 << power for power in range(machine.dies.bit_length()))
    plain_plan = _fill(lengths, machine, (plain_size,), raised=False)
    filled = (_fill(lengths, machine, every_size, raised=raised) for raised in (False, True))
    dynamic = [tuple(_occupy(groups, lengths, machine) for groups in plan) for plan in filled]
    plain_seconds = step_seconds(plain_plan, lengths, machine)
    seconds, number = min((step_seconds(plan, lengths, machine), number) for number, plan in enumerate(dynamic))
    if plain_seconds <= seconds:
        return Packing(plain_plan, plain_seconds, plain_seconds, is_plain=True)
    return Packing(dynamic[number], seconds, plain_seconds, is_plain=False)


def _check(lengths: Sequence[int], machine: Machine) -> None:
    if machine.dies < 1 or machine.dies & (machine.dies - 1):
        raise PackingError(f"{machine.dies} dies: data × context parallelism must be a power of two")
    cost = machine.cost
    if cost.linear <= 0 or cost.quadratic < 0 or cost.ring < 0:
        raise PackingError(f"{cost}: the linear term must be positive, the others 0 or more")
    if not lengths or min(lengths) < 1:
        raise PackingError("every sequence needs 1 token or more, and a step 1 sequence or more")
    if max(lengths) > machine.dies * machine.tokens_per_die:
        raise PackingError(
            f"a sequence of {max(lengths)} tokens exceeds {machine.dies} dies × {machine.tokens_per_die} tokens; raise "
            "the tokens per die, or shorten the responses"
        )


def least_size(tokens: int, per_die: int) -> int:
    """Return the smallest power of two of dies that hold a sequence."""
    return 1 << (-(-tokens // per_die) - 1).bit_length()


class _Rest:
    """Sequences that are in no micro-batch yet, from short to long."""

    def __init__(self, lengths: Sequence[int], machine: Machine, least: int) -> None:
        self._order = sorted(range(len(lengths)), key=lambda index: lengths[index])
        self.lengths = [lengths[index] for index in self._order]
        sizes = [max(least, least_size(tokens, machine.tokens_per_die)) for tokens in self.lengths]
        of = machine.cost.of
        self._times = [of(tokens, size) * size for tokens, size in zip(self.lengths, sizes, strict=True)]
        self.tokens = sum(lengths)
        self.die_time = sum(self._times)
        """Time on all dies of a group together, if no group is larger than memory requires."""

    def take(self, longest: int) -> tuple[int, int] | None:
        """Remove the longest sequence up to a length; return its index and length, None if there is none."""
        place = bisect_right(self.lengths, longest) - 1
        if place < 0:
            return None
        tokens = self.lengths.pop(place)
        self.tokens -= tokens
        self.die_time -= self._times.pop(place)
        return self._order.pop(place), tokens


def _fill(lengths: Sequence[int], machine: Machine, sizes: Sequence[int], *, raised: bool) -> Plan:
    """Return micro-batches: each takes the longest sequence left, and what else ends no later.

    With `raised`, the longest one gets the number of dies on which it ends first, not just those that its memory needs.
    """
    rest = _Rest(lengths, machine, sizes[0])
    plan: list[tuple[Group, ...]] = []
    while rest.lengths:
        for_memory = -(-rest.tokens // (machine.dies * machine.tokens_per_die))
        left = max(for_memory, machine.stages - len(plan), 1)
        longest = rest.lengths[-1]
        spans = [machine.cost.of(longest, size) for size in sizes if size * machine.tokens_per_die >= longest]
        span = min(spans) if raised else spans[0]
        limit = max(span, rest.die_time / (machine.dies * left)) * (1 + ROUNDING)
        plan.append(_micro_batch(rest, machine, sizes, limit))
    return tuple(plan)


def _micro_batch(rest: _Rest, machine: Machine, sizes: Sequence[int], limit: float) -> tuple[Group, ...]:
    """Take sequences for the groups of a micro-batch that ends within the limit."""
    cost, per_die, take = machine.cost, machine.tokens_per_die, rest.take
    reach = {size: min(size * per_die, cost.longest(limit, size)) for size in sizes}
    groups: list[tuple[int, list[int]]] = []
    free = machine.dies
    while free >= sizes[0] and (found := take(max(reach[size] for size in sizes if size <= free))):
        index, tokens = found
        size = next(size for size in sizes if reach[size] >= tokens)
        members, load, room = [index], cost.of(tokens, size), size * per_die - tokens
        while found := take(min(room, cost.longest(limit - load, size))):
            members.append(found[0])
            load += cost.of(found[1], size)
            room -= found[1]
        groups.append((size, members))
        free -= size
    if not groups:
        raise AssertionError("the longest sequence is within reach of its own limit")
    return _placed(groups)


def _placed(groups: Sequence[tuple[int, Sequence[int]]]) -> tuple[Group, ...]:
    """Return the groups on dies: the largest first, so that each begins at a multiple of its size."""
    placed, first = [], 0
    for size, members in sorted(groups, key=lambda each: -each[0]):
        placed.append(Group(first, size, tuple(members)))
        first += size
    return tuple(placed)


def _occupy(groups: Sequence[Group], lengths: Sequence[int], machine: Machine) -> tuple[Group, ...]:
    """Spread the sequences of single dies evenly over what the larger groups leave, then enlarge groups."""
    larger = [(group.size, list(group.sequences)) for group in groups if group.size > 1]
    short = [index for group in groups if group.size == 1 for index in group.sequences]
    free = machine.dies - sum(size for size, _ in larger)
    even = _spread(short, min(free, len(short)), lengths, machine)
    single = even if even is not None else [list(group.sequences) for group in groups if group.size == 1]
    filled = larger + [(1, members) for members in single]
    empty = machine.dies - sum(size for size, _ in filled)
    while empty:
        # The number of empty dies is a multiple of the smallest size, so that one group at least can double.
        loads = [
            sum(machine.cost.of(lengths[index], size) for index in members) if size <= empty else -1.0
            for size, members in filled
        ]
        slowest = loads.index(max(loads))
        size, members = filled[slowest]
        filled[slowest] = (2 * size, members)
        empty -= size
    return _placed(filled)


def _spread(short: Sequence[int], parts: int, lengths: Sequence[int], machine: Machine) -> list[list[int]] | None:
    """Return the sequences in parts of similar time, the longest first to the least loaded; None if one is too long."""
    heap = [(0.0, number) for number in range(parts)]
    members: list[list[int]] = [[] for _ in range(parts)]
    for index in sorted(short, key=lambda index: -lengths[index]):
        load, number = heap[0]
        members[number].append(index)
        heapq.heapreplace(heap, (load + machine.cost.of(lengths[index], 1), number))
    fits = all(sum(lengths[index] for index in part) <= machine.tokens_per_die for part in members)
    return members if fits else None


def step_seconds(plan: Plan, lengths: Sequence[int], machine: Machine) -> float:
    """Return the time of a step in the unit of the cost."""
    spans = [max(_load(group, lengths, machine.cost) for group in groups) for groups in plan]
    return sum(spans) + (machine.stages - 1) * max(spans)


def _load(group: Group, lengths: Sequence[int], cost: Cost) -> float:
    return sum(cost.of(lengths[index], group.size) for index in group.sequences)
