"""Calls of tools are counted by what verl said to the model."""

from __future__ import annotations

from rljob_runtime.spool import tool_metrics
from rljob_runtime.spool.tool_metrics import FIELD, ToolOutcome


def test_a_result_that_speaks_of_another_tools_error_is_a_result() -> None:
    assert tool_metrics.outcome_of("Error executing tool 'search': x", "run") is ToolOutcome.SUCCEEDED
    assert tool_metrics.outcome_of(None, "run") is ToolOutcome.SUCCEEDED


def test_the_calls_of_a_step_are_summed_over_its_responses() -> None:
    responses: list[dict[str, object] | None] = [
        {FIELD: {"succeeded": 2, "failed": 1}},
        {"turn_scores": []},
        None,
        {FIELD: {"succeeded": 1}},
    ]
    assert tool_metrics.tool_calls(responses) == {
        "rljob/tool_calls/succeeded": 3,
        "rljob/tool_calls/failed": 1,
        "rljob/tool_calls/invalid": 0,
        "rljob/tool_calls/unknown": 0,
    }
