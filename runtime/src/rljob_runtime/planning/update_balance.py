"""Place the samples of a batch so that data-parallel ranks finish each optimizer update at the same time.

Every rank trains one mini-batch of its list per update, and the update ends with the slowest rank. verl 0.9.1 balances
the list of a rank as a whole (trainer/ppo/v1/trainer_base.py:1608) and then cuts it into mini-batches, which are
unequal. Here each mini-batch of each rank is a bin of its own: equal in number of samples, as even as possible in
workload. The trainer's plug-in calls it; it is pure, and deterministic for a list of workloads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PRECISION = 1e-4
"""Bins that differ by no more than this share of their mean are even."""
ROUNDS = 8
"""Rounds of exchanges between paired bins: the first few remove almost all of the difference."""
STEPS = 64
"""Exchanges tried with the largest bin of an update, at most."""

UPDATE_PASSES = 3
"""An update computes forward and backward, and the backward pass costs twice the forward pass."""

Placement = Sequence[Sequence[Sequence[int]]]
"""Indices of samples by update and rank."""


@dataclass(frozen=True)
class Times:
    """What a placement costs, in the unit of the workloads."""

    by_update: tuple[int, ...]
    """The slowest rank's workload of each update."""
    one_pass: int
    """The slowest rank's workload over all updates: a pass without gradients waits only at its end."""
    ideal: tuple[float, ...]
    """The mean workload of the ranks in each update."""

    @property
    def waiting(self) -> float:
        """Return the share of the ranks' time at updates that is spent waiting for the slowest, from 0 to 1."""
        return 1 - sum(self.ideal) / sum(self.by_update)

    @property
    def step(self) -> int:
        """Return the cost of all updates and of one pass without gradients, such as the one for log-probabilities."""
        return UPDATE_PASSES * sum(self.by_update) + self.one_pass


def times(placement: Placement, workloads: Sequence[int]) -> Times:
    """Return what a placement costs. Workloads are positive."""
    loads = [[sum(workloads[sample] for sample in share) for share in update] for update in placement]
    ranks = [sum(update[rank] for update in loads) for rank in range(len(loads[0]))]
    return Times(tuple(map(max, loads)), max(ranks), tuple(sum(update) / len(update) for update in loads))


def cut(order: Sequence[int], ranks: int, updates: int) -> Placement:
    """Return the placement of a list as verl makes it: a contiguous part for each rank, and in it one per update.

    single_controller/base/decorator.py, `dispatch_nd_compute_dataproto`, and workers/engine_workers.py:273 (0.9.1).
    """
    size = len(order) // (ranks * updates)
    starts = [[(rank * updates + update) * size for rank in range(ranks)] for update in range(updates)]
    return [[order[start : start + size] for start in update] for update in starts]


def joined(placement: Placement) -> list[int]:
    """Return the list from which `cut` makes the placement."""
    ranks = range(len(placement[0]))
    return [sample for rank in ranks for update in placement for sample in update[rank]]


def place(workloads: Sequence[int], ranks: int, updates: int) -> Placement:
    """Place samples by update and rank, in shares of equal size.

    `workloads` are positive numbers, as many as `ranks` times `updates` divide. A share has its largest sample first:
    ranks compute their micro-batches side by side, so the first of each should be alike.
    """
    count = ranks * updates
    if not workloads or len(workloads) % count:
        raise ValueError(f"{len(workloads)} samples cannot be placed in {updates} updates of {ranks} ranks")
    bins = _dealt(workloads, count)
    _exchange_in_pairs(bins, workloads)
    bins.sort(key=_load, reverse=True)
    groups = [bins[start : start + ranks] for start in range(0, count, ranks)]
    for group in groups:
        _lower_the_largest(group)
    # In the order of the samples, because the size of an update must not depend on how late in the step it is.
    groups.sort(key=lambda group: min(sample for share in group for _, sample in share.items))
    return [[share.largest_first() for share in group] for group in _assigned(groups)]


@dataclass
class _Bin:
    """The share of one rank in one update."""

    load: int
    items: list[tuple[int, int]]
    """Workload and index of each sample, the smallest first."""

    def largest_first(self) -> list[int]:
        return [sample for _, sample in reversed(self.items)]

    def replace(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        del self.items[bisect_left(self.items, old)]
        insort(self.items, new)
        self.load += new[0] - old[0]


def _load(share: _Bin) -> int:
    return share.load


def _dealt(workloads: Sequence[int], count: int) -> list[_Bin]:
    """Deal the samples in rounds, the largest first, and in each round the largest to the smallest bin."""
    order = sorted(zip(workloads, range(len(workloads)), strict=True), reverse=True)
    loads, dealt = [0] * count, [[] for _ in range(count)]  # type: tuple[list[int], list[list[tuple[int, int]]]]
    for start in range(0, len(order), count):
        smallest_first = sorted(range(count), key=loads.__getitem__)
        for number, item in zip(smallest_first, order[start : start + count], strict=True):
            loads[number] += item[0]
            dealt[number].append(item)
    return [_Bin(load, items[::-1]) for load, items in zip(loads, dealt, strict=True)]


def _exchange_in_pairs(bins: list[_Bin], workloads: Sequence[int]) -> None:
    """Pair the largest bin with the smallest, the second with the second smallest, and let each pair exchange."""
    allowed = PRECISION * sum(workloads) / len(bins)
    for _ in range(ROUNDS):
        bins.sort(key=_load)
        if bins[-1].load - bins[0].load <= allowed:
            return
        pairs = zip(bins[: len(bins) // 2], reversed(bins), strict=False)
        if not sum(_exchange(large, small, allowed) for small, large in pairs):
            return


def _exchange(large: _Bin, small: _Bin, allowed: float) -> bool:
    """Exchange two samples so that the loads become as equal as one exchange can make them; say whether it was done."""
    gap = large.load - small.load
    if gap <= allowed:
        return False
    best, found = gap, None
    for item in large.items:
        # The sample of the other bin that is smaller by half of the gap. Whether one is a little more or less does not
        # matter, so only the neighbours of that place are candidates.
        place_of = bisect_left(small.items, (item[0] - gap // 2, -1))
        for other in small.items[max(0, place_of - 1) : place_of + 1]:
            left = abs(gap - 2 * (item[0] - other[0]))
            if left < best:
                best, found = left, (item, other)
        if best <= allowed:
            break
    if found is None:
        return False
    given, taken = found
    large.replace(given, taken)
    small.replace(taken, given)
    return True


def _lower_the_largest(group: list[_Bin]) -> None:
    """Exchange samples between the largest bin of an update and any other of it, as long as that lowers the largest."""
    allowed = PRECISION * sum(share.load for share in group) / len(group)
    for _ in range(STEPS):
        group.sort(key=_load)
        if not any(_exchange(group[-1], other, allowed) for other in group[:-1]):
            return


def _assigned(groups: Sequence[list[_Bin]]) -> Iterator[list[_Bin]]:
    """Give the larger shares of an update to the ranks that have less so far."""
    totals = [0] * len(groups[0])
    for group in groups:
        ranks = sorted(range(len(totals)), key=lambda rank: totals[rank])
        chosen = dict(zip(ranks, sorted(group, key=_load, reverse=True), strict=True))
        for rank, share in chosen.items():
            totals[rank] += share.load
        yield [chosen[rank] for rank in range(len(totals))]
