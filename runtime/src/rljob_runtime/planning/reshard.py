"""Which die sends which part of which weight to which die, when trained weights change to the layout of the rollout.

Each weight is an array in the coordinates of the checkpoint, and a shard is a box of it. Every die receives exactly the
cells that it needs and does not hold, each once; no plan for the same places of the ranks moves fewer bytes. The places
are chosen too: rollout ranks are interchangeable, so each goes to the die that already holds most of its shard.

verl 0.9.1 has no use for such a plan: a colocated run is forced to gather whole tensors (checkpoint engine `naive`,
verl/trainer/ppo/v1/trainer_base.py:382), and a custom engine is given gathered tensors. `benchmarks.planners` prints
what a plan would save.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from rljob_runtime.planning.assignment import assign

Box = tuple[tuple[int, int], ...]
"""Per dimension the first cell and the one after the last."""
Holdings = Mapping[str, tuple[Box, ...]]
"""Boxes of one die by weight. Boxes of one weight are disjoint; a weight that is not held is absent."""


class ReshardError(ValueError):
    """The layouts permit no plan."""


@dataclass(frozen=True)
class Weight:
    """An array of cells. A cell is what no layout splits, such as a row, or one expert of a layer."""

    extent: tuple[int, ...]
    cell_bytes: int


@dataclass(frozen=True)
class Move:
    """A part that one die sends to another, or copies if both are the same."""

    weight: str
    box: Box
    source: int
    target: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """All moves, and the die of each target rank."""

    places: tuple[int, ...]
    moves: tuple[Move, ...] = field(repr=False)

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes that each die sends to others."""
        return self._sums((move.source, move) for move in self.moves)

    @property
    def received(self) -> tuple[int, ...]:
        """Bytes that each die receives from others."""
        return self._sums((move.target, move) for move in self.moves)

    def _sums(self, moves: Iterable[tuple[int, Move]]) -> tuple[int, ...]:
        sums = [0] * len(self.places)
        for die, move in moves:
            if move.source != move.target:
                sums[die] += move.bytes
        return tuple(sums)


def volume(box: Box) -> int:
    """Return the number of cells."""
    return prod(last - first for first, last in box)


def intersection(one: Box, other: Box) -> Box | None:
    """Return the cells that are in both, None if there are none."""
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return both if all(first < last for first, last in both) else None


@dataclass(frozen=True)
class _Source:
    """The distinct boxes of the dies, and who holds each."""

    holders: Mapping[str, Mapping[Box, tuple[int, ...]]]

    def pieces(self, name: str, box: Box) -> Iterator[tuple[Box, tuple[int, ...]]]:
        """Yield the parts of a box that are held, each with its holders."""
        for held, dies in self.holders.get(name, {}).items():
            if (part := intersection(held, box)) is not None:
                yield part, dies


def reshard(
    weights: Mapping[str, Weight],
    source: Sequence[Holdings],
    target: Sequence[Holdings],
    *,
    node: int = 1,
    places: Sequence[int] | None = None,
) -> Plan:
    """Return the plan from what each die holds to what each target rank needs.

    `node` is the number of dies that share a node: a holder there is preferred. `places` are the dies of the target
    ranks; without them they are chosen. Dies without weights, before or after, have empty holdings.
    """
    if len(source) != len(target):
        raise ReshardError(f"{len(source)} dies hold weights, {len(target)} ranks need some; list every die in both")
    held = _Source(_holders(weights, source))
    chosen = tuple(places) if places is not None else best_places(weights, source, target)
    if sorted(chosen) != list(range(len(source))):
        raise ReshardError(f"places {chosen}: name each of the {len(source)} dies once")
    return Plan(chosen, tuple(_moves(weights, held, target, chosen, node)))


