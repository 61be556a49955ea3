"""The dashboard of one job's rollout: load and waiting of the replicas."""

from __future__ import annotations

from scripts.dashboards.parts import Board, DashboardRow, Query, Text, figure, graph, heat
from scripts.dashboards.queries import ATTEMPTS, JOB, NAMESPACES, ONE_JOB, mean_of, of_jobs, quantile, rate_of

NONE = "No replica is scraped"
ACCEPTED, DRAFTED = "vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"
NO_ROUTING = "The engine's routing is not requested (rollout.enable_rollout_routing_replay)"
NO_QUEUE = "TransferQueue serves no metrics"
NO_END = "No job, or one whose rollouts do not end (trainer.mode ColocateAsync, SeparateAsync)"
ENDED = "Only with trainer.mode ColocateAsync or SeparateAsync"
TOGETHER = "Only with trainer.mode SeparateAsync"
WITHOUT_HELPERS = "Only with rollout.agent, for a judge with reward.judge"
TRAINED = 'tokens="prompt_and_response",per="card"'
REPLICA = "replica {{replica}}"


def _by_replica(name: str) -> str:
    return f"sum by (replica) ({name}{{{JOB}}})"


def _of_queue(name: str, *by: str) -> str:
    return of_jobs(name, by=by)


def _trained(stage: str) -> str:
    return of_jobs("rljob_tokens_per_second", f'stage="{stage}",{TRAINED}')


