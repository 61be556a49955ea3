"""Idle ratios and tokens per second against vectors worked out by hand, and against the published recipes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime import figures
from rljob_runtime.figures import ReplicaWindow, RolloutWindow
from rljob_runtime.verl_plugin.replica_times import ReplicaTimes, from_plain


def window(*spans: tuple[float, float]) -> RolloutWindow:
    return RolloutWindow({str(n): ReplicaWindow(begin, end, 1) for n, (begin, end) in enumerate(spans)})


def test_two_replicas_that_end_at_6_and_10_seconds() -> None:
    seen = window((100.0, 106.0), (101.0, 110.0))
    assert seen.seconds == pytest.approx(10.0)
    assert seen.first_dp_idle_ratio == pytest.approx(0.4)  # (10 - 6) / 10
    assert seen.cluster_idle_ratio == pytest.approx(0.2)  # (4 + 0) / (2 x 10)


def test_four_replicas_worked_out_by_hand() -> None:
    seen = window((0.0, 2.0), (0.0, 4.0), (0.5, 6.0), (0.0, 8.0))
    assert seen.first_dp_idle_ratio == pytest.approx(0.75)
    assert seen.cluster_idle_ratio == pytest.approx((6 + 4 + 2 + 0) / (4 * 8))


def test_a_replica_without_a_request_was_idle_all_the_time() -> None:
    seen = RolloutWindow({"a": ReplicaWindow(0.0, 5.0, 3), "b": ReplicaWindow()})
    assert seen.first_dp_idle_ratio == pytest.approx(1.0)
    assert seen.cluster_idle_ratio == pytest.approx(0.5)


@pytest.mark.parametrize("empty", [RolloutWindow(), RolloutWindow({"a": ReplicaWindow()}), window((3.0, 3.0))])
def test_without_a_timed_rollout_there_is_no_ratio(empty: RolloutWindow) -> None:
    assert empty.first_dp_idle_ratio is None
    assert empty.cluster_idle_ratio is None
    assert figures.rollout_figures(empty) == {}


times = st.floats(0, 1e4, allow_nan=False)


@given(st.lists(st.tuples(times, times).map(sorted).map(tuple), min_size=1, max_size=8))
def test_ratios_stay_between_0_and_1_and_the_first_is_the_larger(spans: list[tuple[float, float]]) -> None:
    seen = window(*spans)
    first, cluster = seen.first_dp_idle_ratio, seen.cluster_idle_ratio
    if first is not None and cluster is not None:
        assert 0 <= cluster <= first + 1e-9
        assert first <= 1


def test_tokens_per_second_of_each_stage_basis_and_divisor() -> None:
    metrics = {
        "perf/total_num_tokens": 1200.0,
        "prompt_length/mean": 4.0,
        "response_length/mean": 2.0,
        "timing_s/update_actor": 2.0,
        "timing_s/step": 10.0,
    }
    tps = figures.throughput_figures(metrics, rollout_seconds=4.0, devices=4, dies_per_card=2)
    assert tps["rljob/tokens_per_second/step/prompt_and_response/card"] == pytest.approx(1200 / 10 / 2)
    assert tps["rljob/tokens_per_second/step/prompt_and_response/die"] == pytest.approx(1200 / 10 / 4)
    assert tps["rljob/tokens_per_second/update/response/card"] == pytest.approx(400 / 2 / 2)
    assert tps["rljob/tokens_per_second/rollout/response/die"] == pytest.approx(400 / 4 / 4)
    assert len(tps) == 3 * 2 * 2


def test_a_stage_that_did_not_run_has_no_figure() -> None:
    metrics = {"perf/total_num_tokens": 10.0, "prompt_length/mean": 1.0, "response_length/mean": 1.0}
    tps = figures.throughput_figures(metrics | {"timing_s/step": 1.0}, rollout_seconds=None, devices=1, dies_per_card=1)
    assert {key.split("/")[2] for key in tps} == {"step"}


def test_the_published_figures_of_qwen3_235b_come_out() -> None:
    # 8,192 answers, 73.7 prompt and 7,344.97 response tokens each, 64 cards: verl-recipes.md 3.1.
    total = 8192 * (73.7 + 7344.97)
    metrics = {
        "perf/total_num_tokens": total,
        "prompt_length/mean": 73.7,
        "response_length/mean": 7344.97,
        "timing_s/update_actor": 2353.23,
        "timing_s/step": 7780.36,
    }
    tps = figures.throughput_figures(metrics, rollout_seconds=4065.71, devices=128, dies_per_card=2)
    basis = "rljob/tokens_per_second/{}/prompt_and_response/card"
    assert tps[basis.format("rollout")] == pytest.approx(233.56, abs=0.01)
    assert tps[basis.format("update")] == pytest.approx(403.5, abs=0.1)
    assert tps[basis.format("step")] == pytest.approx(122.05, abs=0.01)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_router_notes_first_request_and_last_answer() -> None:
    clock = Clock()
    router = ReplicaTimes(clock)
    for clock.now, event, replica in [
        (1.0, router.acquired, "a"),
        (2.0, router.acquired, "b"),
        (3.0, router.acquired, "a"),
        (4.0, router.released, "a"),
        (6.0, router.released, "a"),
        (9.0, router.released, "b"),
    ]:
        event(replica)
    seen = from_plain(router.take(["a", "b", "c"]))
    assert seen.replicas["a"] == ReplicaWindow(1.0, 6.0, 2)
    assert seen.replicas["b"] == ReplicaWindow(2.0, 9.0, 1)
    assert seen.replicas["c"] == ReplicaWindow()
    assert seen.seconds == pytest.approx(8.0)


def test_a_late_answer_does_not_fall_into_the_next_window() -> None:
    clock = Clock()
    router = ReplicaTimes(clock)
    router.acquired("a")
    router.take(["a"])
    clock.now = 5.0
    router.released("a")
    assert from_plain(router.take(["a"])).seconds == 0.0
