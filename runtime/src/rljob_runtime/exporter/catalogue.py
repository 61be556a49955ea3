"""Every metric that the exporter serves, with description and source. docs/reference/metrics.md is generated from it.

`rljob_` metrics have the labels `rljob` and `rljob_namespace` (`job` and `namespace` would collide with the labels that
Prometheus adds to a target). Values of the last step are gauges. Values that accumulate over steps are counters over
all attempts on the head pod, so that `increase()` survives a restart of the driver. verl_metrics.py maps verl's own
metrics; upstream_metrics.py lists those of vLLM and TransferQueue.
"""

from __future__ import annotations

from rljob_runtime.exporter import verl_metrics
from rljob_runtime.exporter.async_catalogue import ASYNC
from rljob_runtime.exporter.metric import Metric

# The attempt.
INFO = Metric(
    "rljob_info", "gauge", "Always 1; identifies the attempt.", "current.json", ("attempt", "submission_id", "pod_uid")
)
PHASE = Metric(
    "rljob_phase", "gauge", "1 for the attempt's phase, 0 for other phases.", "current.json: phase", ("phase",)
)
ATTEMPT = Metric("rljob_attempt", "gauge", "Number of the attempt.", "current.json: attempt")
ATTEMPT_START = Metric(
    "rljob_attempt_start_timestamp_seconds",
    "gauge",
    "Time at which the attempt's launcher started.",
    "current.json: startTime",
    unit="timestamp",
)
NODES = Metric("rljob_nodes", "gauge", "Nodes with devices in the job.", "job.json: nodes")
DEVICES = Metric("rljob_devices", "gauge", "Devices (dies) of the job.", "job.json: devices")
CARDS = Metric(
    "rljob_cards", "gauge", "Cards of the job; the divisor of per-card metrics.", "job.json: devices / diesPerCard"
)
ROLE_NODES = Metric(
    "rljob_role_nodes",
    "gauge",
    "Nodes by role (Trainer, Rollout), if the roles have nodes of their own; absent otherwise. They add up to "
    "`rljob_nodes`.",
    "job.json: groups",
    ("role",),
)
ROLE_DEVICES = Metric("rljob_role_devices", "gauge", "The same for devices (dies).", "job.json: groups", ("role",))
ROLE_CARDS = Metric(
    "rljob_role_cards",
    "gauge",
    "The same for cards; the divisor of figures of one role per card.",
    "job.json: groups, diesPerCard",
    ("role",),
)
STEP = Metric("rljob_step", "gauge", "Last completed step.", "current.json: step")
TOTAL_STEPS = Metric("rljob_total_steps", "gauge", "Steps that the job trains.", "job.json: totalSteps")
CHECKPOINT_STEP = Metric(
    "rljob_checkpoint_step", "gauge", "Step of the newest checkpoint.", "current.json: checkpointStep"
)
CHECKPOINT_TIME = Metric(
    "rljob_checkpoint_timestamp_seconds",
    "gauge",
    "Time at which the newest checkpoint was complete. `time() - rljob_checkpoint_timestamp_seconds` is the time a "
    "failure would lose.",
    "current.json: checkpointTime",
    unit="timestamp",
)
CHECKPOINT_SECONDS = Metric(
    "rljob_checkpoint_seconds",
    "gauge",
    "How long the save of the newest checkpoint of this attempt took; the trainer is blocked for all of it, unless "
    "checkpoint.async is in effect.",
    "current.json: checkpointSeconds",
    unit="seconds",
)
CHECKPOINT_BYTES = Metric(
    "rljob_checkpoint_bytes",
    "gauge",
    "Size of the newest checkpoint.",
    "current.json: checkpointBytes",
    unit="bytes",
)
RESUMED_FROM = Metric(
    "rljob_resumed_from_step",
    "gauge",
    "Step that the attempt resumed from; 0 if it started from the model.",
    "current.json: resumedFromStep",
)
MEDIAN_STEP_SECONDS = Metric(
    "rljob_median_step_seconds",
    "gauge",
    "Median duration of a step over the attempt's last thousand records, from its start to its record, including "
    "saving and validation.",
    "current.json: medianStepSeconds",
    unit="seconds",
)
RECORD_SECONDS = Metric(
    "rljob_record_seconds",
    "gauge",
    "Median time between two records of a command that does not record every step.",
    "current.json: recordSeconds",
    unit="seconds",
)
MEDIAN_ROLLOUT_SECONDS = Metric(
    "rljob_median_rollout_seconds",
    "gauge",
    "Median duration of the attempt's last thousand rollouts, from first request to last response.",
    "current.json: medianRolloutSeconds",
    unit="seconds",
)
OBSERVED = Metric(
    "rljob_observed_timestamp_seconds",
    "gauge",
    "Time at which the last step or phase was recorded.",
    "current.json: observedTime",
    unit="timestamp",
)
BINDING_NODES = Metric(
    "rljob_core_binding_nodes",
    "gauge",
    "Nodes with devices that have a CPU plan (`planned`) or none (`unplanned`); /v1/progress contains the reasons.",
    "current.json: coreBinding",
    ("state",),
)
BINDING_PROCESSES = Metric(
    "rljob_core_binding_processes",
    "gauge",
    "Processes of the run that are bound to the CPUs of their plan (`bound`) or have threads that may leave them "
    "(`strayed`).",
    "current.json: coreBinding",
    ("state",),
)
PREFLIGHT = Metric(
    "rljob_preflight_nodes",
    "gauge",
    "Nodes by result of each check before the run.",
    "current.json: preflight",
    ("check", "result"),
)

