"""Plans of moving responses: vectors that can be checked by hand."""

from __future__ import annotations

import pytest

from rljob.planner.rollout.moves import Load, Move, Running, plan_drop, plan_two_stages

GEARS = (1, 2, 4)


def loads(*running: int) -> list[Load]:
    return [Load(count) for count in running]


def test_seven_responses_on_four_ranks_drop_to_two() -> None:
    assert plan_two_stages(loads(4, 1, 1, 1), GEARS, 4) == (Move(0, 1, 1, cached=True), Move(0, 2, 1, cached=True))


def test_two_full_ranks_share_with_two_empty_ones() -> None:
    moves = plan_two_stages(loads(4, 4, 0, 0), GEARS, 4)
    running = [4, 4, 0, 0]
    for move in moves:
        running[move.source] -= move.count
        running[move.target] += move.count
    assert running == [2, 2, 2, 2]
    assert sum(move.count for move in moves) == 4


@pytest.mark.parametrize("running", [(4, 4, 4, 0), (3, 2, 2, 2)])
def test_nothing_moves_if_not_all_ranks_can_drop(running: tuple[int, ...]) -> None:
    assert plan_two_stages(loads(*running), GEARS, 4) == ()


def test_waiting_responses_go_to_idle_ranks_without_their_cache() -> None:
    ranks = [Load(4, 3, 0.5), *(Load(1, 0, 0.2) for _ in range(3))]
    moves = plan_two_stages(ranks, GEARS, 4)
    assert moves == tuple(Move(0, target, 1, cached=False) for target in (1, 2, 3))


def test_several_ranks_hand_their_waiting_responses_to_one() -> None:
    ranks = [Load(4, 1, 0.5), Load(4, 2, 0.5), Load(1, 0, 0.2)]
    assert plan_two_stages(ranks, GEARS, 4) == (Move(0, 2, 1, cached=False), Move(1, 2, 2, cached=False))


def test_a_rank_with_a_full_cache_receives_nothing() -> None:
    ranks = [Load(4, 2, 0.5), Load(1, 0, 0.9), Load(1, 0, 0.2), Load(4, 0, 0.5)]
    moves = plan_two_stages(ranks, GEARS, 4)
    assert moves == (Move(0, 2, 2, cached=False),)


def test_a_rank_receives_no_more_than_its_free_cache_holds_now() -> None:
    # 2 × (1 - 0.7) / 0.7 is less than one.
    moves = plan_two_stages([Load(4, 1, 0.5), Load(2, 0, 0.7)], GEARS, 4)
    assert moves == ()


def test_the_cache_of_a_full_donor_stays() -> None:
    moves = plan_two_stages([Load(4, 0, 0.9), Load(0)], GEARS, 4)
    assert moves == ()


def test_above_the_largest_gear_responses_move_where_there_is_room() -> None:
    assert plan_two_stages(loads(6, 6), GEARS, 8) == ()
    assert plan_two_stages(loads(12, 2), GEARS, 16) == (Move(0, 1, 2, cached=True),)


def held(*cached: int, first: int = 0) -> list[Running]:
    return [Running(first + number, tokens, 2 * tokens) for number, tokens in enumerate(cached)]


def test_the_smallest_caches_move_to_the_emptiest_ranks() -> None:
    moves = plan_drop([held(40, 10, 30, 20), held(5, first=4), held(6, first=5), held(7, first=6)], 2, [99, 99, 90, 99])
    assert [(one.request, source, target) for one, source, target in moves] == [(1, 0, 1), (3, 0, 3)]


def test_a_rank_without_room_for_the_whole_response_is_passed_over() -> None:
    moves = plan_drop([held(10, 10, 10), held(1, first=3), held(1, first=4)], 2, [0, 19, 20])
    assert [(one.request, target) for one, _, target in moves] == [(0, 2)]


def test_all_drop_or_none_moves() -> None:
    assert plan_drop([held(10, 10, 10, 10), held(1, first=4)], 2, [0, 99]) == []
    assert plan_drop([held(10, 10, 10), held(1, first=3)], 2, [0, 19]) == []
