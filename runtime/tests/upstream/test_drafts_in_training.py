"""Drafts in verl's rollout on CPUs: the trainer agrees with what was sampled, and a second epoch uses the first."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rljob_runtime.verl_plugin import cpu_defaults

SECONDS = 280.0
HERE = Path(__file__).parent
STEPS, STEPS_OF_AN_EPOCH = 5, 4
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


def train(folder: Path, name: str, **wish: Any) -> list[dict[str, float]]:
    """Train, and return the metrics of each step."""
    environment = {**os.environ, **cpu_defaults.ENVIRONMENT, "VERL_USE_EXTERNAL_MODULES": "log_prob_difference"}
    environment["PYTHONPATH"] = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    words = [sys.executable, str(HERE / "real_training.py"), str(folder)]
    words.append(json.dumps({"name": name, "steps": STEPS, "spread": SPREAD, **wish}))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "drafts have no history" not in done.stderr
    return [step["metrics"] for step in json.loads(done.stdout.splitlines()[-1])["steps"]]


def test_sampled_tokens_have_the_probabilities_that_the_trainer_computes(tmp_path: Path) -> None:
    plain, drafted = train(tmp_path, "plain", overrides=SETTINGS), train(tmp_path, "drafted", **DRAFTS)
    apart = [statistics.fmean(step[DIFFERENCE] for step in steps) for steps in (plain, drafted)]
    print(f"mean difference of log-probabilities: {apart[0]:.2e} without drafts, {apart[1]:.2e} with them")
    assert 0 < apart[1] <= 2 * apart[0]
    assert not any("rollout/draft_steps_ratio" in step for step in plain)
    for step in drafted:
        assert step["rollout/draft_steps_ratio"] == 1
        assert 0 < step["rollout/spec_accept_rate"] < 1
        assert step["rollout/spec_accept_length"] > 1
    # Some of the 32 prompts have the same text, so that a later step of the first epoch may have a history.
    assert drafted[0]["rollout/draft_tokens/history"] == 0
    second = drafted[STEPS_OF_AN_EPOCH:]
    assert second
    assert all(step["rollout/draft_tokens_accepted/history"] > 0 for step in second)
    assert all(step["rollout/draft_history_bytes"] > 0 for step in drafted)
