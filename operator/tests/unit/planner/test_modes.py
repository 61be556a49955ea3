"""The modes of a trainer side by side: what a step waits for."""

from __future__ import annotations

import pytest

from rljob.planner import modes
from rljob.planner.layouts import Seconds
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


def test_more_batches_in_flight_take_longer_to_warm_up() -> None:
    assert modes._rounds(100, 0.5) == (modes.WARM_UP, modes.STEPS)
    assert modes._rounds(100, 2.5) == (modes.WARM_UP + 2, modes.STEPS)


# Trainer and rollout on devices of their own.


def seconds(training: float, transfer: float = 0.0) -> Seconds:
    return Seconds(rollout=0, log_probabilities=0, update=training, other=0, transfer=transfer)


def test_a_slow_trainer_never_waits() -> None:
    found = modes.overlapped(setup(4), trace(10, 10, 10, 20), 1, 1, seconds(1000, 7))
    assert (found.mode, found.train, found.transfer) == ("SeparateAsync", 1000, 7)
    assert found.rollout == 0
    assert found.total == 1007
    # All prompts that may be in flight have ended long before the step: they wait for their turn.
    assert found.staleness == 1
    assert found.generation == pytest.approx(20, abs=modes.RESUME_SECONDS)


def test_a_fast_trainer_waits_for_generation() -> None:
    found = modes.overlapped(setup(4, time=Linear()), trace(50, 50, 50, 50), 1, 1, seconds(2, 5))
    # 200 seconds of decoding, and a second after each pause. What is trained meanwhile is not waited for.
    assert found.rollout + found.train == pytest.approx(200 + modes.RESUME_SECONDS, rel=0.03)
    # In every other step, all eight prompts have ended before the two seconds of training.
    assert found.generation == pytest.approx(found.total - found.transfer - 2 / 2)
    colocated = modes.steps(setup(4, time=Linear()), trace(50, 50, 50, 50), 1)
    assert found.total - found.transfer < colocated.rollout + 2 + 1


def test_without_a_batch_in_flight_only_the_updates_of_a_step_overlap() -> None:
    few = setup(4, sequences=1)
    one, four = (modes.overlapped(few, trace(10, 10, 10, 10), 0, each, seconds(20)) for each in (1, 4))
    assert one.total == 40 + 20
    # The last quarter of training begins when the last response has ended.
    assert four.total == 40 + 5
    assert (one.staleness, four.staleness) == (0, 0)


def test_responses_go_on_during_an_update_and_pause_for_the_weights() -> None:
    found = modes.overlapped(setup(2), trace(10, 100), 1, 1, seconds(30, 4))
    # The long response of a batch takes three updates; those before it train short ones.
    assert 30 + 4 < found.total < 100
    assert found.generation == pytest.approx(found.total - found.transfer)
    assert found.staleness == pytest.approx(1)


def test_several_responses_of_a_prompt_end_together() -> None:
    requests = tuple(RolloutRequest(i // 2, 10 + 10 * (i % 2)) for i in range(8))
    found = modes.overlapped(setup(4), Trace("t", requests, Origin.MODELLED, ""), 1, 2, seconds(1000))
    assert found.generation == pytest.approx(20, abs=modes.RESUME_SECONDS)


def test_reading_long_prompts_delays_the_weights() -> None:
    requests = tuple(RolloutRequest(i, 10, prompt_tokens=100) for i in range(4))
    of = setup(4, prefill=1.0, sequences=1)
    found = modes.overlapped(of, Trace("t", requests, Origin.MODELLED, ""), 1, 1, seconds(15))
    assert found.total >= 4 * 110
