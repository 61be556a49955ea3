"""Plans of moving responses between ranks: the recipes' two-stage rebalance, and our drop of a gear. Pure.

Every rank computes the same plan from the same numbers, so there is no coordinator and a tie is broken by rank.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

CACHE_LIMIT = 0.8
"""A rank whose cache is fuller receives nothing (cann-recipes-train, rollout_optimize)."""


@dataclass(frozen=True)
class Load:
    """What a rank reports."""

    running: int
    waiting: int = 0
    usage: float = 0.0
    """Share of its cache that is in use, from 0 to 1."""


@dataclass(frozen=True)
class Move:
    """Some responses go from one rank to another."""

    source: int
    target: int
    count: int
    cached: bool
    """The responses run and take their cache along."""


def plan_two_stages(loads: Sequence[Load], gears: Sequence[int], limit: int) -> tuple[Move, ...]:
    """Return the moves of the recipes: waiting responses to idle ranks, then running ones if all ranks can drop a gear.

    `gears` ascend; `limit` is the largest number of running responses of a rank. As in cann-recipes-train, a rank with
    waiting responses receives none, and a receiver takes at most running × (1 - usage) / usage, which ignores how far
    its own responses still grow.
    """
    sizes = [_gear(load.running + load.waiting, gears) for load in loads]
    before = max(sizes)
    mean = sum(load.running + load.waiting for load in loads) / len(loads)
    target = min(before, gears[-1], limit)
    target = next((gear for gear in gears if mean <= gear < target), target)
    room = {rank: _room(load, target) for rank, load in enumerate(loads) if not load.waiting}
    room = {rank: count for rank, count in room.items() if count > 0}
    moves, left = _hand_out_waiting(loads, room)
    if left or target >= before:
        return tuple(moves)
    surplus = {
        rank: load.running - target
        for rank, load in enumerate(loads)
        if not load.waiting and load.usage <= CACHE_LIMIT and load.running > target
    }
    return (*moves, *_hand_out_running(surplus, room))


def _gear(count: int, gears: Sequence[int]) -> int:
    index = bisect.bisect_left(gears, count)
    return gears[index] if index < len(gears) else count


def _room(load: Load, target: int) -> int:
    if load.usage > CACHE_LIMIT:
        return 0
    free = target - load.running
    if free <= 0 or load.usage <= 0:
        return free
    return min(free, int(load.running * (1 - load.usage) / load.usage))


def _hand_out_waiting(loads: Sequence[Load], room: dict[int, int]) -> tuple[list[Move], int]:
    """Return the moves of waiting responses, each to the receiver with the fewest, and how many remain."""
    waiting = sum(load.waiting for load in loads)
    given = dict.fromkeys(room, 0)
    for _ in range(waiting):
        open_ = [rank for rank in room if given[rank] < room[rank]]
        if not open_:
            break
        given[min(open_, key=lambda rank: (loads[rank].running + given[rank], rank))] += 1
    moves, left = [], waiting - sum(given.values())
    receivers = [[rank, count] for rank, count in given.items() if count]
    for source, load in enumerate(loads):
        owed = load.waiting
        while owed and receivers:
            target, count = receivers[0]
            taken = min(owed, count)
            moves.append(Move(source, target, taken, cached=False))
            owed -= taken
            receivers[0][1] -= taken
            if not receivers[0][1]:
                receivers.pop(0)
    for rank, count in given.items():
        room[rank] -= count
    return moves, left


def _hand_out_running(surplus: dict[int, int], room: dict[int, int]) -> list[Move]:
    """Return the moves of running responses: receivers by room, donors in turn."""
    moves = []
    donors = sorted(surplus)
    turn = 0
    for target in sorted(room, key=lambda rank: (-room[rank], rank)):
        free = room[target]
        while free and donors:
            source = donors[turn % len(donors)]
            count = min(surplus[source], free)
            moves.append(Move(source, target, count, cached=True))
            free -= count
            surplus[source] -= count
            if surplus[source]:
                turn += 1
            else:
                donors.remove(source)
    return moves


@dataclass(frozen=True)
class Running:
    """A response that could move."""

    request: int
    cached: int
    """Tokens in the cache."""
    expected: int
    """Tokens that it will have in the cache at its end, by estimate."""


def plan_drop(running: Sequence[Sequence[Running]], gear: int, free: Sequence[int]) -> list[tuple[Running, int, int]]:
    """Return (response, source, target) for the moves after which no rank runs more than `gear`; empty if impossible.

    Donors give what has the least in its cache, because its bytes are the cost. A receiver needs a row and room for
    what the response will need by its end, and the emptiest one is asked first, so that a donor's responses go to few
    ranks. `free` are the tokens that each rank's cache has left. Either every rank drops or none moves.
    """
    room = {rank: gear - len(held) for rank, held in enumerate(running) if len(held) < gear}
    tokens = {rank: free[rank] for rank in room}
    moves = []
    for source, held in enumerate(running):
        for response in sorted(held, key=lambda one: (one.cached, one.request))[: max(0, len(held) - gear)]:
            able = [rank for rank in room if tokens[rank] >= response.expected]
            if not able:
                return []
            target = max(able, key=lambda rank: (room[rank], tokens[rank], -rank))
            moves.append((response, source, target))
            tokens[target] -= response.expected
            room[target] -= 1
            if not room[target]:
                del room[target]
    return moves
