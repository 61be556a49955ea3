"""Idle ratios and tokens per second, compared with manual calculations and with the published recipes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.spool import step_metrics
from rljob_runtime.spool.step_metrics import Batch, ReplicaWindow, RolloutWindow, Tokens
from rljob_runtime.verl_plugin.router.replica_times import ReplicaTimes, from_plain
from rljob_runtime.verl_plugin.trainer.discarded_tokens import DiscardedTokens, padded_rows

NO_BATCH = Batch()


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
    assert step_metrics.rollout_metrics(empty) == {}


times = st.floats(0, 1e4, allow_nan=False)


@given(st.lists(st.tuples(times, times).map(sorted).map(tuple), min_size=1, max_size=8))
def test_ratios_stay_between_0_and_1_and_the_first_is_the_larger(spans: list[tuple[float, float]]) -> None:
    seen = window(*spans)
    first, cluster = seen.first_dp_idle_ratio, seen.cluster_idle_ratio
    if first is not None and cluster is not None:
        assert 0 <= cluster <= first + 1e-9
        assert first <= 1


def figures_of(
    metrics: dict[str, float],
    seen: RolloutWindow | None = None,
    batch: Batch = NO_BATCH,
    *,
    devices: int = 1,
    dies_per_card: int = 1,
) -> dict[str, float]:
    return step_metrics.compute(metrics, seen or RolloutWindow(), batch, devices=devices, dies_per_card=dies_per_card)


def rollout_of(seconds: float) -> RolloutWindow:
    return window((50.0, 50.0 + seconds))


METRICS = {
    "perf/total_num_tokens": 1200.0,
    "prompt_length/mean": 4.0,
    "prompt_length/max": 6.0,
    "response_length/mean": 2.0,
    "response_length/max": 9.0,
    "timing_s/update_actor": 2.0,
    "timing_s/step": 10.0,
}


def test_tokens_per_second_of_each_stage_basis_and_divisor() -> None:
    tps = figures_of(METRICS, rollout_of(4.0), devices=4, dies_per_card=2)
    assert tps["rljob/tokens_per_second/step/prompt_and_response/card"] == pytest.approx(1200 / 10 / 2)
    assert tps["rljob/tokens_per_second/step/prompt_and_response/die"] == pytest.approx(1200 / 10 / 4)
    assert tps["rljob/tokens_per_second/update/response/card"] == pytest.approx(400 / 2 / 2)
    assert tps["rljob/tokens_per_second/rollout/response/die"] == pytest.approx(400 / 4 / 4)
    # update and step: two ways to count; rollout: those and the two for generated tokens.
    assert len([key for key in tps if key.startswith("rljob/tokens_per_second/")]) == (2 + 2 + 4) * 2


def test_what_was_generated_and_discarded_counts_for_the_rollout_only() -> None:
    batch = Batch(rows=200, discarded=Tokens(prompt=300, response=100))
    tps = figures_of(METRICS, rollout_of(4.0), batch)
    assert tps["rljob/tokens/generated_prompt_and_response"] == pytest.approx(1600)
    assert tps["rljob/tokens_per_second/rollout/generated_prompt_and_response/die"] == pytest.approx(1600 / 4)
    assert tps["rljob/tokens_per_second/rollout/generated_response/die"] == pytest.approx(500 / 4)
    assert tps["rljob/tokens_per_second/step/prompt_and_response/die"] == pytest.approx(1200 / 10)
    assert tps["rljob/discarded_tokens_ratio"] == pytest.approx(100 / 500)
    assert not [key for key in tps if "generated" in key and ("/step/" in key or "/update/" in key)]


def test_a_stage_that_did_not_run_has_no_figure() -> None:
    tps = figures_of({key: value for key, value in METRICS.items() if key != "timing_s/update_actor"})
    assert {key.split("/")[2] for key in tps if key.startswith("rljob/tokens_per_second/")} == {"step"}
    assert "rljob/stage_share/update_actor" not in tps


def test_shares_of_the_step_add_up_to_one() -> None:
    stages = {"gen": 4.0, "ref": 1.0, "save_checkpoint": 0.5, "update_weights": 0.25, "testing": 7.0}
    seen = figures_of(METRICS | {f"timing_s/{stage}": seconds for stage, seconds in stages.items()})
    shares = {key.split("/")[2]: value for key, value in seen.items() if key.startswith("rljob/stage_share/")}
    assert shares == pytest.approx(
        {"gen": 0.4, "ref": 0.1, "update_actor": 0.2, "save_checkpoint": 0.05, "update_weights": 0.025, "other": 0.225}
    )
    assert seen["rljob/other_seconds"] == pytest.approx(2.25)
    assert sum(shares.values()) == pytest.approx(1)


def test_a_trainer_that_stands_apart_is_measured_on_its_own_devices_without_its_waits() -> None:
    seen = step_metrics.trainer_metrics(METRICS, [(10.0, 6.0)], devices=4, dies_per_card=2)
    rate = "rljob/tokens_per_second/trainer"
    assert seen == pytest.approx(
        {
            "rljob/trainer_wait_ratio/1": 0.6,
            f"{rate}/prompt_and_response/card": 1200 / 4 / 2,
            f"{rate}/prompt_and_response/die": 1200 / 4 / 4,
            f"{rate}/response/card": 400 / 4 / 2,
            f"{rate}/response/die": 400 / 4 / 4,
        }
    )


def test_the_waits_of_ten_steps_are_weighted_by_their_length() -> None:
    waits = [(1.0, 1.0)] * 9 + [(11.0, 0.0)]
    seen = step_metrics.trainer_metrics(METRICS, waits, devices=1, dies_per_card=1)
    assert (seen["rljob/trainer_wait_ratio/1"], seen["rljob/trainer_wait_ratio/10"]) == (0, 9 / 20)
    assert "rljob/trainer_wait_ratio/10" not in step_metrics.trainer_metrics(
        METRICS, waits[1:], devices=1, dies_per_card=1
    )


def test_a_step_that_only_waits_has_no_rate() -> None:
    seen = step_metrics.trainer_metrics(METRICS, [(3.0, 3.0)], devices=1, dies_per_card=1)
    assert seen == {"rljob/trainer_wait_ratio/1": 1}


def test_padding_is_what_verl_made_up_and_what_a_dense_batch_would_add() -> None:
    seen = figures_of(METRICS, batch=Batch(rows=64, padded_rows=4))
    assert seen["rljob/padded_rows_ratio"] == pytest.approx(4 / 64)
    assert seen["rljob/dense_padding_ratio"] == pytest.approx(1 - 6 / 15)
    assert "rljob/padded_rows_ratio" not in figures_of(METRICS)


CARDS = 64
"""Atlas A3 has two dies per card."""
GRPO = {"prompt": 73.7, "response": 7344.97, "answers": 512 * 16, "update": 2353.23, "step": 7780.36}
DAPO = {"prompt": 132.78, "response": 10119.23, "answers": 128 * 16, "update": 797.93, "step": 7833.16}


def published(run: dict[str, float], rollout: float, rounds: int) -> dict[str, float]:
    """Return the metrics of a published run whose rollouts generated `rounds` times the trained responses."""
    tokens = Tokens(int(run["answers"] * run["prompt"]), int(run["answers"] * run["response"]))
    metrics = {
        "perf/total_num_tokens": run["answers"] * (run["prompt"] + run["response"]),
        "prompt_length/mean": run["prompt"],
        "response_length/mean": run["response"],
        "timing_s/update_actor": run["update"],
        "timing_s/step": run["step"],
    }
    batch = Batch(int(run["answers"]), discarded=tokens if rounds == 2 else Tokens())
    return figures_of(metrics, rollout_of(rollout), batch, devices=2 * CARDS, dies_per_card=2)


def test_the_published_row_of_qwen3_235b_grpo_comes_out() -> None:
    tps, basis = published(GRPO, 4065.71, rounds=1), "rljob/tokens_per_second/{}/prompt_and_response/card"
    assert tps[basis.format("rollout")] == pytest.approx(233.56, abs=0.005)
    assert tps[basis.format("update")] == pytest.approx(403.5, abs=0.05)
    assert tps[basis.format("step")] == pytest.approx(122.05, abs=0.005)
    generated = "rljob/tokens_per_second/rollout/generated_prompt_and_response/card"
    assert tps[generated] == tps[basis.format("rollout")]
    assert tps[basis.format("step").replace("/card", "/die")] == pytest.approx(122.05 / 2, abs=0.005)


def test_the_published_row_of_qwen3_235b_dapo_comes_out() -> None:
    # Two rounds of 3,262.39 s generated twice the trained tokens.
    tps, basis = published(DAPO, 2 * 3262.39, rounds=2), "rljob/tokens_per_second/{}/{}/card"
    assert tps[basis.format("rollout", "generated_prompt_and_response")] == pytest.approx(100.56, abs=0.005)
    assert tps[basis.format("update", "prompt_and_response")] == pytest.approx(411.14, abs=0.005)
    assert tps[basis.format("step", "prompt_and_response")] == pytest.approx(41.88, abs=0.005)
    assert tps[basis.format("rollout", "prompt_and_response")] == pytest.approx(100.56 / 2, abs=0.005)


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


def test_the_tail_begins_with_the_answer_that_completes_nine_tenths() -> None:
    clock = Clock()
    router = ReplicaTimes(clock)
    for _ in range(10):
        router.acquired("a")
    for clock.now in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 20.0):
        router.released("a")
    seen = from_plain(router.take(["a"]))
    assert seen.tail_begin == 12.0  # the ninth of ten
    assert seen.tail_ratio == pytest.approx((20 - 12) / 20)
    assert step_metrics.rollout_metrics(seen)["rljob/rollout_tail_ratio"] == pytest.approx(0.4)
    assert from_plain(router.take(["a"])).tail_begin is None


class Buffer:
    """Clears groups by the prompts' uids, like verl's replay buffer."""

    def __init__(self, answers: dict[str, dict[str, int | str]]) -> None:
        self.partitions = {"train": answers}
        self.cleared: list[set[str]] = []

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        self.cleared.append(uids)
        answers = self.partitions[partition_id]
        self.partitions[partition_id] = {key: tag for key, tag in answers.items() if key.split("_")[0] not in uids}


def test_tokens_of_groups_that_the_buffer_clears_are_counted_before_they_go() -> None:
    answer: dict[str, int | str] = {"prompt_len": 10, "response_len": 100}
    buffer: Any = Buffer({"u1_0_0": answer, "u1_1_0": answer, "u2_0_0": answer, "u3": {"status": "finished"}})
    discarded = DiscardedTokens()
    discarded.watch(buffer)
    buffer._clear_groups("train", {"u1", "u3"})
    assert set(buffer.partitions["train"]) == {"u2_0_0"}
    assert buffer.cleared == [{"u1", "u3"}]
    assert discarded.take() == Tokens(prompt=20, response=200)
    assert discarded.take() == Tokens()


def test_a_sampler_of_the_jobs_own_is_left_alone() -> None:
    discarded = DiscardedTokens()
    sampler: Any = object()
    discarded.watch(sampler)
    assert discarded.take() == Tokens()


def test_rows_that_verl_made_up_are_known_by_their_tag() -> None:
    assert padded_rows([{"seq_len": 5}, {"is_padding": True}, {"is_padding": False}]) == 1
