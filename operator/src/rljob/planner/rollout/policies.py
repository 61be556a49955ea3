"""Policies: who decodes which response, for which batch sizes graphs exist, and when responses move between ranks."""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rljob.planner.rollout.traces import RolloutRequest


class Placement(enum.Enum):
    """Which rank gets which response at the start."""

    ADJACENT = "adjacent"
    """The responses to one prompt stay together: contiguous parts of the batch, as verl split it up to 0.6."""
    INTERLEAVED = "interleaved"
    """First copies of all prompts, then second ones: every rank gets responses to many prompts."""
    LONGEST_FIRST = "longest-first"
    """Dealt in turns by the true lengths. No policy knows them; this is what placement could gain at most."""


class Rebalance(enum.Enum):
    """When running responses move to other ranks."""

    NEVER = "never"
    PERIODIC = "periodic"
    """The recipes' two stages, every `interval` steps."""
    EVENT = "event"
    """Ours: as soon as all ranks together fit into a smaller gear, and only if it pays."""


class Admission(enum.Enum):
    """Which waiting response is decoded next."""

    ARRIVAL = "arrival"
    """Each rank its own, in the order of arrival."""
    LONGEST_ESTIMATE = "longest-estimate"
    """Ours: one queue for all ranks; prompts of which no response has finished first, then the longest estimates."""


@dataclass(frozen=True)
class Policy:
    """One way to decode a batch."""

    name: str
    placement: Placement
    gears: tuple[int, ...]
    """Captured batch sizes, ascending. A single one means that every step costs as much as a full batch."""
    rebalance: Rebalance = Rebalance.NEVER
    interval: int = 1000
    """Steps between the checks of a periodic rebalance."""
    admission: Admission = Admission.ARRIVAL

    def gear(self, running: int) -> int:
        """Return the captured size that a number of running responses needs; the number itself above all sizes."""
        index = bisect.bisect_left(self.gears, running)
        return self.gears[index] if index < len(self.gears) else running


def place(requests: Sequence[RolloutRequest], ranks: int, placement: Placement) -> list[list[int]]:
    """Return the numbers of the requests of each rank, in the order of arrival. Counts differ by one at most."""
    order = list(range(len(requests)))
    if placement is Placement.LONGEST_FIRST:
        order.sort(key=lambda index: (-requests[index].tokens, index))
        dealt: list[list[int]] = [[] for _ in range(ranks)]
        for position, index in enumerate(order):
            turn, rank = divmod(position, ranks)
            dealt[rank if turn % 2 == 0 else ranks - 1 - rank].append(index)
        return dealt
    if placement is Placement.INTERLEAVED:
        seen: dict[int, int] = {}
        copies = []
        for request in requests:
            copies.append(seen.get(request.prompt, 0))
            seen[request.prompt] = copies[-1] + 1
        order.sort(key=lambda index: (copies[index], index))
    edges = [len(order) * rank // ranks for rank in range(ranks + 1)]
    return [order[begin:end] for begin, end in itertools.pairwise(edges)]


def policies(gears: Sequence[int], *, batch: int | None = None, waiting: bool = False) -> tuple[Policy, ...]:
    """Return the published policies and ours for engines with these captured sizes.

    The policy with one size has the smallest that holds `batch`, the largest number of responses of a rank. `waiting`
    adds the policy that matters only where more responses are sent than decoded at a time.
    """
    sizes = tuple(sorted(gears))
    one = next((size for size in sizes if batch is not None and size >= batch), sizes[-1])
    late = Policy("late binding + gears", Placement.INTERLEAVED, sizes, admission=Admission.LONGEST_ESTIMATE)
    return (
        Policy("adjacent", Placement.ADJACENT, (one,)),
        Policy("adjacent + gears", Placement.ADJACENT, sizes),
        Policy("two-stage rebalance", Placement.ADJACENT, sizes, Rebalance.PERIODIC),
        Policy("interleaved + gears", Placement.INTERLEAVED, sizes),
        *([late] if waiting else []),
        Policy("event rebalance", Placement.INTERLEAVED, sizes, Rebalance.EVENT, admission=Admission.LONGEST_ESTIMATE),
    )
