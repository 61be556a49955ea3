"""Micro-batches with context-parallel groups of several sizes: what holds for all lengths, and what is gained."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.planning.context_groups import Cost, Machine, Packing, PackingError, least_size, pack, step_seconds

COST = Cost(linear=24576.0, quadratic=1.0, ring=2457.6)
"""verl 0.9.1's workload of a 7B model (verl/utils/seqlen_balancing.py:46); for the ring a tenth of the linear term."""


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], Machine]:
    dies, per_die = 1 << draw(st.integers(0, 4)), draw(st.integers(1, 60))
    longest = st.integers(1, dies * per_die)
    lengths = draw(st.lists(st.one_of(longest, st.integers(1, per_die)), min_size=1, max_size=60))
    number = st.floats(0, 1e3, allow_subnormal=False)
    cost = Cost(draw(st.floats(1e-3, 1e3)), draw(number), draw(number))
    return lengths, Machine(dies, per_die, cost, draw(st.integers(1, 4)))


def check(packing: Packing, lengths: list[int], machine: Machine) -> None:
    """Fail unless each sequence is placed once, within memory, in aligned groups that do not overlap."""
    placed = [index for groups in packing.micro_batches for group in groups for index in group.sequences]
    assert sorted(placed) == list(range(len(lengths)))
    for groups in packing.micro_batches:
        taken: set[int] = set()
        for group in groups:
            dies = set(range(group.first, group.first + group.size))
            assert not dies & taken
            assert max(dies) < machine.dies
            assert group.first % group.size == 0
            assert group.size & (group.size - 1) == 0
            assert sum(lengths[index] for index in group.sequences) <= group.size * machine.tokens_per_die
            taken |= dies
        assert packing.is_plain or len(taken) == machine.dies, "a die has no work"


@given(problems())
def test_each_token_is_placed_once_and_no_plan_is_slower_than_plain(problem: tuple[list[int], Machine]) -> None:
    lengths, machine = problem
    packing = pack(lengths, machine)
    check(packing, lengths, machine)
    assert packing.seconds <= packing.plain_seconds
    assert packing.seconds == step_seconds(packing.micro_batches, lengths, machine)
    assert packing == pack(lengths, machine)


@given(problems())
def test_the_longest_length_within_a_budget_costs_no_more(problem: tuple[list[int], Machine]) -> None:
    lengths, machine = problem
    for size in (1, 2, machine.dies):
        budget = machine.cost.of(lengths[0], size)
        longest = machine.cost.longest(budget * (1 + 1e-9), size)
        assert longest >= lengths[0]
        assert machine.cost.of(longest, size) <= budget * (1 + 1e-6)


def lognormal(count: int, mean_of_logs: float, deviation: float) -> list[int]:
    generator = random.Random(0)  # noqa: S311 - lengths of a test
    return [min(32768, max(1, int(generator.lognormvariate(mean_of_logs, deviation)))) for _ in range(count)]


@pytest.mark.parametrize(("mean_of_logs", "deviation"), [(6.8, 1.0), (8.63, 0.73)], ids=["short", "32k"])
def test_lengths_of_responses_gain_a_tenth_and_more(mean_of_logs: float, deviation: float) -> None:
    lengths = lognormal(2048, mean_of_logs, deviation)
    machine = Machine(dies=32, tokens_per_die=4096, cost=COST)
    packing = pack(lengths, machine)
    check(packing, lengths, machine)
    assert packing.plain_seconds / packing.seconds > 1.1


def test_plain_groups_win_if_every_sequence_needs_all_dies() -> None:
    packing = pack([100] * 6, Machine(dies=4, tokens_per_die=25, cost=COST))
    assert packing.is_plain
    assert [group.size for groups in packing.micro_batches for group in groups] == [4] * 6


def test_a_long_sequence_gets_more_dies_than_its_memory_needs() -> None:
    # On one die it would take longer than all others together.
    packing = pack([1000] + [10] * 40, Machine(dies=8, tokens_per_die=1000, cost=Cost(1.0, 1.0, 0.0)))
    (holder,) = (group for groups in packing.micro_batches for group in groups if 0 in group.sequences)
    assert holder.size == 8
    assert not packing.is_plain


def test_few_sequences_share_all_dies() -> None:
    lengths, machine = [100, 40], Machine(dies=8, tokens_per_die=100, cost=Cost(1.0, 0.01, 0.0))
    packing = pack(lengths, machine)
    check(packing, lengths, machine)
    # One after the other on all dies, they take 32; beside each other on four each, 50.
    assert packing.seconds == pytest.approx(32)


def test_the_smallest_size_holds_the_sequence() -> None:
    assert [least_size(tokens, 10) for tokens in (1, 10, 11, 20, 21, 41)] == [1, 1, 2, 2, 4, 8]


@pytest.mark.parametrize(
    ("lengths", "machine", "message"),
    [
        ([1], Machine(6, 10, COST), "6 dies: data × context parallelism must be a power of two"),
        ([], Machine(4, 10, COST), "every sequence needs 1 token or more"),
        ([0], Machine(4, 10, COST), "every sequence needs 1 token or more"),
        ([41], Machine(4, 10, COST), "a sequence of 41 tokens exceeds 4 dies × 10 tokens; raise"),
        ([1], Machine(4, 10, Cost(0.0, 1.0, 0.0)), "the linear term must be positive"),
    ],
)
def test_sizes_without_a_plan_name_the_fix(lengths: list[int], machine: Machine, message: str) -> None:
    with pytest.raises(PackingError, match=message):
        pack(lengths, machine)
