"""How often a job without `checkpoint.everySteps` saves."""

from __future__ import annotations

import pytest

from rljob_runtime.verl_plugin.trainer.save_interval import FIRST_STEPS, SaveInterval, loss_seconds

HOUR = 3600.0


@pytest.mark.parametrize(
    ("devices", "losses", "held", "hours"),
    [(1, 0, 0, 50_000), (128, 0, 0, 390.625), (128, 3, 0, 97.65625), (128, 3, 50_000 * 3600, 195.3125)],
)
def test_losses_to_expect_follow_from_those_of_others_and_of_the_job(
    devices: int, losses: int, held: int, hours: float
) -> None:
    environ = {"RLJOB_LOSSES": str(losses), "RLJOB_HELD_DEVICE_SECONDS": str(held)}
    assert loss_seconds(devices, environ) == hours * HOUR
    assert losses or loss_seconds(devices, {}) == hours * HOUR


def measured(cost: float, hours: float, behind: float = 0.0) -> SaveInterval:
    made = SaveInterval(hours * HOUR)
    made.saved(15, cost)
    made.written(behind)
    return made


@pytest.mark.parametrize(
    ("made", "step_seconds", "steps"),
    [
        (SaveInterval(HOUR, last=15), 60.0, FIRST_STEPS),  # nothing was measured
        (measured(30.0, 20), None, FIRST_STEPS),
        (measured(30.0, 20), 60.0, 35),  # sqrt(2 * 30 * 72,000) = 2,078 s
        (measured(30.0, 20), 200.0, 10),
        (measured(7.5, 20), 60.0, 17),  # a quarter of the cost halves the interval
        (measured(7.5, 5), 60.0, 9),
        (measured(300.0, 400), 60.0, 60),  # an hour
        (measured(300.0, 400), 5000.0, 1),
        (measured(0.1, 0.1), 60.0, 1),
        (measured(0.5, 1, behind=600.0), 60.0, 10),  # the ranks write for ten minutes
    ],
)
def test_the_interval_follows_from_what_a_save_costs(
    made: SaveInterval, step_seconds: float | None, steps: int
) -> None:
    assert made.steps(step_seconds) == steps
    due = [step for step in range(16, 15 + 2 * steps) if made.is_due(step, step_seconds)]
    assert due == [*range(15 + steps, 15 + 2 * steps)]


def test_the_interval_counts_from_the_last_save() -> None:
    made = SaveInterval(HOUR)
    assert [step for step in range(101, 106) if made.is_due(step, None)] == [105]
    made.saved(105, 100.0)
    assert not made.is_due(106, 60.0)
    assert made.is_due(105 + made.steps(60.0), 60.0)
