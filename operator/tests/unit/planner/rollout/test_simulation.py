"""Properties of the simulation that hold whatever the lengths are."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rljob.planner.rollout.outcome import Outcome
from rljob.planner.rollout.policies import Admission, Placement, Policy, Rebalance, place, policies
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.simulation import simulate
from rljob.planner.rollout.step_time import LinearStepTime, Origin
from rljob.planner.rollout.traces import RolloutRequest, Trace

STEP = LinearStepTime(fixed=10.0, row=1.0, cached_million=0.0, source="test")
GEARS = (1, 2, 4, 8)


def trace(groups: list[list[int]], prompt_tokens: int = 0) -> Trace:
    requests = tuple(
        RolloutRequest(number, tokens, prompt_tokens) for number, group in enumerate(groups) for tokens in group
    )
    return Trace("test", requests, Origin.MODELLED, "test")


def engine(ranks: int, sequences: int = 8, cache: int | None = None) -> Engine:
    return Engine(ranks, sequences, STEP, cache, prefill_seconds=1e-4, move_seconds=1e-6, check_seconds=1e-3)


groups = st.lists(st.lists(st.integers(1, 400), min_size=4, max_size=4), min_size=1, max_size=12)
any_policy = st.sampled_from(policies(GEARS, waiting=True))


@settings(max_examples=120, deadline=None)
@given(groups, any_policy, st.integers(1, 5), st.integers(1, 8), st.integers(1, 3), st.booleans())
def test_every_response_finishes_once(
    lengths: list[list[int]], policy: Policy, ranks: int, sequences: int, replicas: int, bounded: bool
) -> None:
    policy = dataclasses.replace(policy, interval=50)
    found = simulate(trace(lengths, 7), engine(ranks, sequences, 768 if bounded else None), policy, replicas)
    assert found.responses == 4 * len(lengths)
    assert list(found.finishes) == sorted(found.finishes)
    assert found.finishes[-1] <= found.makespan + 1e-9
    assert found.makespan >= found.floor - 1e-9
    for share in (found.idle, found.first_idle, found.padding, found.tail):
        assert -1e-9 <= share <= 1


@settings(max_examples=60, deadline=None)
@given(groups)
def test_one_rank_leaves_nothing_to_choose(lengths: list[list[int]]) -> None:
    batch = engine(1, 48)
    found = {
        simulate(trace(lengths), batch, policy).makespan
        for policy in policies(GEARS)
        if policy.gears == GEARS and policy.rebalance is not Rebalance.PERIODIC
    }
    assert max(found) == pytest.approx(min(found))


@settings(max_examples=60, deadline=None)
@given(groups, st.randoms(use_true_random=False))
def test_the_order_of_the_ranks_changes_nothing(lengths: list[list[int]], dice: random.Random) -> None:
    # Adjacent placement gives each rank one prompt.
    shuffled = list(lengths)
    dice.shuffle(shuffled)
    policy = Policy("adjacent", Placement.ADJACENT, GEARS)
    one, other = (simulate(trace(order), engine(len(lengths)), policy) for order in (lengths, shuffled))
    assert one.makespan == pytest.approx(other.makespan)
    assert one.idle == pytest.approx(other.idle)
    assert one.padding == pytest.approx(other.padding)


@settings(max_examples=60, deadline=None)
@given(groups, st.integers(2, 5))
def test_a_drop_never_costs_more_than_it_saves_where_moves_are_free(lengths: list[list[int]], ranks: int) -> None:
    free = dataclasses.replace(engine(ranks, 48), move_seconds=0.0, check_seconds=0.0, prefill_seconds=0.0)
    still = Policy("interleaved", Placement.INTERLEAVED, GEARS)
    moving = dataclasses.replace(still, rebalance=Rebalance.EVENT)
    assert simulate(trace(lengths), free, moving).makespan <= simulate(trace(lengths), free, still).makespan + 1e-9


@given(groups, st.integers(1, 7), st.sampled_from(Placement))
def test_a_placement_gives_every_response_to_one_rank_and_equal_counts(
    lengths: list[list[int]], ranks: int, placement: Placement
) -> None:
    placed = place(trace(lengths).requests, ranks, placement)
    assert sorted(itertools.chain(*placed)) == list(range(4 * len(lengths)))
    assert max(map(len, placed)) - min(map(len, placed)) <= 1


def outcome(lengths: list[list[int]], policy: Policy, **changes: object) -> Outcome:
    return simulate(trace(lengths), dataclasses.replace(engine(2), **changes), policy)  # type: ignore[arg-type]


ADJACENT = Policy("adjacent", Placement.ADJACENT, GEARS)


def test_a_rollout_by_hand() -> None:
    # Rank 0 decodes 100 and 300 tokens, rank 1 twice 100: 100 steps with 2 rows, 200 with 1.
    found = outcome([[100, 300], [100, 100]], ADJACENT)
    assert found.makespan == pytest.approx(100 * 0.012 + 200 * 0.011)
    assert found.totals.steps == 300
    assert [(change.step, change.gear) for change in found.gears] == [(0, 2), (100, 1)]
    assert found.first_idle == pytest.approx(2.2 / 3.4)
    assert found.idle == pytest.approx(2.2 / 3.4 / 2)
    assert found.padding == 0
    assert found.floor == pytest.approx(300 * 0.011)
    assert found.tail == 0
    assert found.finished_by(0.5) == pytest.approx(1.2)
    assert found.step_seconds == pytest.approx(3.4 / 300)
    assert found.tokens_per_second == pytest.approx(600 / 3.4)


def test_a_row_without_a_response_is_padding_and_a_rank_without_any_is_idle() -> None:
    found = outcome([[100, 100, 100], [100, 200, 200]], ADJACENT)
    # 100 steps with gear 4 and 3 responses each, then 100 steps with gear 2: full on one rank, the other is idle.
    rows = 100 * 0.014 * 8 + 100 * 0.012 * 4
    assert found.padding == pytest.approx(100 * 0.014 * 2 / rows)
    assert found.idle == pytest.approx(1.2 / 2.6 / 2)


def test_what_does_not_fit_waits_for_a_row() -> None:
    found = outcome([[100, 100, 100, 100], [10, 10, 10, 10]], ADJACENT, sequences=2)
    assert found.totals.steps == 200


def test_one_queue_for_all_ranks_uses_the_idle_rank() -> None:
    late = dataclasses.replace(ADJACENT, admission=Admission.LONGEST_ESTIMATE)
    lengths = [[100, 100, 100, 100], [10, 10, 10, 10]]
    assert outcome(lengths, late, sequences=2).totals.steps < outcome(lengths, ADJACENT, sequences=2).totals.steps


def test_replicas_share_the_queue_and_run_on_their_own() -> None:
    late = dataclasses.replace(ADJACENT, admission=Admission.LONGEST_ESTIMATE)
    batch = trace([[100] * 4, [100] * 4, [10] * 4, [10] * 4])
    apart = simulate(batch, engine(1, 2), ADJACENT, replicas=2)
    shared = simulate(batch, engine(1, 2), late, replicas=2)
    assert shared.makespan < apart.makespan
    assert apart.ranks == shared.ranks == 2


def test_a_full_cache_preempts_the_newest_response_which_is_computed_again() -> None:
    # Two responses of 300 tokens need six blocks of 128, and there are five.
    found = simulate(trace([[300, 300]]), engine(1, 2, 5 * 128), ADJACENT)
    assert found.totals.preemptions == 1
    # After 256 steps both have two full blocks, and only one can have a third.
    assert found.totals.recomputed_tokens == 257
    assert found.totals.steps == 300 + 300 - 257
    assert found.totals.prefill_seconds == pytest.approx(257e-4)


def test_a_preempted_response_of_the_shared_queue_is_not_lost() -> None:
    late = dataclasses.replace(ADJACENT, admission=Admission.LONGEST_ESTIMATE)
    found = simulate(trace([[300, 300, 300, 300]]), engine(1, 2, 5 * 128), late)
    assert found.totals.preemptions >= 1
    assert found.responses == 4


def test_a_response_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a response of 700 tokens with its prompt does not fit"):
        simulate(trace([[700]]), engine(1, 1, 768), ADJACENT)


def test_prompts_stop_all_ranks() -> None:
    found = simulate(trace([[10, 10], [10, 10]], prompt_tokens=50), engine(2), ADJACENT)
    assert found.totals.prefill_seconds == pytest.approx(2 * 50 * 1e-4)
    assert found.makespan == pytest.approx(10 * 0.012 + found.totals.prefill_seconds)


def test_moving_by_the_recipes_takes_the_newest_and_waiting_ones_go_first() -> None:
    periodic = Policy("two stages", Placement.ADJACENT, GEARS, Rebalance.PERIODIC, interval=10)
    lengths = [[100, 100, 100, 100], [5, 5, 5, 5]]
    found = outcome(lengths, periodic)
    # At step 10 rank 0 runs four responses: two move to the empty rank.
    assert found.totals.moves == 2
    assert found.totals.moved_tokens == 20
    assert [(change.step, change.gear) for change in found.gears] == [(0, 4), (10, 2)]
    waiting = outcome(lengths, periodic, sequences=2)
    # At step 10 two that wait go to the empty rank, and at step 100, with 90 tokens, one of them to the other rank.
    assert waiting.totals.moves == 3
    assert waiting.totals.moved_tokens == 90


def test_moving_by_the_recipes_looks_at_the_use_of_caches() -> None:
    periodic = Policy("two stages", Placement.ADJACENT, GEARS, Rebalance.PERIODIC, interval=10)
    found = simulate(trace([[100, 100, 100, 5], [5, 5, 5, 100]]), engine(2, 8, 4096), periodic)
    assert found.totals.moves == 1


def test_ours_moves_as_soon_as_all_ranks_can_drop() -> None:
    ours = Policy("event", Placement.ADJACENT, GEARS, Rebalance.EVENT)
    found = outcome([[400, 400, 400, 400], [5, 7, 300, 300]], ours, move_seconds=0.0, check_seconds=0.0)
    # Six responses need gear 4; at the end of the two short ones nothing drops, and with four left two ranks need 2.
    assert [(change.step, change.gear) for change in found.gears] == [(0, 4), (300, 2)]
    assert found.totals.moves == 2


def test_ours_stays_where_a_move_costs_more_than_it_saves() -> None:
    ours = Policy("event", Placement.ADJACENT, GEARS, Rebalance.EVENT)
    found = outcome([[400, 400, 400, 400], [5, 7, 300, 300]], ours, check_seconds=1000.0)
    assert found.totals.moves == 0


def test_ours_stays_where_no_cache_has_room_and_tries_again_later() -> None:
    ours = Policy("event", Placement.ADJACENT, GEARS, Rebalance.EVENT)
    rank_0 = [RolloutRequest(0, tokens, 500) for tokens in (200, 200, 200, 10)]
    rank_1 = [*(RolloutRequest(1, 10) for _ in range(3)), RolloutRequest(1, 20, 3000)]
    batch = Trace("test", (*rank_0, *rank_1), Origin.MODELLED, "test")
    tight, wide = (
        simulate(batch, dataclasses.replace(engine(2, 8, blocks * 128), move_seconds=0.0), ours) for blocks in (27, 40)
    )
    # After 10 steps both ranks need room for 515 tokens more, or the long prompt must end first.
    assert [(change.step, change.gear) for change in wide.gears] == [(0, 4), (10, 2)]
    assert [(change.step, change.gear) for change in tight.gears] == [(0, 4), (20, 2)]
    assert tight.totals.moves == 1


@pytest.mark.parametrize("rebalance", [Rebalance.PERIODIC, Rebalance.EVENT])
@pytest.mark.parametrize(
    ("running", "moves", "gear"),
    [((4, 1, 1, 1), 2, 2), ((4, 4, 0, 0), 4, 2), ((4, 4, 4, 0), 0, 4), ((3, 2, 2, 2), 0, 4)],
)
def test_both_rebalances_drop_a_size_exactly_where_all_ranks_can(
    running: tuple[int, ...], moves: int, gear: int, rebalance: Rebalance
) -> None:
    """Vectors that can be checked by hand: four ranks with sizes 1, 2 and 4, of which all or none drop to 2."""
    # After the first step, each rank has so many responses left.
    lengths = [[50] * long + [1] * (4 - long) for long in running]
    policy = Policy("vector", Placement.ADJACENT, (1, 2, 4), rebalance, interval=1)
    free = dataclasses.replace(engine(4, 4), move_seconds=0.0, check_seconds=0.0)
    found = simulate(trace(lengths), free, policy)
    assert found.totals.moves == moves
    assert [(change.step, change.gear) for change in found.gears] == [(0, 4), *([(1, gear)] if gear < 4 else [])]
