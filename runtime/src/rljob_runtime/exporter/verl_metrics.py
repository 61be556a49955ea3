"""verl's own figures under stable names: which key of `Tracking.log` becomes which metric (verl 0.9.1).

A key is a template: a part in braces becomes a label and takes one segment between slashes, `{source}` several. What
the table does not know is served as `rljob_verl_metric` with the label `key`; what says the same as another metric is
left out (`SAME`). When verl renames a key, a row changes here and dashboards stay.
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
    "A figure that verl logged for the last step and that has no name here, under verl's key.",
    "verl: any other key",
    ("key",),
)


@dataclass(frozen=True)
class Row:
    """One key of verl."""

    key: str
    name: str
    description: str
    unit: str = ""
    fixed: Mapping[str, str] | None = None
    """Labels that the key implies."""
    factor: float = 1.0
    """From verl's unit to ours."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return (*re.findall(r"{(\w+)}", self.key), *(self.fixed or {}))

    @property
    def pattern(self) -> re.Pattern[str]:
        """What keys look like."""
        parts = re.split(r"{(\w+)}", self.key)
        return re.compile(
            "".join(
                re.escape(part) if n % 2 == 0 else f"(?P<{part}>{'.+' if part == 'source' else '[^/]+'})"
                for n, part in enumerate(parts)
            )
        )


