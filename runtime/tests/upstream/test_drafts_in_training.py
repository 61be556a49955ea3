"""Drafts beside none in verl's rollout on CPUs: the trainer agrees as well with what was sampled.

test_real_training.py asks what else a step with drafts shows.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
STEPS = 5
SPREAD = 0.3
"""Of the weights. With it and the low temperature, the model is as certain of its tokens as a trained one."""
DIFFERENCE = "training/log_probs_difference_mean"
SUFFIX = "+actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config"
SETTINGS = {
    "data.max_response_length": 64,
    "actor_rollout_ref.rollout.max_model_len": 96,
    "actor_rollout_ref.actor.optim.lr": 1e-5,
    "actor_rollout_ref.rollout.temperature": 0.3,
}
DRAFTS: dict[str, Any] = {
    "overrides": {**SETTINGS, f"{SUFFIX}.method": "suffix", f"{SUFFIX}.num_speculative_tokens": 3},
    "drafts": {"max_sequences": 1_000, "history_bytes": 1 << 26, "needs_suffix_trees": True},
}


Train = Callable[..., list[dict[str, float]]]


@pytest.fixture
def train(real_training: Any) -> Train:
    """Return a function that trains and returns the metrics of each step."""

    def run(folder: Path, name: str, **wish: Any) -> list[dict[str, float]]:
        modules = {"VERL_USE_EXTERNAL_MODULES": "log_prob_difference"}
        told = real_training(folder, name, HERE, environment=modules, steps=STEPS, spread=SPREAD, **wish)
        assert "drafts have no history" not in told["stderr"]
        return [step["metrics"] for step in told["steps"]]

    return run


@pytest.mark.long
def test_drafts_add_nothing_to_the_difference_of_log_probabilities(tmp_path: Path, train: Train) -> None:
    plain, drafted = train(tmp_path, "plain", overrides=SETTINGS), train(tmp_path, "drafted", **DRAFTS)
    apart = [statistics.fmean(step[DIFFERENCE] for step in steps) for steps in (plain, drafted)]
    print(f"mean difference of log-probabilities: {apart[0]:.2e} without drafts, {apart[1]:.2e} with them")
    assert 0 < apart[1] <= 2 * apart[0]
    assert not any("rollout/draft_steps_ratio" in step for step in plain)
