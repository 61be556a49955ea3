"""Engines of jobs: published step times where they exist, scaled ones elsewhere."""

from __future__ import annotations

import pytest

from rljob.planner.rollout import published
from rljob.planner.rollout.estimate import ReplicaSize, active_elements, engine, step_time
from rljob.planner.rollout.published import DEEPSEEK_STEP_TIME, QWEN_STEP_TIME
from rljob.planner.rollout.setup import (
    Setup,
    default_gears,
    floor_of,
    lengths_for,
    simulate_policies,
    usable_gears,
)
from rljob.planner.rollout.step_time import Origin
from rljob_runtime.planning.architectures import BUILT_IN

QWEN, DEEPSEEK, DENSE = (BUILT_IN[name] for name in ("Qwen3-235B-A22B", "DeepSeek-V3", "Qwen3-32B"))


def milliseconds(gear: int, context: int = 0) -> float:
    return 1000 * DEEPSEEK_STEP_TIME.seconds(gear, context, 0.0, 1)


def test_published_step_times_are_returned_as_they_are() -> None:
    assert [milliseconds(gear) for gear in (4, 8, 16, 32)] == pytest.approx([64.5, 67.0, 75.0, 94.0])
    assert milliseconds(64) == pytest.approx(125, abs=0.02)
    assert milliseconds(64, 2000) == pytest.approx(173, abs=0.02)
    assert milliseconds(64, 500) == pytest.approx((125 + 160) / 2, abs=0.02)


def test_between_and_beyond_the_published_sizes_values_are_interpolated() -> None:
    assert milliseconds(24) == pytest.approx((75 + 94) / 2)
    assert milliseconds(48) == pytest.approx((94 + 125) / 2, abs=0.02)
    assert milliseconds(1) == milliseconds(2) == pytest.approx(64.5 * 54 / 55)
    assert milliseconds(64, 40_000) == pytest.approx(205)
    assert milliseconds(96) == pytest.approx(2 * milliseconds(64) - milliseconds(32))


def test_windows_add_up() -> None:
    whole = DEEPSEEK_STEP_TIME.seconds(64, 300, 0.0, 33_000)
    parts = [(300, 10), (310, 700), (1010, 31_990), (33_000, 300)]
    assert sum(DEEPSEEK_STEP_TIME.seconds(64, begin, 0.0, steps) for begin, steps in parts) == pytest.approx(whole)


def test_the_published_layouts_have_the_published_times() -> None:
    assert step_time(DEEPSEEK, ReplicaSize(2, 128, 256)) is DEEPSEEK_STEP_TIME
    assert step_time(QWEN, ReplicaSize(4, 32, 128)) is QWEN_STEP_TIME


def test_the_scaled_times_of_a_published_layout_are_the_published_ones() -> None:
    # Without its experts spread, Qwen3-235B on four dies is another layout, with more weights to read.
    spread, whole = (step_time(QWEN, ReplicaSize(4, 32, expert)) for expert in (128, 1))
    assert whole.seconds(1, 0, 0.0, 1) > spread.seconds(1, 0, 0.0, 1)
    other = step_time(DEEPSEEK, ReplicaSize(4, 64, 256))
    assert other.origin is Origin.MODELLED
    assert other.seconds(16, 0, 0.0, 1) == pytest.approx(0.075, rel=0.1)


def test_both_published_models_have_the_same_cost_of_a_byte_in_the_cache() -> None:
    latent = (94 - 64.5) / 28 / published.DEEPSEEK_CACHE_BYTES
    grouped = published.QWEN_STEP_TIME.row / published.QWEN_CACHE_BYTES
    assert latent == pytest.approx(grouped, rel=0.1)


def test_the_weights_that_a_token_uses_are_those_of_the_models_names() -> None:
    assert active_elements(QWEN) == pytest.approx(22e9, rel=0.03)
    assert active_elements(DEEPSEEK) == pytest.approx(37e9, rel=0.03)
    assert active_elements(DENSE) == pytest.approx(32e9, rel=0.05)
    assert active_elements(BUILT_IN["Qwen2.5-1.5B"]) == pytest.approx(1.54e9, rel=0.01)


def setup(response_tokens: int, prompts: int = 8, sequences: int = 16, replicas: int = 1) -> Setup:
    return Setup(
        engine=engine(QWEN, ReplicaSize(4, 4, 16), sequences, None),
        replicas=replicas,
        gears=(4, 16),
        prompts=prompts,
        samples=4,
        prompt_tokens=50,
        response_tokens=response_tokens,
        devices=16 * replicas,
        dies_per_card=2,
    )


def test_a_job_gets_the_lengths_that_were_published_for_its_limit() -> None:
    assert lengths_for(setup(32_768)) is published.DEEPSCALER
    assert lengths_for(setup(3072)) is published.DEEPSCALER_3K
    assumed = lengths_for(setup(8192))
    assert assumed.origin is Origin.MODELLED
    assert assumed.draw(64, 16).mean == pytest.approx(8192 * 7345 / 32_768, rel=0.01)
    assert assumed.prompt_tokens == 50


def test_late_binding_is_shown_where_responses_wait() -> None:
    rows = simulate_policies(setup(64), lengths_for(setup(64)).draw(8, 4))
    assert "late binding + gears" not in [row.policy.name for row in rows]
    # 32 responses on four ranks: one captured size for eight of them.
    assert rows[0].policy.gears == (16,)
    waiting = setup(64, prompts=40)
    assert waiting.waits
    assert waiting.ranks == 4
    rows = simulate_policies(waiting, lengths_for(waiting).draw(40, 4))
    assert "late binding + gears" in [row.policy.name for row in rows]
    assert floor_of(rows) == min(row.outcome.floor for row in rows)


def test_captured_sizes_end_with_the_largest_batch_of_a_rank() -> None:
    assert usable_gears((32, 64, 512), 100) == (32, 64, 100)
    assert default_gears(20) == (1, 2, 4, 8, 16)
    assert default_gears(1024)[-3:] == (480, 496, 512)


def test_a_setup_that_is_too_large_to_simulate_is_refused_with_the_limit() -> None:
    assert setup(64).too_large is None
    assert setup(64, prompts=1 << 20).too_large == "4,194,304 responses a step; up to 131,072 can be simulated"
    assert setup(64, replicas=1 << 14).too_large == "262,144 devices; up to 131,072 can be simulated"
    both = setup(64, replicas=1 << 13, prompts=1 << 13).too_large
    assert both is not None
    assert both.startswith("131,072 devices with 32,768 responses; up to 1,024 can be simulated")