# The last step.
REWARD = Metric("rljob_reward_mean", "gauge", "Mean score of the step's responses.", "verl: critic/score/mean")
VALIDATION_SCORE = Metric(
    "rljob_validation_score",
    "gauge",
    "Mean score of all responses of the last validation, over all data sources.",
    "our trainer: rewards of data.validation",
)
VALIDATION_STEP = Metric(
    "rljob_validation_step",
    "gauge",
    "Step of the last validation on this head pod. Validation metrics keep their values until the next validation.",
    "steps.jsonl",
)
STAGE_SECONDS = Metric(
    "rljob_stage_seconds",
    "gauge",
    "Duration of the last step by stage. `step` is the whole step, `rollout` the time from first request to last "
    "response, `other` the time that belongs to no stage.",
    "verl: timing_s/<stage>; rollout: our router",
    ("stage",),
    "seconds",
)
STAGE_SHARE = Metric(
    "rljob_stage_share_ratio",
    "gauge",
    "Share of the last step by stage, for the stages of `rljob_stage_seconds` that lie within the step and do not "
    "overlap. Together with `other` they add up to 1. `update_weights` is the weight transfer, `save_checkpoint` the "
    "checkpoint, `ref` the reference model.",
    "verl: timing_s/<stage> / timing_s/step",
    ("stage",),
    "ratio",
)
TOKENS_PER_SECOND = Metric(
    "rljob_tokens_per_second",
    "gauge",
    "Tokens per second in a stage (rollout, update, step) of the last step, over the devices of the job; and of a "
    "trainer on nodes of its own, over these and without what it waits (`trainer`). `tokens` selects the tokens "
    "counted: `prompt_and_response` or `response` of the trained batch; for the rollout also "
    "`generated_prompt_and_response` or `generated_response`, which include discarded responses. `per` is the divisor "
    "(card, die).",
    "verl: perf/total_num_tokens, prompt_length/mean, response_length/mean; our trainer: tokens of discarded "
    "responses; stage seconds as in rljob_stage_seconds",
    ("stage", "tokens", "per"),
    "tokens/second",
)
STEP_TOKENS = Metric(
    "rljob_step_tokens",
    "gauge",
    "Tokens of the last step; `tokens` as in `rljob_tokens_per_second`.",
    "as rljob_tokens_per_second",
    ("tokens",),
    "tokens",
)
DISCARDED_TOKENS = Metric(
    "rljob_discarded_tokens_ratio",
    "gauge",
    "Share of generated response tokens whose responses were discarded before training (DAPO's filter, surplus, "
    "failed groups).",
    "our trainer: 1 - response / generated_response",
    unit="ratio",
)
PADDED_ROWS = Metric(
    "rljob_padded_rows_ratio",
    "gauge",
    "Share of trained rows that verl added as padding so that the batch divides among ranks and mini batches.",
    "verl: tag is_padding of the batch",
    unit="ratio",
)
DENSE_PADDING = Metric(
    "rljob_dense_padding_ratio",
    "gauge",
    "Share of padding if each response of the batch were padded to the longest prompt and the longest response: the "
    "most that use_remove_padding can save.",
    "verl: 1 - (mean prompt + mean response) / (longest prompt + longest response)",
    unit="ratio",
)

