"""Baselines for ReMax: the score of one more, greedy response to each prompt, which verl's V1 trainer does not compute.

verl 0.9.1 registers the estimator `remax` but computes `reward_baselines` only in its legacy trainer
(trainer/ppo/ray_trainer.py), so with V1 it fails in the first step. Our trainer sends each prompt a second time, as a
validation prompt, which is sampled greedily unless `rollout.val_kwargs` is set. Our estimator then finds the score by
the prompt's uid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from verl.trainer.ppo import core_algos

ESTIMATOR = "rljob_remax"
REMAX = core_algos.AdvantageEstimator.REMAX.value

_scores: dict[str, float] = {}
"""Prompt's uid -> score of its greedy response, for the current step."""


def set_scores(scores: Mapping[str, float]) -> None:
    """Set the scores of a step's baselines."""
    _scores.clear()
    _scores.update(scores)


def estimate(
    token_level_rewards: Any,  # noqa: ANN401 - tensors; torch is not typed here
    response_mask: Any,  # noqa: ANN401
    index: Any,  # noqa: ANN401 - uid of each row
    config: Any = None,  # noqa: ANN401
    **_: object,
) -> Any:  # noqa: ANN401
    """Return verl's ReMax advantages and returns.

    Padding rows of the batch (verl/trainer/ppo/padding_utils.py) belong to no prompt and have an empty mask.
    """
    baselines = torch.tensor([_scores.get(uid, 0.0) for uid in index], dtype=token_level_rewards.dtype)
    return core_algos.compute_remax_outcome_advantage(
        token_level_rewards=token_level_rewards, reward_baselines=baselines, response_mask=response_mask, config=config
    )


core_algos.register_adv_est(ESTIMATOR)(estimate)
