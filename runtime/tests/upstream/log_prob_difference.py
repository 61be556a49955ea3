"""Add the difference of log-probabilities between rollout and trainer to verl's metrics.

verl has that of probabilities only. It imports the module in each of its processes, by VERL_USE_EXTERNAL_MODULES.
"""

from __future__ import annotations

from typing import Any

from verl.utils.debug import metrics

MEAN, MAXIMUM = "training/log_probs_difference_mean", "training/log_probs_difference_max"
original = metrics.calculate_debug_metrics


def calculate_debug_metrics(data: Any) -> dict[str, Any]:
    """Return verl's metrics and ours, over the tokens of responses."""
    batch = data.batch
    apart = (batch["old_log_probs"] - batch["rollout_log_probs"])[batch["response_mask"].bool()].abs()
    return {**original(data), MEAN: float(apart.mean()), MAXIMUM: float(apart.max())}


metrics.calculate_debug_metrics = calculate_debug_metrics
