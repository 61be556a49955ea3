"""Metrics of the tools that an agent calls.

Pure; the trainer sums what the agent loops counted (verl_plugin/router/tool_agent.py).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from rljob_runtime.spool.step_metrics import PREFIX

TOOL_CALLS_PREFIX = f"{PREFIX}/tool_calls/"
"""Then an outcome."""
FIELD = "rljob_tool_calls"
"""Field of a response in verl's `extra_fields`."""


class ToolOutcome(enum.StrEnum):
    """How a call ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The tool raised an exception."""
    INVALID = "invalid"
    """Its arguments are not JSON."""
    UNKNOWN = "unknown"
    """There is no tool of this name."""


def outcome_of(text: str | None, name: str) -> ToolOutcome:
    """Return the outcome of a call by the text that verl made of it (tool_agent_loop.py, _call_tool, 0.9.1)."""
    beginnings = {
        f"Unknown function '{name}'": ToolOutcome.UNKNOWN,
        f"Invalid JSON in arguments for '{name}'": ToolOutcome.INVALID,
        f"Error executing tool '{name}'": ToolOutcome.FAILED,
    }
    seen = text or ""
    return next((outcome for begins, outcome in beginnings.items() if seen.startswith(begins)), ToolOutcome.SUCCEEDED)


def tool_calls(extra_fields: Iterable[Mapping[str, Any] | None]) -> dict[str, float]:
    """Return the calls of a step's responses by outcome."""
    counts = dict.fromkeys(ToolOutcome, 0)
    for fields in extra_fields:
        counted: Mapping[str, int] = (fields or {}).get(FIELD) or {}
        for outcome, count in counted.items():
            counts[ToolOutcome(outcome)] += int(count)
    return {f"{TOOL_CALLS_PREFIX}{outcome}": float(count) for outcome, count in counts.items()}
