"""The modes of a trainer side by side: what a step waits for."""

from __future__ import annotations

import pytest

from rljob.planner import modes
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.setup import Setup
from rljob.planner.rollout.step_time import Origin, StepTime
from rljob.planner.rollout.traces import RolloutRequest, Trace


class Flat:
    """A decoding step takes a second, whatever runs."""

    origin, source = Origin.MODELLED, "flat"

    def seconds(self, gear: int, context: int, cached: float, steps: int) -> float:
        del gear, context, cached
        return float(steps)


class Linear(Flat):
    """A decoding step takes a second for each response."""

    def seconds(self, gear: int, context: int, cached: float, steps: int) -> float:
        del context, cached
        return float(gear * steps)


def trace(*lengths: int) -> Trace:
    return Trace("t", tuple(RolloutRequest(i, tokens) for i, tokens in enumerate(lengths)), Origin.MODELLED, "")


def setup(prompts: int, *, sequences: int = 100, prefill: float = 0.0, time: StepTime | None = None) -> Setup:
    engine = Engine(ranks=1, sequences=sequences, step_time=time or Flat(), prefill_seconds=prefill)
    return Setup(engine, 1, tuple(range(1, sequences + 1)), prompts, 1, 1, 1000, 1, 1)


def test_a_synchronous_step_waits_for_its_longest_response() -> None:
    assert modes.steps(setup(4), trace(10, 10, 10, 100), 0) == modes.ModeStep("Sync", 100, 0, 0)


def test_a_step_with_prompts_in_flight_waits_for_as_many_as_it_trains() -> None:
    found = modes.steps(setup(4), trace(10, 10, 10, 100), 1)
    assert found.mode == "ColocateAsync"
    # Each step brings 100 tokens of one response, and trains four: the long one ends while others run.
    assert 10 <= found.rollout < 50
    assert 0 < found.staleness <= 10


def test_equal_lengths_gain_nothing() -> None:
    found = modes.steps(setup(4, time=Linear()), trace(50, 50, 50, 50), 1)
    assert found.rollout == pytest.approx(4 * 50, abs=modes.RESUME_SECONDS)


def test_no_response_is_lost_where_few_run_at_a_time() -> None:
    few = modes.steps(setup(4, sequences=1), trace(10, 20, 30, 40), 1)
    assert few.rollout == pytest.approx(100 + modes.RESUME_SECONDS, rel=0.1), "the tokens of a batch, one by one"


def test_a_pause_costs_the_prefill_of_what_runs() -> None:
    cheap, dear = (modes.steps(setup(4, prefill=each), trace(10, 10, 10, 100), 1).rollout for each in (0.0, 0.5))
    assert dear > cheap


def test_a_large_batch_gets_fewer_steps() -> None:
    assert modes._rounds(100, 1) == (modes.WARM_UP, modes.STEPS)
    assert modes._rounds(modes.RESPONSES_MAX, 1) == (modes.WARM_UP, 2)
    assert modes._rounds(modes.RESPONSES_MAX, 0) == (0, 2)