def _holders(weights: Mapping[str, Weight], source: Sequence[Holdings]) -> dict[str, dict[Box, tuple[int, ...]]]:
    found: dict[str, dict[Box, tuple[int, ...]]] = {name: {} for name in weights}
    for die, holdings in enumerate(source):
        for name, boxes in holdings.items():
            for box in boxes:
                found[name][box] = (*found[name].get(box, ()), die)
    for name, boxes_held in found.items():
        for one, other in _overlapping(sorted(boxes_held)):
            raise ReshardError(f"{name}: dies hold {one} and {other}, which overlap in part; split them alike")
    return found


def _overlapping(boxes: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    """Yield pairs of different boxes that share cells; the boxes are in order of their first dimension."""
    for index, one in enumerate(boxes):
        for other in boxes[index + 1 :]:
            if other[0][0] >= one[0][1]:
                break
            if intersection(one, other) is not None:
                yield one, other


def _moves(
    weights: Mapping[str, Weight],
    held: _Source,
    target: Sequence[Holdings],
    places: Sequence[int],
    node: int,
) -> Iterator[Move]:
    """Yield copies, then transfers from the holder that has sent least so far, large ones first."""
    wanted: list[tuple[int, str, Box, tuple[int, ...], int]] = []
    for rank, die in enumerate(places):
        for name, boxes in target[rank].items():
            for box in boxes:
                missing = volume(box)
                for part, dies in held.pieces(name, box):
                    missing -= volume(part)
                    size = volume(part) * weights[name].cell_bytes
                    if die in dies:
                        yield Move(name, part, die, die, size)
                    else:
                        wanted.append((size, name, part, dies, die))
                if missing:
                    raise ReshardError(f"{name}: {missing} cells of {box}, which rank {rank} needs, are on no die")
    sent = [0] * len(places)
    for size, name, part, dies, die in sorted(wanted, key=lambda each: -each[0]):
        near = [holder for holder in dies if holder // node == die // node]
        chosen = min(near or dies, key=lambda holder: sent[holder])
        sent[chosen] += size
        yield Move(name, part, chosen, die, size)


def best_places(
    weights: Mapping[str, Weight], source: Sequence[Holdings], target: Sequence[Holdings]
) -> tuple[int, ...]:
    """Return the die of each target rank, so that the dies already hold as much as possible."""
    return tuple(assign(kept_bytes(weights, source, target)))


def kept_bytes(
    weights: Mapping[str, Weight], source: Sequence[Holdings], target: Sequence[Holdings]
) -> list[list[int]]:
    """Return for each target rank, by die, the bytes of its shard that the die holds."""
    kinds: dict[tuple[tuple[str, tuple[Box, ...]], ...], list[int]] = {}
    """Dies with equal holdings: data-parallel replicas hold the same."""
    for die, holdings in enumerate(source):
        kinds.setdefault(tuple(sorted(holdings.items())), []).append(die)
    table = []
    for needed in target:
        row = [0] * len(source)
        for kind, dies in kinds.items():
            kept = _common_bytes(weights, needed, dict(kind))
            for die in dies:
                row[die] = kept
        table.append(row)
    return table


def _common_bytes(weights: Mapping[str, Weight], needed: Holdings, held: Holdings) -> int:
    total = 0
    for name, boxes in needed.items():
        parts = (intersection(one, other) for one in boxes for other in held.get(name, ()))
        total += sum(volume(part) for part in parts if part is not None) * weights[name].cell_bytes
    return total


def needed_bytes(weights: Mapping[str, Weight], holdings: Holdings) -> int:
    """Return the bytes of a shard."""
    return sum(weights[name].cell_bytes * volume(box) for name, boxes in holdings.items() for box in boxes)


def even_bounds(length: int, parts: int) -> list[tuple[int, int]]:
    """Return the ranges of a dimension that is split into parts, the first of which have one cell more if needed."""
    base, extra = divmod(length, parts)
    ends = [0]
    for part in range(parts):
        ends.append(ends[-1] + base + (part < extra))
    return list(pairwise(ends))
