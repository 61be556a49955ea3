"""What is told about the steps after which a run evaluates and saves."""

import pytest
from builders import Json, merged, saving, small_spec, validate


def told(change: Json) -> list[str]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return [str(warning) for warning in checked.warnings]


@pytest.mark.parametrize("every", [1, 39, 40, 41, 1000])
def test_every_interval_of_evaluations_is_fine(every: int) -> None:
    assert told({"trainer": {"evaluateEverySteps": every}}) == []


@pytest.mark.parametrize(
    ("every", "trainer", "is_told"),
    [
        (39, {}, False),
        (40, {}, True),
        (41, {}, True),
        (1, {"steps": 1}, False),
        (41, {"mode": "Evaluate"}, False),
    ],
)
def test_a_run_with_a_single_checkpoint_is_told_so(every: int, trainer: Json, is_told: bool) -> None:
    lines = told(merged(saving({"checkpoint": {"path": "/data/saves", "everySteps": every}}), {"trainer": trainer}))
    assert len(lines) == is_told, lines
    assert all("the only checkpoint is that of the last step" in line for line in lines)