ROWS = (
    # The answers.
    Row("critic/score/{stat}", "rljob_score", "Score of the step's answers (mean, max, min)."),
    Row("critic/rewards/{stat}", "rljob_reward", "Score of the answers less the KL penalty, where one is taken off."),
    Row("critic/advantages/{stat}", "rljob_advantage", "Advantage of the trained tokens."),
    Row("critic/returns/{stat}", "rljob_return", "Return of the trained tokens."),
    Row("response_length/{stat}", "rljob_response_tokens", "Length of the answers (mean, max, min).", "tokens"),
    Row(
        "response_length/clip_ratio",
        "rljob_response_clipped_ratio",
        "Share of the answers that are as long as the longest of the batch; near the limit they were cut off.",
        "ratio",
    ),
    Row(
        "response_length_non_aborted/{stat}",
        "rljob_finished_response_tokens",
        "Length of the answers that were not aborted.",
        "tokens",
    ),
    Row(
        "response_length_non_aborted/clip_ratio",
        "rljob_finished_response_clipped_ratio",
        "As rljob_response_clipped_ratio, of the answers that were not aborted.",
        "ratio",
    ),
    Row("response/aborted_ratio", "rljob_response_aborted_ratio", "Share of the answers that are empty.", "ratio"),
    Row("prompt_length/{stat}", "rljob_prompt_tokens", "Length of the prompts (mean, max, min).", "tokens"),
    Row(
        "prompt_length/clip_ratio",
        "rljob_prompt_clipped_ratio",
        "Share of the prompts that are as long as the longest of the batch.",
        "ratio",
    ),
    Row("training/num_turns/{stat}", "rljob_turns", "Turns of the conversations."),
    Row("tool_call_counts/{stat}", "rljob_tool_calls", "Calls of tools in the conversations."),
    Row(
        "training/filter_groups/evicted_samples",
        "rljob_discarded_groups",
        "Groups of answers that the step made and threw away: `filtered` by DAPO (all scores equal), `surplus`, "
        "`failed`, or `stale`.",
        fixed={"reason": "filtered"},
    ),
    Row(
        "training/filter_groups/discarded_surplus_samples",
        "rljob_discarded_groups",
        "",
        fixed={"reason": "surplus"},
    ),
    Row("training/rollout_failure/evicted_samples", "rljob_discarded_groups", "", fixed={"reason": "failed"}),
    Row("training/off_policy/evicted_samples", "rljob_discarded_groups", "", fixed={"reason": "stale"}),
    # The update.
    Row("actor/entropy", "rljob_entropy", "Mean entropy of the policy over the answers' tokens."),
    Row("actor/loss", "rljob_actor_loss", "Loss of the actor."),
    Row("actor/pg_loss", "rljob_policy_loss", "Policy gradient's part of the actor's loss."),
    Row("actor/kl_loss", "rljob_kl_loss", "KL to the reference policy, as in the loss."),
    Row("actor/kl_coef", "rljob_kl_coefficient", "Weight of the KL in the loss."),
    Row("actor/reward_kl_penalty", "rljob_reward_kl", "KL to the reference policy, as taken off the rewards."),
    Row("actor/reward_kl_penalty_coeff", "rljob_reward_kl_coefficient", "Weight of the KL in the rewards."),
    Row("actor/ppo_kl", "rljob_policy_kl", "KL between the policy before and during the step's updates."),
    Row(
        "actor/pg_clipfrac",
        "rljob_policy_clipped_ratio",
        "Share of the tokens whose ratio was clipped, by bound (upper, lower).",
        "ratio",
        {"bound": "upper"},
    ),
    Row("actor/pg_clipfrac_lower", "rljob_policy_clipped_ratio", "", "ratio", {"bound": "lower"}),
    Row("{model}/grad_norm", "rljob_gradient_norm", "Norm of the gradients, by model (actor, critic)."),
    Row("{model}/lr", "rljob_learning_rate", "Learning rate, by model (actor, critic)."),
    Row("critic/vf_loss", "rljob_value_loss", "Loss of the critic."),
    Row("critic/vf_clipfrac", "rljob_value_clipped_ratio", "Share of the critic's values that were clipped.", "ratio"),
    Row("critic/vpred_mean", "rljob_value_prediction_mean", "Mean of the critic's predictions."),
    Row("critic/values/{stat}", "rljob_value", "Values of the trained tokens (mean, max, min)."),
    Row("critic/vf_explained_var", "rljob_value_explained_variance", "Share of the returns' variance explained."),
    Row("variance_proxy/{figure}", "rljob_gradient_variance", "verl's proxies of the gradient's variance."),
    # Rollout against training, and against newer weights.
    Row(
        "rollout_corr/{figure}",
        "rljob_rollout_mismatch",
        "How far the trainer's probabilities are from the rollout's (kl, ppl_ratio, chi2_token ...).",
    ),
    Row(
        "training/rollout_probs_diff_{stat}",
        "rljob_rollout_probability_difference",
        "Difference of the answers' probabilities in rollout and trainer (mean, max, std; valid is 1 if known).",
    ),
    Row(
        "training/rollout_actor_probs_pearson_corr",
        "rljob_rollout_probability_correlation",
        "Correlation of the answers' probabilities in rollout and trainer.",
    ),
    Row(
        "training/off_policy/trajectory_spans/{stat}",
        "rljob_answer_versions",
        "Versions of the weights that one answer was generated with.",
    ),
    Row(
        "training/off_policy/trajectory_staleness/{stat}",
        "rljob_answer_staleness_steps",
        "Steps by which the newest weights of an answer are older than the trained ones.",
    ),
    Row(
        "training/off_policy/trajectory_staleness_worst/{stat}",
        "rljob_answer_worst_staleness_steps",
        "Steps by which the oldest weights of an answer are older than the trained ones.",
    ),
    Row("rollout/spec_accept_rate", "rljob_speculative_accepted_ratio", "Share of drafted tokens accepted.", "ratio"),
    Row("rollout/spec_accept_length", "rljob_speculative_accepted_tokens", "Tokens accepted per check.", "tokens"),
    Row(
        "rollout/moe/{figure}/layer_{layer}",
        "rljob_expert_load_violation",
        "How far experts are from an even load, by layer (max_vio, min_vio, avg_vio).",
    ),
    Row("rollout/moe/{figure}/{stat}", "rljob_expert_load", "The same over all layers (max, avg)."),
    # Balance, cost, memory.
    Row(
        "global_seqlen/{stat}",
        "rljob_rank_tokens",
        "Tokens of a data-parallel rank: min, max, mean and minmax_diff as they came, balanced_min and balanced_max as "
        "they were trained.",
        "tokens",
    ),
    Row(
        "timing_per_token_ms/{stage}",
        "rljob_stage_seconds_per_token",
        "Seconds of a stage per token: of the responses in stage gen, of all tokens in the others.",
        "seconds",
        factor=1e-3,
    ),
    Row("perf/mfu/{model}", "rljob_mfu_ratio", "Model FLOPs over the devices' peak FLOPs, by model.", "ratio"),
    Row(
        "{model}/perf/max_memory_allocated_gb",
        "rljob_device_memory_max_bytes",
        "Most device memory that the trainer's first rank ever had, by state (allocated, reserved).",
        "bytes",
        {"state": "allocated"},
        GIB,
    ),
    Row(
        "{model}/perf/max_memory_reserved_gb",
        "rljob_device_memory_max_bytes",
        "",
        "bytes",
        {"state": "reserved"},
        GIB,
    ),
    Row(
        "{model}/perf/cpu_memory_used_gb",
        "rljob_host_memory_used_bytes",
        "Host memory in use on the node of the trainer's first rank.",
        "bytes",
        factor=GIB,
    ),
    Row("training/epoch", "rljob_epoch", "Epoch of the training data."),
    # Validation.
    Row(
        "val-core/{source}/{variable}/{estimate}",
        "rljob_validation",
        "verl's validation figures by data source, variable and estimate (mean@8, best@8/mean ...).",
        fixed={"kind": "core"},
    ),
    Row("val-aux/num_turns/{stat}", "rljob_validation_turns", "Turns of the validation's conversations."),
    Row("val-aux/{source}/{variable}/{estimate}", "rljob_validation", "", fixed={"kind": "aux"}),
)
"""In the order in which they are tried."""

SAME = {
    "training/global_step": "rljob_step",
    "perf/time_per_step": 'rljob_stage_seconds{stage="step"}',
    "perf/total_num_tokens": "rljob_step_tokens",
    "perf/throughput": 'rljob_tokens_per_second{stage="step",tokens="prompt_and_response",per="die"}',
    "num_turns/mean": "rljob_turns",
    "num_turns/max": "rljob_turns",
    "num_turns/min": "rljob_turns",
}
"""Keys that say what another metric says."""


def _metrics() -> Iterator[Metric]:
    rows: dict[str, list[Row]] = {}
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
    """A key of verl and what it is called here."""

    key: str
    metric: Metric
    labels: Mapping[str, str]
    factor: float = 1.0


def named(keys: Iterable[str]) -> list[Named]:
    """Name keys, in the order of the table, unknown ones last; keys of `SAME` are left out."""
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
