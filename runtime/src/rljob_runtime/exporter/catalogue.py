"""Every metric that the exporter serves: name, description, where the figure comes from. The docs are made from it.

`rljob_` metrics carry the labels `rljob` and `rljob_namespace` (plain `job` and `namespace` would collide with the
labels that Prometheus adds to a target). vLLM's own metrics keep their names and get the labels `rljob`,
`rljob_namespace` and `replica`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One row."""

    name: str
    kind: str
    description: str
    source: str
    labels: tuple[str, ...] = ()


INFO = Metric(
    "rljob_info", "gauge", "Always 1; names the attempt.", "current.json", ("attempt", "submission_id", "pod_uid")
)
PHASE = Metric(
    "rljob_phase", "gauge", "1 for the attempt's phase, 0 for the others.", "current.json: phase", ("phase",)
)
STEP = Metric("rljob_step", "gauge", "Last complete step.", "current.json: step")
TOTAL_STEPS = Metric("rljob_total_steps", "gauge", "Steps that the job trains.", "job.json: totalSteps")
CHECKPOINT_STEP = Metric(
    "rljob_checkpoint_step", "gauge", "Step of the newest checkpoint.", "current.json: checkpointStep"
)
CHECKPOINT_TIME = Metric(
    "rljob_checkpoint_timestamp_seconds",
    "gauge",
    "When the newest checkpoint was complete; `time() - rljob_checkpoint_timestamp_seconds` is what a loss would cost.",
    "current.json: checkpointTime",
)
CHECKPOINT_SECONDS = Metric(
    "rljob_checkpoint_seconds",
    "gauge",
    "How long the trainer stood still for the newest checkpoint that this attempt saved.",
    "current.json: checkpointSeconds",
)
CHECKPOINT_BYTES = Metric(
    "rljob_checkpoint_bytes", "gauge", "Size of the newest checkpoint.", "current.json: checkpointBytes"
)
RESUMED_FROM = Metric(
    "rljob_resumed_from_step",
    "gauge",
    "Step that the attempt has loaded; 0 if it began with the model.",
    "current.json: resumedFromStep",
)
MEDIAN_STEP_SECONDS = Metric(
    "rljob_median_step_seconds",
    "gauge",
    "Median of the attempt's last thousand steps, from a step's begin to its record, with saving and validation.",
    "current.json: medianStepSeconds",
)
MEDIAN_ROLLOUT_SECONDS = Metric(
    "rljob_median_rollout_seconds",
    "gauge",
    "Median of the attempt's last thousand rollouts, first request to last answer.",
    "current.json: medianRolloutSeconds",
)
OBSERVED = Metric(
    "rljob_observed_timestamp_seconds",
    "gauge",
    "When the last step or phase was recorded.",
    "current.json: observedTime",
)
BINDING_NODES = Metric(
    "rljob_core_binding_nodes",
    "gauge",
    "Nodes with devices whose CPUs are planned (`planned`) or not (`unplanned`); /v1/progress tells why.",
    "current.json: coreBinding",
    ("state",),
)
BINDING_PROCESSES = Metric(
    "rljob_core_binding_processes",
    "gauge",
    "Processes of the run that keep to the CPUs of their plan (`bound`) or may leave them (`strayed`), as the kernel "
    "says of their threads.",
    "current.json: coreBinding",
    ("state",),
)
PREFLIGHT = Metric(
    "rljob_preflight_nodes",
    "gauge",
    "Nodes by the result of each check before the run.",
    "current.json: preflight",
    ("check", "result"),
)
REWARD = Metric("rljob_reward_mean", "gauge", "Mean score of the step's answers.", "verl: critic/score/mean")
STAGE_SECONDS = Metric(
    "rljob_stage_seconds",
    "gauge",
    "Seconds of the last step by stage; `step` is the whole, `rollout` is first request to last answer.",
    "verl: timing_s/<stage>; rollout: our router",
    ("stage",),
)
TOKENS_PER_SECOND = Metric(
    "rljob_tokens_per_second",
    "gauge",
    "Tokens of the trained batch per second of a stage. `tokens` says which were counted (prompt_and_response, "
    "response), `per` the divisor (card, die).",
    "verl: perf/total_num_tokens, prompt_length/mean, response_length/mean; stage seconds as in rljob_stage_seconds",
    ("stage", "tokens", "per"),
)
FIRST_DP_IDLE = Metric(
    "rljob_first_dp_idle_ratio",
    "gauge",
    "Share of the rollout for which the replica that finished first had nothing to do.",
    "our router: (last answer of all - last answer of the first replica to finish) / rollout seconds",
)
CLUSTER_IDLE = Metric(
    "rljob_cluster_idle_ratio",
    "gauge",
    "Share of all replicas' rollout time that was spent waiting for the slowest replica.",
    "our router: sum(rollout seconds - finish seconds) / (rollout seconds x replicas)",
)
REPLICA_FINISH = Metric(
    "rljob_replica_finish_seconds",
    "gauge",
    "Seconds from the rollout's first request to the replica's last answer.",
    "our router",
    ("replica",),
)
REPLICA_REQUESTS = Metric(
    "rljob_replica_requests", "gauge", "Requests that the replica got in the last rollout.", "our router", ("replica",)
)
VERL = Metric(
    "rljob_verl_metric",
    "gauge",
    "Every figure that verl logged for the last step, under its own name.",
    "verl: all metrics of Tracking.log",
    ("key",),
)
REPLICA_UP = Metric(
    "rljob_exporter_replica_up",
    "gauge",
    "1 if the replica's own metrics could be read in this scrape.",
    "the exporter",
    ("replica",),
)
REPLICAS_SKIPPED = Metric(
    "rljob_exporter_replicas_skipped",
    "gauge",
    "Replicas beyond the exporter's limit, whose vLLM metrics are not served.",
    "the exporter",
)

CATALOGUE = (
    INFO,
    PHASE,
    STEP,
    TOTAL_STEPS,
    CHECKPOINT_STEP,
    CHECKPOINT_TIME,
    CHECKPOINT_SECONDS,
    CHECKPOINT_BYTES,
    RESUMED_FROM,
    MEDIAN_STEP_SECONDS,
    MEDIAN_ROLLOUT_SECONDS,
    OBSERVED,
    BINDING_NODES,
    BINDING_PROCESSES,
    PREFLIGHT,
    REWARD,
    STAGE_SECONDS,
    TOKENS_PER_SECOND,
    FIRST_DP_IDLE,
    CLUSTER_IDLE,
    REPLICA_FINISH,
    REPLICA_REQUESTS,
    VERL,
    REPLICA_UP,
    REPLICAS_SKIPPED,
)

VLLM_PREFIX = "vllm:"
"""The family of vLLM's own metrics (vllm/v1/metrics/loggers.py, 0.23), served as they are."""