# The updates of the last step.
UPDATES_WAITING = Metric(
    "rljob_updates_waiting_ratio",
    "gauge",
    "Share of the data-parallel ranks' time at the actor's updates that they wait for the slowest, by verl's cost of "
    "the samples. Absent if ranks shuffle their samples.",
    "our trainer: 1 - sum of the mean rank's cost / sum of the slowest rank's cost",
    unit="ratio",
)
UPDATE_WAITING = Metric(
    "rljob_update_waiting_ratio",
    "gauge",
    "The same of one update, numbered from 0.",
    "our trainer: 1 - mean rank's cost / slowest rank's cost",
    ("update",),
    "ratio",
)
UPDATE_RANK_TOKENS = Metric(
    "rljob_update_rank_tokens",
    "gauge",
    "Tokens of an update per data-parallel rank (min, max). `rljob_rank_tokens` is that of the whole step.",
    "our trainer: lengths of the samples in the order in which ranks train them",
    ("update", "stat"),
    "tokens",
)

# The last rollout.
CONTROL_CALL = Metric(
    "rljob_control_call_seconds",
    "gauge",
    "Longest time that a replica took during the rollout to answer a call that costs it nothing. An abort of the "
    "rollout waits as long before it begins.",
    "our trainer: every 5 seconds a call to each replica's server",
    unit="seconds",
)
FIRST_DP_IDLE = Metric(
    "rljob_first_dp_idle_ratio",
    "gauge",
    "Share of the rollout during which the replica that finished first was idle.",
    "our router: (last response of all - last response of the first replica to finish) / rollout seconds",
    unit="ratio",
)
CLUSTER_IDLE = Metric(
    "rljob_cluster_idle_ratio",
    "gauge",
    "Share of all replicas' rollout time that was spent waiting for the slowest replica (the rollout's bubble).",
    "our router: sum(rollout seconds - finish seconds) / (rollout seconds x replicas)",
    unit="ratio",
)
ROLLOUT_TAIL = Metric(
    "rljob_rollout_tail_ratio",
    "gauge",
    "Share of the rollout after 90 % of its requests were answered.",
    "our router: (last response - time of response number ceil(0.9 n) of n) / rollout seconds",
    unit="ratio",
)
REPLICA_FINISH = Metric(
    "rljob_replica_finish_seconds",
    "gauge",
    "Time from the rollout's first request to the replica's last response.",
    "our router",
    ("replica",),
    "seconds",
)
REPLICA_REQUESTS = Metric(
    "rljob_replica_requests", "gauge", "Requests sent to the replica in the last rollout.", "our router", ("replica",)
)

TOOL_CALLS = Metric(
    "rljob_tool_calls",
    "gauge",
    "Calls of tools in the responses of the last step (rollout.agent): `succeeded`, `failed` by an exception of the "
    "tool, `invalid` arguments, or an `unknown` tool.",
    "our agent loop: what verl answered to the model",
    ("outcome",),
)
JUDGE_REQUESTS = Metric(
    "rljob_judge_requests",
    "gauge",
    "Requests to reward.judge since the step before: `succeeded`, or `failed` by an error of the judge.",
    "our router of the judge",
    ("outcome",),
)
JUDGE_SECONDS = Metric(
    "rljob_judge_request_seconds",
    "gauge",
    "Mean duration of these requests; absent without any.",
    "our router of the judge",
    unit="seconds",
)

