"""What is reported about the steps after which a run evaluates and saves."""

import pytest
from builders import Json, merged, saving, small_spec, validate


def warning_lines(change: Json) -> list[str]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return [str(warning) for warning in checked.warnings]


@pytest.mark.parametrize("every", [1, 39, 40, 41, 1000])
def test_every_interval_of_evaluations_is_fine(every: int) -> None:
    assert warning_lines({"trainer": {"evaluateEverySteps": every}}) == []


@pytest.mark.parametrize(
    ("every", "trainer", "is_warned"),
    [
        (39, {}, False),
        (40, {}, True),
        (41, {}, True),
        (1, {"steps": 1}, False),
        (41, {"mode": "Evaluate"}, False),
    ],
)
def test_a_run_with_a_single_checkpoint_is_a_warning(every: int, trainer: Json, is_warned: bool) -> None:
    lines = warning_lines(
        merged(saving({"checkpoint": {"path": "/data/saves", "everySteps": every}}), {"trainer": trainer})
    )
    assert len(lines) == is_warned, lines
    assert all("the only checkpoint is that of the last step" in line for line in lines)
