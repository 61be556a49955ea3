"""The verifiable reward of the quickstart: 1 for the exact sum, 0 for anything else.

verl calls `compute_score` once per response, in its reward workers.
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
    """Score one answer: `3+4=` has the ground truth `7`."""
    return float(solution_str.strip() == ground_truth)
