"""The summary at the end of a run: records to metrics, metrics to a curve."""

from __future__ import annotations

import json
import math

import pytest

from rljob.cli.curve import plot
from rljob.reading.records import figure_table, figures, read_records


def record(step: int, reward: float) -> str:
    metrics = {
        "critic/score/mean": reward,
        "timing_s/step": 3.5,
        "rljob/tokens_per_second/step/prompt_and_response/card": 900.0,
        "rljob/cluster_idle_ratio": 0.1,
        "rljob/first_dp_idle_ratio": "nan",
    }
    return json.dumps({"step": step, "time": 1.0, "metrics": metrics})


def test_records_are_read_in_order_and_a_cut_line_is_passed_over() -> None:
    text = "\n".join([record(2, 0.7), record(1, 0.6), record(3, 0.8)[:40]])
    assert [(step.number, step.reward) for step in figures(read_records(text, 1))] == [(1, 0.6), (2, 0.7)]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 60_000,
        '{"step": 1, "metrics": {"a": 1' + "0" * 400 + "}}",
        '{"step": Infinity, "metrics": {}}',
        '{"step": 1, "metrics": []}',
        "7",
        "\ufffd",
    ],
    ids=["deep", "large", "endless", "list", "number", "no text"],
)
def test_a_line_of_another_kind_is_passed_over(line: str) -> None:
    good = '{"step": 2, "time": 1.0, "metrics": {"critic/score/mean": 0.5}}'
    assert [record.step for record in read_records(f"{line}\n{good}\n", 1)] == [2]


def test_of_a_step_that_was_trained_again_the_later_attempt_counts() -> None:
    records = [*read_records(record(1, 0.9), 2), *read_records(record(1, 0.1), 1)]
    assert [step.reward for step in figures(records)] == [0.9]


def test_a_validation_before_the_training_is_no_step() -> None:
    line = json.dumps({"step": 1, "time": 1.0, "metrics": {"rljob/validation/score/mean": 0.5}})
    assert figures(read_records(line, 1)) == []


def test_the_table_compares_the_first_steps_with_the_last() -> None:
    text = "\n".join(record(step, step / 10) for step in range(1, 11))
    rows = figure_table(figures(read_records(text, 1)))
    assert rows[1] == ("reward", "0.3", "0.8", "0.6", "mean of responses")
    assert rows[3] == ("TPS per card", "900", "900", "900", "tokens/s")
    assert rows[5][1:4] == ("-", "-", "-")


def test_the_curve_has_a_point_for_each_step() -> None:
    drawn = plot([0.2, 0.4, 0.6, math.nan, 1.0], title="reward", height=5)
    assert (
        drawn
        == """\
        reward
       |    *
       |
  0.60 |  *
       | *
       |*
  0.00 |
       +-----
        1   5"""
    )


def test_a_long_run_is_averaged_into_the_width() -> None:
    lines = plot([0.5] * 1000, title="reward", width=50).splitlines()
    assert max(line.count("*") for line in lines) == 50


def test_nothing_is_drawn_of_nothing() -> None:
    assert plot([], title="reward") == "reward: no data"
