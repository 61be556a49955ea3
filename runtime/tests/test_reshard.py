"""Plans from the layout of training to that of the rollout: carried out on data, and counted against their bound."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.reshard import (
    Box,
    Holdings,
    Plan,
    ReshardError,
    Weight,
    best_places,
    kept_bytes,
    needed_bytes,
    reshard,
)
from rljob_runtime.planning.shapes import Experts, Latent, Shape
from rljob_runtime.planning.weight_layouts import (
    Serving,
    Training,
    places_and_order,
    serving,
    training,
    weights_of,
)

Cells: TypeAlias = NDArray[np.int64]
Marks: TypeAlias = NDArray[np.bool_]
GIB = 1 << 30
MOE = Experts(count=16, chosen=2, width=32, shared_width=0, shared_gate=False, first_layer=0, every=1)
TINY = Shape(
    name="tiny",
    source="this test",
    layers=8,
    hidden=64,
    heads=8,
    kv_heads=2,
    head=8,
    width=128,
    vocabulary=32,
    tied=False,
    experts=MOE,
)
DENSE = Shape(
    name="dense",
    source="this test",
    layers=8,
    hidden=64,
    heads=8,
    kv_heads=8,
    head=8,
    width=128,
    vocabulary=32,
    tied=True,
)
FLAGSHIP = BUILT_IN["Qwen3-235B-A22B"]

ROWS = {"first": Weight((8,), 1), "second": Weight((8,), 1)}
TOY_SOURCE: list[Holdings] = [
    {"first": (((0, 4),),)},
    {"first": (((4, 8),),)},
    {"second": (((0, 4),),)},
    {"second": (((4, 8),),)},
]
"""Two matrices of eight rows on two pipeline stages with two tensor ranks each."""
TOY_TARGET: list[Holdings] = [dict.fromkeys(ROWS, (((2 * rank, 2 * rank + 2),),)) for rank in range(4)]
"""Four tensor ranks."""


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(first, last) for first, last in box)


def carry_out(weights: dict[str, Weight], source: list[Holdings], target: list[Holdings], plan: Plan) -> None:
    """Move cells as planned, each filled with its coordinates, and fail unless every rank has its shard."""
    truth: dict[str, Cells] = {
        name: np.arange(np.prod(weight.extent)).reshape(weight.extent) + 1_000_003 * number
        for number, (name, weight) in enumerate(weights.items())
    }
    before = [{name: np.full_like(cells, -1) for name, cells in truth.items()} for _ in source]
    after = [{name: np.full_like(cells, -1) for name, cells in truth.items()} for _ in source]
    for die, holdings in enumerate(source):
        for name, boxes in holdings.items():
            for box in boxes:
                before[die][name][slices(box)] = truth[name][slices(box)]
    for move in plan.moves:
        place = slices(move.box)
        assert (after[move.target][move.weight][place] == -1).all(), "a cell arrives twice"
        after[move.target][move.weight][place] = before[move.source][move.weight][place]
    for rank, holdings in enumerate(target):
        held = after[plan.places[rank]]
        for name, cells in held.items():
            wanted = np.full_like(cells, -1)
            for box in holdings.get(name, ()):
                wanted[slices(box)] = truth[name][slices(box)]
            assert (cells == wanted).all()


def bound(weights: dict[str, Weight], source: list[Holdings], target: list[Holdings], plan: Plan) -> int:
    """Return the bytes that must be moved for these places, counted cell by cell."""
    total = 0
    for rank, holdings in enumerate(target):
        for name, weight in weights.items():
            needed: Marks = np.zeros(weight.extent, dtype=bool)
            held: Marks = np.zeros(weight.extent, dtype=bool)
            for box in holdings.get(name, ()):
                needed[slices(box)] = True
            for box in source[plan.places[rank]].get(name, ()):
                held[slices(box)] = True
            total += int((needed & ~held).sum()) * weight.cell_bytes
    return total


def test_places_of_the_ranks_reduce_twelve_rows_to_eight() -> None:
    fixed = reshard(ROWS, TOY_SOURCE, TOY_TARGET, places=range(4))
    assert sum(fixed.received) == 12
    chosen = reshard(ROWS, TOY_SOURCE, TOY_TARGET)
    assert sum(chosen.received) == sum(chosen.sent) == 8
    for plan in (fixed, chosen):
        carry_out(ROWS, TOY_SOURCE, TOY_TARGET, plan)


LAYOUTS = [
    (shape, tensor, pipeline, expert, rollout)
    for shape in (TINY, DENSE)
    for tensor, pipeline, expert in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    for rollout in (1, 2, 4, 8)
    if 8 % (tensor * pipeline) == 0 and 8 % (expert * pipeline) == 0 and (shape is TINY or expert == 1)
]


@pytest.mark.parametrize(("shape", "tensor", "pipeline", "expert", "rollout"), LAYOUTS)
def test_every_rank_gets_its_shard_with_no_byte_too_many(
    shape: Shape, tensor: int, pipeline: int, expert: int, rollout: int
) -> None:
    weights = weights_of(shape)
    source = training(shape, Training(tensor, pipeline, expert), 8)
    target = serving(shape, Serving(rollout), 8)
    plan = reshard(weights, source, target, node=4)
    carry_out(weights, source, target, plan)
    assert sum(plan.received) == bound(weights, source, target, plan)
    unplaced = reshard(weights, source, target, places=range(8))
    assert sum(plan.received) <= sum(unplaced.received)
    assert plan == reshard(weights, source, target, node=4)


def test_a_free_order_of_experts_keeps_attention_and_experts() -> None:
    weights = weights_of(FLAGSHIP)
    source = training(FLAGSHIP, Training(tensor=4, pipeline=4, expert=32), 128)
    target = serving(FLAGSHIP, Serving(tensor=4), 128)
    assert needed_bytes(weights, target[0]) / GIB == pytest.approx(7.1, abs=0.02)
    fixed = reshard(weights, source, target)
    places, order = places_and_order(FLAGSHIP, source, target)
    ordered = serving(FLAGSHIP, Serving(tensor=4), 128, order)
    free = reshard(weights, source, ordered, places=places)
    assert sum(fixed.received) / 128 / GIB == pytest.approx(5.92, abs=0.01)
    # No die holds more of any shard than of the one that it gets.
    most_kept = sum(map(max, zip(*kept_bytes(weights, source, ordered), strict=True)))
    assert sum(free.received) == sum(needed_bytes(weights, shard) for shard in ordered) - most_kept
    assert sum(free.received) / 128 / GIB == pytest.approx(5.32, abs=0.01)
    # Only the dies of a stage have its layers; within each of them all send the same.
    for stage in range(4):
        sent = free.sent[32 * stage : 32 * stage + 32]
        assert max(sent) / (sum(sent) / 32) <= 1.05


def test_stages_may_be_uneven() -> None:
    source = training(TINY, Training(tensor=1, pipeline=2, expert=1, stages=(3, 5)), 2)
    assert source[1]["query"] == (((3, 8), (0, 8)),)
    with pytest.raises(ReshardError, match=r"stages \(3, 4\) do not hold 8 layers"):
        training(TINY, Training(tensor=1, pipeline=2, expert=1, stages=(3, 4)), 2)


def test_more_ranks_than_experts_leave_some_without() -> None:
    target = serving(TINY, Serving(tensor=1), 32)
    assert "experts" in target[15]
    assert "experts" not in target[16]


def test_a_holder_on_the_same_node_is_preferred() -> None:
    weights = {"rows": Weight((2,), 1)}
    needed: Holdings = {"rows": (((0, 2),),)}
    source: list[Holdings] = [needed, {}, needed, {}]
    target: list[Holdings] = [needed, needed, {}, {}]
    # The first rank is on die 3; of all holders, die 0 would be the first one that has sent nothing.
    plan = reshard(weights, source, target, node=2, places=(3, 1, 0, 2))
    assert [(move.source, move.target) for move in plan.moves] == [(2, 3), (0, 1)]


@pytest.mark.parametrize(
    ("source", "target", "places", "message"),
    [
        ([{}], [{}, {}], None, "1 dies hold weights, 2 ranks need some"),
        ([{}, {}], [{}, {}], (0, 0), "name each of the 2 dies once"),
        ([{"first": (((0, 4),),)}, {"first": (((2, 8),),)}], [{}, {}], None, "overlap in part"),
        ([{"first": (((0, 4),),)}, {}], [{"first": (((2, 8),),)}, {}], (0, 1), "first: 4 cells of .* are on no die"),
    ],
)
def test_layouts_without_a_plan_are_refused(
    source: list[Holdings], target: list[Holdings], places: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(ReshardError, match=message):
        reshard(ROWS, source, target, places=places)


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ReshardError, match="no multiple of pipeline"):
        training(TINY, Training(tensor=1, pipeline=3, expert=1), 8)
    with pytest.raises(ReshardError, match="no multiple of tensor 3"):
        serving(TINY, Serving(tensor=3), 8)
    with pytest.raises(ReshardError, match="fewer experts than 2 dies"):
        places_and_order(DENSE, [{}, {}], [{}, {}])


def test_models_that_are_not_described_are_refused() -> None:
    with pytest.raises(ReshardError, match="latent attention is not supported"):
        weights_of(BUILT_IN["DeepSeek-V3"])
    mixed = Shape(**{**vars(TINY), "experts": Experts(**{**vars(MOE), "first_layer": 1})})
    with pytest.raises(ReshardError, match="dense layers or shared experts"):
        weights_of(mixed)
    assert isinstance(BUILT_IN["DeepSeek-V3"].latent, Latent)


def test_best_places_are_a_permutation() -> None:
    assert sorted(best_places(ROWS, TOY_SOURCE, TOY_TARGET)) == [0, 1, 2, 3]
