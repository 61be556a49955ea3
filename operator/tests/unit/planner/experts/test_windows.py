"""Which windows a plan is made for."""

import numpy as np

from rljob.planner.experts.placement import Counts
from rljob.planner.experts.windows import WAYS, Way, choose_way

GENERATOR = np.random.default_rng(0)


def drifting(persistence: float, windows: int) -> Counts:
    state = GENERATOR.normal(size=(8, 64))
    counts = []
    for _ in range(windows):
        counts.append(np.exp(0.7 * state) * 1e5)
        noise = GENERATOR.normal(size=state.shape)
        state = persistence * state + np.sqrt(1 - persistence**2) * noise
    found: Counts = np.array(counts).astype(np.int64)
    return found


def test_one_window_is_used_as_it_is() -> None:
    counts = drifting(0.5, 1)
    choice = choose_way(counts, 8, 72)
    assert choice.expected is None
    assert (choice.way.loads(counts) == counts[0]).all()
    assert str(choice.way) == "the sum of the windows"


def test_slow_drift_is_planned_for_the_last_window() -> None:
    assert choose_way(drifting(0.99, 12), 8, 72).way.last


def test_noise_around_a_constant_load_is_planned_for_the_sum() -> None:
    constant = drifting(0.0, 1)[0]
    noise = np.exp(0.5 * GENERATOR.normal(size=(12, *constant.shape)))
    choice = choose_way((constant * noise).astype(np.int64), 8, 72)
    assert not choice.way.last
    assert choice.expected is not None
    assert choice.expected > 1


def test_an_exponent_flattens_and_keeps_the_order() -> None:
    counts = np.array([[[1, 100, 10_000], [0, 0, 0]]])
    loads = Way(last=True, exponent=0.5).loads(counts)
    assert (loads[0] * 100 // loads[0, 2]).tolist() == [1, 10, 100]
    assert loads[1].tolist() == [0, 0, 0]
    assert str(WAYS[-1]) == "the last window, to the power of 0.5"
