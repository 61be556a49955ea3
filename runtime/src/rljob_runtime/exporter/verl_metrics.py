"""Map verl's own metrics to stable names: which key of `Tracking.log` becomes which metric (verl 0.9.1).

A key is a template: a part in braces becomes a label and matches one segment between slashes, `{source}` matches
several. Keys that are not in the table are served as `rljob_verl_metric` with the label `key`; keys with the same value
as another metric are left out (`SAME`). When verl renames a key, only a row changes here and dashboards keep working.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rljob_runtime.exporter.metric import Metric

GIB = 1024.0**3

GENERIC = Metric(
    "rljob_verl_metric",
    "gauge",
    "A metric that verl logged for the last step and that has no stable name, under verl's key.",
    "verl: any other key",
    ("key",),
)


@dataclass(frozen=True)
class KeyRow:
    """One key of verl."""

    key: str
    name: str
    description: str
    unit: str = ""
    fixed: Mapping[str, str] | None = None
    """Labels that the key implies."""
    factor: float = 1.0
    """Factor from verl's unit to ours."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return (*re.findall(r"{(\w+)}", self.key), *(self.fixed or {}))

    @property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression that matches the keys."""
        parts = re.split(r"{(\w+)}", self.key)
        return re.compile(
            "".join(
                re.escape(part) if n % 2 == 0 else f"(?P<{part}>{'.+' if part == 'source' else '[^/]+'})"
                for n, part in enumerate(parts)
            )
        )


ROWS = (
    # The responses.
    KeyRow("critic/score/{stat}", "rljob_score", "Score of the step's responses (mean, max, min)."),
    KeyRow("critic/rewards/{stat}", "rljob_reward", "Score of the responses minus the KL penalty, if one applies."),
    KeyRow("critic/advantages/{stat}", "rljob_advantage", "Advantage of the trained tokens."),
    KeyRow("critic/returns/{stat}", "rljob_return", "Return of the trained tokens."),
    KeyRow("response_length/{stat}", "rljob_response_tokens", "Length of the responses (mean, max, min).", "tokens"),
    KeyRow(
        "response_length/clip_ratio",
        "rljob_response_clipped_ratio",
        "Share of responses that are as long as the longest of the batch; near the limit they were truncated.",
        "ratio",
    ),
    KeyRow(
        "response_length_non_aborted/{stat}",
        "rljob_finished_response_tokens",
        "Length of the responses that were not aborted.",
        "tokens",
    ),
    KeyRow(
        "response_length_non_aborted/clip_ratio",
        "rljob_finished_response_clipped_ratio",
        "Like rljob_response_clipped_ratio, for responses that were not aborted.",
        "ratio",
    ),
    KeyRow("response/aborted_ratio", "rljob_response_aborted_ratio", "Share of empty responses.", "ratio"),
    KeyRow("prompt_length/{stat}", "rljob_prompt_tokens", "Length of the prompts (mean, max, min).", "tokens"),
    KeyRow(
        "prompt_length/clip_ratio",
        "rljob_prompt_clipped_ratio",
        "Share of prompts that are as long as the longest of the batch.",
        "ratio",
    ),
    KeyRow("training/num_turns/{stat}", "rljob_turns", "Turns per conversation."),
    KeyRow(
        "training/filter_groups/evicted_samples",
        "rljob_discarded_groups",
        "Groups of responses that the step generated and discarded: `filtered` by DAPO (all scores equal), `surplus`, "
        "`failed`, or `stale`.",
        fixed={"reason": "filtered"},
    ),
    KeyRow(
        "training/filter_groups/discarded_surplus_samples",
        "rljob_discarded_groups",
        "",
        fixed={"reason": "surplus"},
    ),
    KeyRow("training/rollout_failure/evicted_samples", "rljob_discarded_groups", "", fixed={"reason": "failed"}),
    KeyRow("training/off_policy/evicted_samples", "rljob_discarded_groups", "", fixed={"reason": "stale"}),
    # The update.
    KeyRow(
        "actor/entropy",
        "rljob_entropy",
        "Mean entropy of the policy over the response tokens, estimated from the sampled ones where the pass for old "
        "log-probabilities is skipped.",
    ),
    KeyRow("actor/loss", "rljob_actor_loss", "Loss of the actor."),
    KeyRow("actor/pg_loss", "rljob_policy_loss", "Policy gradient term of the actor's loss."),
    KeyRow("actor/kl_loss", "rljob_kl_loss", "KL divergence from the reference policy in the loss."),
    KeyRow("actor/kl_coef", "rljob_kl_coefficient", "Coefficient of the KL term in the loss."),
    KeyRow("actor/reward_kl_penalty", "rljob_reward_kl", "KL divergence from the reference policy in the rewards."),
    KeyRow(
        "actor/reward_kl_penalty_coeff", "rljob_reward_kl_coefficient", "Coefficient of the KL penalty in the rewards."
    ),
    KeyRow("actor/ppo_kl", "rljob_policy_kl", "KL divergence of the policy before and during the step's updates."),
    KeyRow(
        "actor/pg_clipfrac",
        "rljob_policy_clipped_ratio",
        "Share of tokens whose ratio was clipped, by bound (upper, lower).",
        "ratio",
        {"bound": "upper"},
    ),
    KeyRow("actor/pg_clipfrac_lower", "rljob_policy_clipped_ratio", "", "ratio", {"bound": "lower"}),
    KeyRow("{model}/grad_norm", "rljob_gradient_norm", "Gradient norm by model (actor, critic)."),
    KeyRow("{model}/lr", "rljob_learning_rate", "Learning rate by model (actor, critic)."),
    KeyRow("critic/vf_loss", "rljob_value_loss", "Loss of the critic."),
    KeyRow(
        "critic/vf_clipfrac", "rljob_value_clipped_ratio", "Share of the critic's values that were clipped.", "ratio"
    ),
    KeyRow("critic/vpred_mean", "rljob_value_prediction_mean", "Mean of the critic's predictions."),
    KeyRow("critic/values/{stat}", "rljob_value", "Values of the trained tokens (mean, max, min)."),
    KeyRow("critic/vf_explained_var", "rljob_value_explained_variance", "Share of the returns' variance explained."),
    KeyRow("variance_proxy/{figure}", "rljob_gradient_variance", "verl's proxies for the gradient variance."),
    # Rollout against training, and against newer weights.
    KeyRow(
        "rollout_corr/{figure}",
        "rljob_rollout_mismatch",
        "Divergence of the trainer's probabilities from the rollout's (kl, ppl_ratio, chi2_token ...).",
    ),
    KeyRow(
        "training/rollout_probs_diff_{stat}",
        "rljob_rollout_probability_difference",
        "Difference of the responses' probabilities between rollout and trainer (mean, max, std; valid is 1 if known).",
    ),
    KeyRow(
        "training/rollout_actor_probs_pearson_corr",
        "rljob_rollout_probability_correlation",
        "Correlation of the responses' probabilities between rollout and trainer.",
    ),
    KeyRow(
        "training/off_policy/trajectory_spans/{stat}",
        "rljob_answer_versions",
        "Number of weight versions that generated one response.",
    ),
    KeyRow(
        "training/off_policy/trajectory_staleness/{stat}",
        "rljob_answer_staleness_steps",
        "Steps by which the newest weights of a response are older than the trained weights.",
    ),
    KeyRow(
        "training/off_policy/trajectory_staleness_worst/{stat}",
        "rljob_answer_worst_staleness_steps",
        "Steps by which the oldest weights of a response are older than the trained weights.",
    ),
    KeyRow(
        "rollout/spec_accept_rate", "rljob_speculative_accepted_ratio", "Share of drafted tokens accepted.", "ratio"
    ),
    KeyRow("rollout/spec_accept_length", "rljob_speculative_accepted_tokens", "Tokens accepted per check.", "tokens"),
    KeyRow(
        "rollout/draft_tokens/{source}",
        "rljob_draft_tokens",
        "Tokens of the step's drafts that engines checked, by source (own, shared, history).",
        "tokens",
    ),
    KeyRow(
        "rollout/draft_tokens_accepted/{source}",
        "rljob_draft_accepted_tokens",
        "Tokens of the step's drafts that engines accepted, by source.",
        "tokens",
    ),
    KeyRow(
        "rollout/draft_steps_ratio",
        "rljob_draft_steps_ratio",
        "Share of an engine's steps in which it drafted, because few enough sequences were running.",
        "ratio",
    ),
    KeyRow(
        "rollout/draft_history_bytes",
        "rljob_draft_history_bytes",
        "Memory of an engine for responses of earlier steps.",
        "bytes",
    ),
    KeyRow(
        "rollout/moe/{figure}/layer_{layer}",
        "rljob_expert_load_violation",
        "Load of an expert / mean load - 1, by layer: of the most (max_vio) and the least loaded expert (min_vio), and "
        "the mean distance (avg_vio). verl logs it every moe_load_balance_metrics_interval steps, with routing replay.",
    ),
    KeyRow("rollout/moe/{figure}/{stat}", "rljob_expert_load", "The same over all layers (max, avg)."),
    KeyRow(
        "rollout/moe/routed_expert_assignments",
        "rljob_expert_assignments",
        "Choices of an expert by a token, over all layers, of which the expert load was computed.",
    ),
    KeyRow("rollout/moe/routed_experts_found", "rljob_expert_load_known", "1 if the engine returned its routing."),
    # Balance, cost, memory.
    KeyRow(
        "global_seqlen/{stat}",
        "rljob_rank_tokens",
        "Tokens per data-parallel rank: min, max, mean and minmax_diff before balancing, balanced_min and balanced_max "
        "after it.",
        "tokens",
    ),
    KeyRow(
        "timing_per_token_ms/{stage}",
        "rljob_stage_seconds_per_token",
        "Duration of a stage per token: per response token in stage gen, per token of prompt and response in others.",
        "seconds",
        factor=1e-3,
    ),
    KeyRow("perf/mfu/{model}", "rljob_mfu_ratio", "Model FLOPs divided by the devices' peak FLOPs, by model.", "ratio"),
    KeyRow(
        "{model}/perf/max_memory_allocated_gb",
        "rljob_device_memory_max_bytes",
        "Peak device memory of the trainer's first rank, by state (allocated, reserved).",
        "bytes",
        {"state": "allocated"},
        GIB,
    ),
    KeyRow(
        "{model}/perf/max_memory_reserved_gb",
        "rljob_device_memory_max_bytes",
        "",
        "bytes",
        {"state": "reserved"},
        GIB,
    ),
    KeyRow(
        "{model}/perf/cpu_memory_used_gb",
        "rljob_host_memory_used_bytes",
        "Host memory in use on the node of the trainer's first rank.",
        "bytes",
        factor=GIB,
    ),
    KeyRow("training/epoch", "rljob_epoch", "Epoch of the training data."),
    # Validation.
    KeyRow(
        "val-core/{source}/{variable}/{estimate}",
        "rljob_validation",
        "verl's validation metrics by data source, variable and estimate (mean@8, best@8/mean ...).",
        fixed={"kind": "core"},
    ),
    KeyRow("val-aux/num_turns/{stat}", "rljob_validation_turns", "Turns per validation conversation."),
    KeyRow("val-aux/{source}/{variable}/{estimate}", "rljob_validation", "", fixed={"kind": "aux"}),
)
"""In the order in which they are matched."""

SAME = {
    "training/global_step": "rljob_step",
    "perf/time_per_step": 'rljob_stage_seconds{stage="step"}',
    "perf/total_num_tokens": "rljob_step_tokens",
    "perf/throughput": 'rljob_tokens_per_second{stage="step",tokens="prompt_and_response",per="die"}',
    "num_turns/mean": "rljob_turns",
    "num_turns/max": "rljob_turns",
    "num_turns/min": "rljob_turns",
}
"""Keys with the same value as another metric."""


def _metrics() -> Iterator[Metric]:
    rows: dict[str, list[KeyRow]] = {}
    for row in ROWS:
        rows.setdefault(row.name, []).append(row)
    for name, same in rows.items():
        source = "verl: " + ", ".join(row.key.replace("{", "<").replace("}", ">") for row in same)
        yield Metric(name, "gauge", same[0].description, source, same[0].labels, same[0].unit)
    yield GENERIC


METRICS = tuple(_metrics())
_BY_NAME = {metric.name: metric for metric in METRICS}
_EXACT = {row.key: row for row in ROWS if "{" not in row.key}
_PATTERNS = tuple((row.pattern, row) for row in ROWS if "{" in row.key)
_RANK = {name: rank for rank, name in enumerate(_BY_NAME)}


@dataclass(frozen=True)
class Named:
    """A key of verl with its metric and labels."""

    key: str
    metric: Metric
    labels: Mapping[str, str]
    factor: float = 1.0


def named(keys: Iterable[str]) -> list[Named]:
    """Name keys in the order of the table, unknown keys last. Keys in `SAME` are left out."""
    found = [name(key) for key in keys if key not in SAME]
    return sorted(found, key=lambda one: (_RANK[one.metric.name], one.key))


@lru_cache(maxsize=4096)
def name(key: str) -> Named:
    """Name one key."""
    if (row := _EXACT.get(key)) is not None:
        return Named(key, _BY_NAME[row.name], row.fixed or {}, row.factor)
    for pattern, row in _PATTERNS:
        if (match := pattern.fullmatch(key)) is not None:
            return Named(key, _BY_NAME[row.name], match.groupdict() | dict(row.fixed or {}), row.factor)
    return Named(key, GENERIC, {"key": key})