# Since the head pod started, over all attempts.
ATTEMPTS_TOTAL = Metric(
    "rljob_attempts_total", "counter", "Attempts that recorded a step on this head pod.", "steps.jsonl"
)
STEPS_TOTAL = Metric(
    "rljob_steps_total",
    "counter",
    "Steps trained on this head pod. A step that a later attempt repeats counts again.",
    "steps.jsonl",
)
TOKENS_TOTAL = Metric(
    "rljob_tokens_total",
    "counter",
    "Tokens of all steps; `tokens` as in `rljob_tokens_per_second`.",
    "steps.jsonl: rljob/tokens/<tokens>",
    ("tokens",),
    "tokens",
)
STAGE_SECONDS_TOTAL = Metric(
    "rljob_stage_seconds_total",
    "counter",
    "Seconds of all steps by stage; stages as in `rljob_stage_seconds`.",
    "steps.jsonl: timing_s/<stage>, rljob/rollout_seconds, rljob/other_seconds",
    ("stage",),
    "seconds",
)
REPLICA_SECONDS_TOTAL = Metric(
    "rljob_replica_seconds_total",
    "counter",
    "Time of all replicas in all rollouts: `busy` until the replica's last response, `idle` from then to the end of "
    "the rollout. idle / (idle + busy) is the cluster idle ratio over a time range.",
    "steps.jsonl: rljob/replica/<n>/finish_seconds, rljob/rollout_seconds",
    ("state",),
    "seconds",
)
FIRST_DP_IDLE_TOTAL = Metric(
    "rljob_first_dp_idle_seconds_total",
    "counter",
    "Time during which the replica that finished first was idle. Divided by the rollouts' duration, it is the first-DP "
    "idle ratio over a time range.",
    "steps.jsonl: rljob/first_dp_idle_ratio x rljob/rollout_seconds",
    unit="seconds",
)

# The exporter itself.
REPLICA_UP = Metric(
    "rljob_exporter_replica_up",
    "gauge",
    "1 if the replica's own metrics were read in this scrape.",
    "the exporter",
    ("replica",),
)
REPLICAS_SKIPPED = Metric(
    "rljob_exporter_replicas_skipped",
    "gauge",
    "Replicas beyond the exporter's limit, whose metrics are not served.",
    "the exporter",
)
TRANSFER_QUEUE_UP = Metric(
    "rljob_exporter_transfer_queue_up",
    "gauge",
    "1 if TransferQueue's own metrics were read in this scrape; absent while it serves none.",
    "the exporter",
)
SERIES = Metric(
    "rljob_exporter_series",
    "gauge",
    "Series in this scrape by source (rljob, verl, vllm, transfer_queue).",
    "the exporter",
    ("source",),
)
SERIES_DROPPED = Metric(
    "rljob_exporter_series_dropped",
    "gauge",
    "Series left out of this scrape because their source exceeds its limit.",
    "the exporter",
    ("source",),
)

OWN = (
    INFO,
    PHASE,
    ATTEMPT,
    ATTEMPT_START,
    NODES,
    DEVICES,
    CARDS,
    ROLE_NODES,
    ROLE_DEVICES,
    ROLE_CARDS,
    STEP,
    TOTAL_STEPS,
    CHECKPOINT_STEP,
    CHECKPOINT_TIME,
    CHECKPOINT_SECONDS,
    CHECKPOINT_BYTES,
    RESUMED_FROM,
    MEDIAN_STEP_SECONDS,
    RECORD_SECONDS,
    MEDIAN_ROLLOUT_SECONDS,
    OBSERVED,
    BINDING_NODES,
    BINDING_PROCESSES,
    PREFLIGHT,
    REWARD,
    VALIDATION_SCORE,
    VALIDATION_STEP,
    STAGE_SECONDS,
    STAGE_SHARE,
    TOKENS_PER_SECOND,
    STEP_TOKENS,
    DISCARDED_TOKENS,
    PADDED_ROWS,
    DENSE_PADDING,
    UPDATES_WAITING,
    UPDATE_WAITING,
    UPDATE_RANK_TOKENS,
    CONTROL_CALL,
    FIRST_DP_IDLE,
    CLUSTER_IDLE,
    ROLLOUT_TAIL,
    REPLICA_FINISH,
    REPLICA_REQUESTS,
    TOOL_CALLS,
    JUDGE_REQUESTS,
    JUDGE_SECONDS,
    *ASYNC,
    ATTEMPTS_TOTAL,
    STEPS_TOTAL,
    TOKENS_TOTAL,
    STAGE_SECONDS_TOTAL,
    REPLICA_SECONDS_TOTAL,
    FIRST_DP_IDLE_TOTAL,
    REPLICA_UP,
    REPLICAS_SKIPPED,
    TRANSFER_QUEUE_UP,
    SERIES,
    SERIES_DROPPED,
)

CATALOGUE = (*OWN, *verl_metrics.METRICS)
"""All metrics under our own names."""
