r"""The reward of MATH: 1 if the content of the last `\boxed{}` equals the answer after normalisation, otherwise 0.

verl's function (verl/utils/reward_score/math_reward.py of 0.9.1) compares texts; it does not solve equations.
"""

from __future__ import annotations


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **ignored: object
) -> float:
    """Return the score of a response."""
    from verl.utils.reward_score import math_reward

    del data_source, extra_info, ignored
    return float(math_reward.compute_score(solution_str, ground_truth))
