"""The reward of DAPO: 1 if the text after the last `Answer:` equals the answer after normalisation, otherwise -1.

verl's function (verl/utils/reward_score/math_dapo.py of 0.9.1) also returns `acc`, by which DAPO filters groups, and
the text that it read. It reads the last 300 characters of a response.
"""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **ignored: object
) -> dict[str, Any]:
    """Return score, accuracy and the answer that was read."""
    from verl.utils.reward_score import math_dapo

    del data_source, extra_info, ignored
    return dict(math_dapo.compute_score(solution_str, ground_truth))