_PADDING = rate_of("vllm:rljob_padding_tokens_total", ("mode",))
_COMPUTED = rate_of("vllm:rljob_computed_tokens_total", ("mode",))
NOW = DashboardRow(
    "Now",
    (
        figure(
            Text("Running", "none", "Requests that vLLM is processing, summed over replicas.", NONE),
            Query(f"sum(vllm:num_requests_running{{{JOB}}})"),
        ),
        figure(
            Text("Waiting", "none", "Requests that wait in vLLM, summed over replicas.", NONE),
            Query(f"sum(vllm:num_requests_waiting{{{JOB}}})"),
        ),
        figure(
            Text("Generated", "short", "Tokens per second, summed over replicas.", NONE),
            Query(rate_of("vllm:generation_tokens_total")),
        ),
        figure(
            Text("First DP idle", "percentunit", "Last rollout: the first replica to finish.", NO_END),
            Query(of_jobs("rljob_first_dp_idle_ratio")),
        ),
        figure(
            Text("Cluster idle", "percentunit", "Last rollout: all replicas.", NO_END),
            Query(of_jobs("rljob_cluster_idle_ratio")),
            limits=((0.4, "red"),),
        ),
        figure(
            Text("Replicas", "none", "Replicas that answer the exporter.", NONE),
            Query(f"sum(rljob_exporter_replica_up{{{JOB}}})"),
        ),
    ),
)
RANKS = DashboardRow(
    "By rank",
    (
        heat(
            Text("Running requests", "none", "By replica. Rows that end early are waiting for the others.", NONE),
            Query(_by_replica("vllm:num_requests_running"), REPLICA),
        ),
        heat(
            Text("Waiting requests", "none", "By replica.", NONE),
            Query(_by_replica("vllm:num_requests_waiting"), REPLICA),
            width=12,
        ),
        heat(
            Text("KV cache in use", "percentunit", "By replica. When the cache is full, requests are preempted.", NONE),
            Query(_by_replica("vllm:kv_cache_usage_perc"), REPLICA),
            top=1,
            width=12,
        ),
        graph(
            Text("Finish times", "s", "From the rollout's first request to each replica's last response.", NO_END),
            Query(of_jobs("rljob_replica_finish_seconds", by=("replica",)), REPLICA),
        ),
        graph(
            Text(
                "Control calls",
                "s",
                "Longest time that a replica took to answer a call that costs it nothing. An abort waits as long.",
            ),
            Query(of_jobs("rljob_control_call_seconds"), "slowest replica"),
        ),
        graph(
            Text("Requests per rollout", "none", "Requests sent to each replica.", NO_END),
            Query(of_jobs("rljob_replica_requests", by=("replica",)), REPLICA),
        ),
    ),
)
TAIL = DashboardRow(
    "The tail",
    (
        graph(
            Text("Idle", "percentunit", "Fractions of the rollout spent waiting for the slowest replica.", NO_END),
            Query(of_jobs("rljob_first_dp_idle_ratio"), "first DP"),
            Query(of_jobs("rljob_cluster_idle_ratio"), "cluster"),
            Query(of_jobs("rljob_rollout_tail_ratio"), "after 90 % of the responses"),
            top=1,
        ),
        graph(
            Text("Rollout", "s", "From the first request to the last response, and the attempt's median.", NO_END),
            Query(of_jobs("rljob_stage_seconds", 'stage="rollout"'), "rollout"),
            Query(of_jobs("rljob_median_rollout_seconds"), "median"),
        ),
        graph(
            Text("Response length", "short", "Tokens of a response, as vLLM counts them.", NONE),
            Query(quantile(0.5, "vllm:request_generation_tokens"), "p50"),
            Query(quantile(0.95, "vllm:request_generation_tokens"), "p95"),
            Query(quantile(0.99, "vllm:request_generation_tokens"), "p99"),
        ),
        graph(
            Text("Finish reasons", "reqps", "stop: the model ended the response. length: it was truncated.", NONE),
            Query(rate_of("vllm:request_success_total", ("finished_reason",)), "{{finished_reason}}"),
        ),
    ),
)
PROMPTS = DashboardRow(
    "Prompts in flight",
    (
        graph(
            Text(
                "Staleness", "none", "Responses of a step by the updates of the weights since they were begun.", ENDED
            ),
            Query(of_jobs("rljob_staleness_responses", by=("versions",)), "{{versions}} versions"),
            width=8,
            stacked=True,
        ),
        graph(
            Text("In flight", "none", "Prompts in the queue after each step, by state.", ENDED),
            Query(of_jobs("rljob_prompts_in_flight", by=("state",)), "{{state}}"),
            width=8,
            stacked=True,
        ),
        graph(
            Text("Oldest prompt", "none", "Steps since it was sent; trainer.async.maxStaleness bounds it.", ENDED),
            Query(of_jobs("rljob_oldest_prompt_steps"), "steps"),
            width=8,
        ),
        graph(
            Text("Effective samples", "percentunit", "Share of the tokens that count after their correction.", ENDED),
            Query(of_jobs("rljob_rollout_mismatch", 'figure="rollout_is_eff_sample_size"'), "share"),
            width=8,
            top=1,
        ),
        graph(
            Text("Given up", "none", "Prompts of the run that were dropped, by reason.", ENDED),
            Query(of_jobs("rljob_prompts_dropped", by=("reason",)), "{{reason}}"),
            width=8,
        ),
        graph(
            Text("Unaccounted", "none", "Prompts that are in no place or in two. It should be 0.", ENDED),
            Query(of_jobs("rljob_prompts", 'event="unaccounted"'), "prompts"),
            width=8,
        ),
    ),
    folded=True,
)
APART = DashboardRow(
    "Trainer and rollout apart",
    (
        graph(
            Text(
                "Replicas",
                "none",
                "At the end of each step: those that get requests, and a complete rollout.",
                TOGETHER,
            ),
            Query(of_jobs("rljob_rollout_replicas", by=("state",)), "{{state}}"),
            width=8,
        ),
        graph(
            Text(
                "Waiting",
                "percentunit",
                "Shares of the time: the trainer waits for responses, and a replica runs no request.",
                TOGETHER,
            ),
            Query(of_jobs("rljob_trainer_wait_ratio", 'steps="1"'), "last step"),
            Query(of_jobs("rljob_trainer_wait_ratio", 'steps="10"'), "last ten steps"),
            Query(f"rljob:rollout_idle:ratio10m{{{JOB}}}", "replicas idle"),
            width=8,
            top=1,
        ),
        graph(
            Text(
                "Tokens per second per card",
                "short",
                "Trained tokens: of the step over all cards, and of the trainer over its own while it does not wait. "
                "Rollout: generated tokens over its cards.",
                TOGETHER,
            ),
            Query(f"{_trained('step')} and on (rljob_namespace, rljob) {_trained('trainer')}", "job"),
            Query(_trained("trainer"), "trainer"),
            Query(f"rljob:rollout_tokens_per_card:rate10m{{{JOB}}}", "rollout"),
            width=8,
        ),
    ),
    folded=True,
)
HELPERS = DashboardRow(
    "Tools and judge",
    (
        graph(
            Text("Calls of tools", "none", "In the responses of each step, by outcome.", WITHOUT_HELPERS),
            Query(of_jobs("rljob_tool_calls", by=("outcome",)), "{{outcome}}"),
            width=8,
            stacked=True,
        ),
        graph(
            Text("Requests to the judge", "none", "Of each step, by outcome.", WITHOUT_HELPERS),
            Query(of_jobs("rljob_judge_requests", by=("outcome",)), "{{outcome}}"),
            width=8,
            stacked=True,
        ),
        graph(
            Text("The judge's answer", "s", "Mean duration of a request of each step.", WITHOUT_HELPERS),
            Query(of_jobs("rljob_judge_request_seconds"), "mean"),
            width=8,
        ),
    ),
    folded=True,
)
ENGINE = DashboardRow(
    "The engine",
    (
        graph(
            Text("Tokens generated", "short", "Tokens per second, by replica.", NONE),
            Query(rate_of("vllm:generation_tokens_total", ("replica",)), REPLICA),
        ),
        graph(
            Text("Prompt tokens", "short", "Prompt tokens per second, by replica.", NONE),
            Query(rate_of("vllm:prompt_tokens_total", ("replica",)), REPLICA),
        ),
        graph(
            Text("Time to first token", "s", "From a request's arrival to its first token.", NONE),
            Query(quantile(0.5, "vllm:time_to_first_token_seconds"), "p50"),
            Query(quantile(0.95, "vllm:time_to_first_token_seconds"), "p95"),
        ),
        graph(
            Text("Between tokens", "s", "Time between two tokens of a request.", NONE),
            Query(quantile(0.5, "vllm:inter_token_latency_seconds"), "p50"),
            Query(quantile(0.95, "vllm:inter_token_latency_seconds"), "p95"),
        ),
        graph(
            Text("A request", "s", "Mean time of a request by part: queue, prefill, decode.", NONE),
            Query(mean_of("vllm:request_queue_time_seconds"), "queue"),
            Query(mean_of("vllm:request_prefill_time_seconds"), "prefill"),
            Query(mean_of("vllm:request_decode_time_seconds"), "decode"),
            stacked=True,
        ),
        graph(
            Text("Tokens per iteration", "short", "Mean batch of the engine.", NONE),
            Query(mean_of("vllm:iteration_tokens_total"), "all replicas"),
        ),
        graph(
            Text(
                "Padding",
                "percentunit",
                "Fraction of computed tokens that only fill a captured batch, by graph mode. FULL is decoding.",
                NONE,
            ),
            Query(f"{_PADDING} / ({_PADDING} + {_COMPUTED})", "{{mode}}"),
            top=1,
        ),
        graph(
            Text(
                "Preemptions", "ops", "Requests that lost their KV cache and start again.", "No request was preempted"
            ),
            Query(rate_of("vllm:num_preemptions_total", ("replica",)), REPLICA),
        ),
        graph(
            Text(
                "Prefix cache",
                "percentunit",
                "Fraction of prompt tokens found in the prefix cache; samples of a prompt share them.",
                NONE,
            ),
            Query(f"{rate_of('vllm:prefix_cache_hits_total')} / {rate_of('vllm:prefix_cache_queries_total')}", "hits"),
            top=1,
        ),
        graph(
            Text(
                "Speculation",
                "percentunit",
                "Fraction of proposed tokens that were accepted.",
                "The job does not use speculative decoding",
            ),
            Query(
                f"{rate_of(ACCEPTED)} / {rate_of(DRAFTED)}",
                "accepted",
            ),
            top=1,
        ),
    ),
)
EXPERTS = DashboardRow(
    "Experts",
    (
        graph(
            Text(
                "Expert load",
                "short",
                "Load of the most loaded expert / mean load - 1: the worst layer, and the mean over layers.",
                NO_ROUTING,
            ),
            Query(of_jobs("rljob_expert_load", 'figure="max_vio"', ("stat",)), "{{stat}}"),
            width=12,
        ),
        graph(
            Text("Expert load by layer", "short", "Load of the most loaded expert / mean load - 1.", NO_ROUTING),
            Query(of_jobs("rljob_expert_load_violation", 'figure="max_vio"', ("layer",)), "layer {{layer}}"),
            width=12,
        ),
    ),
    folded=True,
)
QUEUE = DashboardRow(
    "TransferQueue",
    (
        graph(
            Text("Samples", "none", "Samples in the queue between rollout and trainer, by partition.", NO_QUEUE),
            Query(_of_queue("tq_partition_samples_total", "partition_id"), "{{partition_id}}"),
            width=12,
        ),
        graph(
            Text("Produced", "percentunit", "Fraction of samples that already have a field.", NO_QUEUE),
            Query(
                _of_queue("tq_partition_production_progress", "partition_id", "task_name"),
                "{{partition_id}} {{task_name}}",
            ),
            width=12,
        ),
        graph(
            Text("Requests to the controller", "reqps", "Requests per second, by kind.", NO_QUEUE),
            Query(rate_of("tq_controller_request_total", ("op_type",)), "{{op_type}}"),
            width=8,
        ),
        graph(
            Text("Request duration", "s", "p95 by kind.", NO_QUEUE),
            Query(quantile(0.95, "tq_controller_request_duration_seconds", ("op_type",)), "{{op_type}}"),
            width=8,
        ),
        graph(
            Text("Memory", "bytes", "Memory of the controller and of the storage units.", NO_QUEUE),
            Query(_of_queue("tq_controller_memory_rss_bytes"), "controller"),
            Query(_of_queue("tq_storage_memory_rss_bytes"), "storage units"),
            width=8,
        ),
    ),
    folded=True,
)
ROLLOUT = Board(
    name="rollout",
    title="RLJob / Rollout",
    about="One job's rollout: load and waiting of the replicas.",
    rows=(NOW, RANKS, TAIL, PROMPTS, APART, HELPERS, ENGINE, EXPERTS, QUEUE),
    variables=(NAMESPACES, ONE_JOB),
    annotations=(ATTEMPTS,),
)
