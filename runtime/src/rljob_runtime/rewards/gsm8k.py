"""The reward of GSM8K: 1 if the number after the last `#### ` is the answer, otherwise 0.

verl's function (verl/utils/reward_score/gsm8k.py of 0.9.1) reads the last 300 characters of a response.
"""

from __future__ import annotations


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: object = None, **ignored: object
) -> float:
    """Return the score of a response."""
    from verl.utils.reward_score import gsm8k

    del data_source, extra_info, ignored
    return float(gsm8k.compute_score(solution_str, ground_truth))
