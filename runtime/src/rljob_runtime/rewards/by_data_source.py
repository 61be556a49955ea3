"""The reward that verl chooses by the column `data_source`, for prompts of several data sets.

verl/utils/reward_score/__init__.py of 0.9.1 lists the sources; it raises NotImplementedError for any other.
"""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **ignored: object
) -> float | dict[str, Any]:
    """Return the score of a response, or a dict that contains it."""
    from verl.utils.reward_score import default_compute_score

    del ignored
    score: float | dict[str, Any] = default_compute_score(data_source, solution_str, ground_truth, extra_info)
    return score
