"""The reward of the agent example: 1 if the response ends with `=` and the sum, computed by the tool or not.

The response has all turns, without special tokens: the model's calls, the results, and at last its answer.
"""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str,  # noqa: ARG001 - verl passes these four by name
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,  # noqa: ARG001
    **_: object,
) -> float:
    """Score one response: `3+4=` has the ground truth `7`."""
    return float(solution_str.rpartition("=")[2].strip() == ground_truth)
