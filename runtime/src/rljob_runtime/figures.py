"""The arithmetic of our own figures: tokens per second and idle ratios. Pure; the trainer and the tests call it.

The published recipes divide by cards and count tokens in two ways, so each figure names its stage, its tokens and its
divisor in the key: `rljob/tokens_per_second/<stage>/<tokens>/<divisor>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rljob_runtime.contract import StepMetric

PREFIX = "rljob"
ALL_TOKENS = "prompt_and_response"
RESPONSE_TOKENS = "response"
FIRST_DP_IDLE = StepMetric.FIRST_DP_IDLE.value
CLUSTER_IDLE = StepMetric.CLUSTER_IDLE.value
ROLLOUT_SECONDS = f"{PREFIX}/rollout_seconds"
VALIDATION_SCORE = f"{PREFIX}/validation/score/mean"
STEP_TPS_PER_CARD = StepMetric.STEP_TPS_PER_CARD.value

VERL_TOKENS = "perf/total_num_tokens"
"""Prompt and response tokens of the trained batch: verl/trainer/ppo/metric_utils.py, compute_throughout_metrics."""
VERL_SECONDS = {"update": "timing_s/update_actor", "step": StepMetric.STEP_SECONDS.value}
"""`timing_s/gen` is no rollout time: it starts after the prompts were sent and ends on a poll tick."""


@dataclass(frozen=True)
class ReplicaWindow:
    """One replica's requests between two readings of the router; Unix seconds."""

    first_acquire: float | None = None
    last_release: float | None = None
    requests: int = 0


@dataclass(frozen=True)
class RolloutWindow:
    """All replicas of a step's rollout."""

    replicas: Mapping[str, ReplicaWindow] = field(default_factory=dict)

    @property
    def begin(self) -> float | None:
        """When the first request of the step was sent."""
        return min((r.first_acquire for r in self.replicas.values() if r.first_acquire is not None), default=None)

    @property
    def finish_times(self) -> list[float]:
        """Seconds from the begin to each replica's last answer; 0 for a replica that got no request."""
        begin = self.begin
        if begin is None:
            return []
        return [max(0.0, (r.last_release or begin) - begin) for r in self.replicas.values()]

    @property
    def seconds(self) -> float:
        """Rollout wall time: first request to last answer."""
        return max(self.finish_times, default=0.0)

    @property
    def first_dp_idle_ratio(self) -> float | None:
        """Share of the rollout for which the replica that finished first had nothing to do (the recipes' figure)."""
        return (self.seconds - min(self.finish_times)) / self.seconds if self.seconds > 0 else None

    @property
    def cluster_idle_ratio(self) -> float | None:
        """Share of all replicas' rollout time that was spent waiting for the slowest."""
        if self.seconds <= 0:
            return None
        return sum(self.seconds - t for t in self.finish_times) / (self.seconds * len(self.finish_times))


def rollout_figures(window: RolloutWindow) -> dict[str, float]:
    """Give the figures of one rollout; empty when no request was timed."""
    first, cluster = window.first_dp_idle_ratio, window.cluster_idle_ratio
    if first is None or cluster is None:
        return {}
    figures = {FIRST_DP_IDLE: first, CLUSTER_IDLE: cluster, ROLLOUT_SECONDS: window.seconds}
    for index, finish in enumerate(window.finish_times):
        figures[f"{PREFIX}/replica/{index}/finish_seconds"] = finish
    for index, name in enumerate(window.replicas):
        figures[f"{PREFIX}/replica/{index}/requests"] = float(window.replicas[name].requests)
    return figures


def response_tokens(metrics: Mapping[str, float]) -> float:
    """Response tokens of the trained batch, from the mean lengths that verl gives."""
    prompt, response = metrics["prompt_length/mean"], metrics["response_length/mean"]
    total = prompt + response
    return metrics[VERL_TOKENS] * response / total if total else 0.0


def throughput_figures(
    metrics: Mapping[str, float], *, rollout_seconds: float | None, devices: int, dies_per_card: int
) -> dict[str, float]:
    """Give tokens per second of rollout, update and whole step, per card and per die, for both ways to count tokens."""
    seconds = {stage: metrics.get(key) for stage, key in VERL_SECONDS.items()}
    seconds["rollout"] = rollout_seconds
    tokens = {ALL_TOKENS: metrics[VERL_TOKENS], RESPONSE_TOKENS: response_tokens(metrics)}
    divisors = {"card": devices / dies_per_card, "die": float(devices)}
    return {
        f"{PREFIX}/tokens_per_second/{stage}/{basis}/{unit}": count / duration / divisor
        for stage, duration in seconds.items()
        if duration
        for basis, count in tokens.items()
        for unit, divisor in divisors.items()
    }
