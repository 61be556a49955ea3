"""Assignments with the largest sum."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.planning import assignment
from rljob_runtime.planning.assignment import assign, exact, greedy

Table = list[list[int]]
TABLES = st.integers(1, 6).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 9), min_size=size, max_size=size), min_size=size, max_size=size)
)


def total(gains: Table, columns: list[int]) -> int:
    assert sorted(columns) == list(range(len(gains)))
    return sum(row[column] for row, column in zip(gains, columns, strict=True))


@given(TABLES)
def test_no_permutation_has_a_larger_sum(gains: Table) -> None:
    size = range(len(gains))
    assert total(gains, exact(gains)) == max(total(gains, list(each)) for each in itertools.permutations(size))


@given(TABLES)
def test_greedy_is_complete_and_no_swap_of_two_helps(gains: Table) -> None:
    columns = greedy(gains)
    reached = total(gains, columns)
    for one, other in itertools.combinations(range(len(gains)), 2):
        swapped = list(columns)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        assert total(gains, swapped) <= reached


def test_greedy_swaps_what_the_order_got_wrong() -> None:
    # The first row takes the column without which the second has nothing.
    assert greedy([[5, 4], [4, 0]]) == [1, 0]


def test_swaps_end_after_some_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "SWEEPS_MAX", 0)
    assert greedy([[5, 4], [4, 0]]) == [0, 1]


def test_large_tables_are_assigned_greedily(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = [[2, 1, 1], [2, 2, 1], [1, 2, 2]]
    assert total(gains, assign(gains)) == 6
    monkeypatch.setattr(assignment, "EXACT_MAX", 1)
    assert assign(gains) == greedy(gains)
