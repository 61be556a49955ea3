"""The plan that places the samples of a batch by update and rank."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.planning.update_balance import cut, joined, place, times

LENGTHS = st.one_of(st.integers(1, 32_768), st.sampled_from([1, 128, 32_768]))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Draw workloads, ranks and updates."""
    ranks, updates, share = draw(st.integers(1, 8)), draw(st.integers(1, 5)), draw(st.integers(1, 12))
    count = ranks * updates * share
    return [work(length) for length in draw(st.lists(LENGTHS, min_size=count, max_size=count))], ranks, updates


def work(length: int) -> int:
    """Return verl's cost of a sample (utils/seqlen_balancing.py:26, 0.9.1)."""
    return 24576 * length + length**2


def lengths_of_answers(count: int, seed: int) -> list[int]:
    """Return lengths distributed as in deepscaler: lognormal, mean 7,345, cut at 32,768."""
    drawn = random.Random(seed)  # noqa: S311 - a fixed trace
    return [max(1, int(min(drawn.lognormvariate(8.63, 0.73), 32_768))) for _ in range(count)]


@given(batches())
def test_every_sample_is_placed_once_and_every_share_has_the_same_size(batch: tuple[list[int], int, int]) -> None:
    workloads, ranks, updates = batch
    placement = place(workloads, ranks, updates)
    assert len(placement) == updates
    assert all(len(update) == ranks for update in placement)
    assert sorted(joined(placement)) == list(range(len(workloads)))
    assert {len(share) for update in placement for share in update} == {len(workloads) // (ranks * updates)}


@given(batches())
def test_the_same_workloads_are_always_placed_alike(batch: tuple[list[int], int, int]) -> None:
    assert place(*batch) == place(*batch)


@given(batches())
def test_a_share_begins_with_its_largest_sample(batch: tuple[list[int], int, int]) -> None:
    workloads = batch[0]
    for share in (share for update in place(*batch) for share in update):
        assert [workloads[sample] for sample in share] == sorted((workloads[s] for s in share), reverse=True)


@given(batches())
def test_a_list_is_cut_into_the_placement_that_it_was_joined_from(batch: tuple[list[int], int, int]) -> None:
    workloads, ranks, updates = batch
    placement = place(workloads, ranks, updates)
    assert cut(joined(placement), ranks, updates) == placement


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("samples", "ranks", "updates"),
    [
        pytest.param(128 * 8, 16, 4, id="code: 16 ranks, 4 updates"),
        pytest.param(64 * 16, 4, 4, id="retool: 4 ranks, 4 updates"),
        pytest.param(512 * 16, 32, 4, id="512 prompts, 32 ranks, 4 updates"),
        pytest.param(512 * 16, 128, 1, id="128 ranks, 1 update"),
        pytest.param(512 * 16, 2, 1, id="235B: 2 ranks, 1 update"),
        pytest.param(512, 32, 1, id="16 samples a rank"),
    ],
)
def test_ranks_hardly_wait_with_the_shapes_of_the_recipes(samples: int, ranks: int, updates: int, seed: int) -> None:
    workloads = [work(length) for length in lengths_of_answers(samples, seed)]
    cost = times(place(workloads, ranks, updates), workloads)
    assert cost.waiting <= 0.001
    assert cost.one_pass <= 1.001 * sum(cost.ideal)


def test_the_largest_shares_are_in_one_update() -> None:
    # A rank with a sample that outweighs all others is waited for in one update, and in no other.
    workloads = [100, 9, 8, 7, 6, 5, 4, 3]
    cost = times(place(workloads, 2, 2), workloads)
    assert cost.by_update == (103, 13)
    assert cost.ideal == (58.0, 13.0)


def test_a_sample_that_outweighs_a_mean_share_bounds_the_update() -> None:
    # Four samples a rank: nothing is faster than the largest with the three smallest.
    workloads = [work(length) for length in lengths_of_answers(512, seed=3)]
    largest, *_, third, second, smallest = sorted(workloads, reverse=True)
    fastest = largest + third + second + smallest
    assert fastest > 1.5 * sum(workloads) / 128
    assert fastest <= times(place(workloads, 128, 1), workloads).by_update[0] <= 1.03 * fastest


def test_equal_samples_are_placed_without_exchanges() -> None:
    assert times(place([5] * 12, 3, 2), [5] * 12).waiting == 0


def test_times_of_a_placement_that_can_be_checked_by_hand() -> None:
    workloads = [1, 2, 3, 4, 5, 6, 7, 8]
    cost = times(cut(range(8), 2, 2), workloads)  # update 0: 1+2 and 5+6, update 1: 3+4 and 7+8
    assert cost.by_update == (11, 15)
    assert cost.one_pass == 26
    assert cost.ideal == (7.0, 11.0)
    assert cost.waiting == pytest.approx(1 - 18 / 26)
    assert cost.step == 3 * 26 + 26


@pytest.mark.parametrize("samples", [0, 7])
def test_a_batch_that_does_not_divide_is_refused(samples: int) -> None:
    with pytest.raises(ValueError, match=f"{samples} samples cannot be placed in 2 updates of 3 ranks"):
        place([1] * samples, 3, 2)
