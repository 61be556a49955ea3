"""The board of one job's rollout: which replica works, which waits, and what holds up the rest."""

from __future__ import annotations

from scripts.dashboards.parts import Board, DashboardRow, Query, Text, figure, graph, heat
from scripts.dashboards.queries import ATTEMPTS, JOB, NAMESPACES, ONE_JOB, mean_of, of_jobs, quantile, rate_of

NONE = "No replica is scraped"
ACCEPTED, DRAFTED = "vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"
NO_QUEUE = "TransferQueue serves no metrics"
REPLICA = "replica {{replica}}"


def _by_replica(name: str) -> str:
    return f"sum by (replica) ({name}{{{JOB}}})"


def _of_queue(name: str, *by: str) -> str:
    return of_jobs(name, by=by)


NOW = DashboardRow(
    "Now",
    (
        figure(
            Text("Running", "none", "Requests that vLLM works on, all replicas.", NONE),
            Query(f"sum(vllm:num_requests_running{{{JOB}}})"),
        ),
        figure(
            Text("Waiting", "none", "Requests that wait in vLLM, all replicas.", NONE),
            Query(f"sum(vllm:num_requests_waiting{{{JOB}}})"),
        ),
        figure(
            Text("Generated", "short", "Tokens a second, all replicas.", NONE),
            Query(rate_of("vllm:generation_tokens_total")),
        ),
        figure(
            Text("First DP idle", "percentunit", "Of the last rollout: the replica that finished first."),
            Query(of_jobs("rljob_first_dp_idle_ratio")),
        ),
        figure(
            Text("Cluster idle", "percentunit", "Of the last rollout: all replicas."),
            Query(of_jobs("rljob_cluster_idle_ratio")),
            limits=((0.4, "red"),),
        ),
        figure(
            Text("Replicas", "none", "That answer the exporter.", NONE),
            Query(f"sum(rljob_exporter_replica_up{{{JOB}}})"),
        ),
    ),
)
RANKS = DashboardRow(
    "Rank by rank",
    (
        heat(
            Text("Running requests", "none", "By replica: rows that end early wait for the others.", NONE),
            Query(_by_replica("vllm:num_requests_running"), REPLICA),
        ),
        heat(
            Text("Waiting requests", "none", "By replica.", NONE),
            Query(_by_replica("vllm:num_requests_waiting"), REPLICA),
            width=12,
        ),
        heat(
            Text("KV cache in use", "percentunit", "By replica; full, and requests are preempted.", NONE),
            Query(_by_replica("vllm:kv_cache_usage_perc"), REPLICA),
            top=1,
            width=12,
        ),
        graph(
            Text("Finish times", "s", "From the rollout's first request to each replica's last answer."),
            Query(of_jobs("rljob_replica_finish_seconds", by=("replica",)), REPLICA),
        ),
        graph(
            Text("Requests of a rollout", "none", "That each replica got."),
            Query(of_jobs("rljob_replica_requests", by=("replica",)), REPLICA),
        ),
    ),
)
TAIL = DashboardRow(
    "The tail",
    (
        graph(
            Text(
                "Idle", "percentunit", "Shares of the rollout's time that were spent waiting for the slowest replica."
            ),
            Query(of_jobs("rljob_first_dp_idle_ratio"), "first DP"),
            Query(of_jobs("rljob_cluster_idle_ratio"), "cluster"),
            Query(of_jobs("rljob_rollout_tail_ratio"), "after 90 % of the answers"),
            top=1,
        ),
        graph(
            Text("Rollout", "s", "First request to last answer, and the attempt's median."),
            Query(of_jobs("rljob_stage_seconds", 'stage="rollout"'), "rollout"),
            Query(of_jobs("rljob_median_rollout_seconds"), "median"),
        ),
        graph(
            Text("Length of answers", "short", "Tokens, as vLLM counts them.", NONE),
            Query(quantile(0.5, "vllm:request_generation_tokens"), "p50"),
            Query(quantile(0.95, "vllm:request_generation_tokens"), "p95"),
            Query(quantile(0.99, "vllm:request_generation_tokens"), "p99"),
        ),
        graph(
            Text("How answers ended", "reqps", "stop: the model ended it. length: it was cut.", NONE),
            Query(rate_of("vllm:request_success_total", ("finished_reason",)), "{{finished_reason}}"),
        ),
    ),
)
ENGINE = DashboardRow(
    "The engine",
    (
        graph(
            Text("Tokens generated", "short", "A second, by replica.", NONE),
            Query(rate_of("vllm:generation_tokens_total", ("replica",)), REPLICA),
        ),
        graph(
            Text("Tokens of prompts", "short", "A second, by replica.", NONE),
            Query(rate_of("vllm:prompt_tokens_total", ("replica",)), REPLICA),
        ),
        graph(
            Text("To the first token", "s", "Time from a request's arrival.", NONE),
            Query(quantile(0.5, "vllm:time_to_first_token_seconds"), "p50"),
            Query(quantile(0.95, "vllm:time_to_first_token_seconds"), "p95"),
        ),
        graph(
            Text("Between tokens", "s", "Time from token to token of a request.", NONE),
            Query(quantile(0.5, "vllm:inter_token_latency_seconds"), "p50"),
            Query(quantile(0.95, "vllm:inter_token_latency_seconds"), "p95"),
        ),
        graph(
            Text("A request", "s", "Mean time by part: queue, prompt, answer.", NONE),
            Query(mean_of("vllm:request_queue_time_seconds"), "queue"),
            Query(mean_of("vllm:request_prefill_time_seconds"), "prefill"),
            Query(mean_of("vllm:request_decode_time_seconds"), "decode"),
            stacked=True,
        ),
        graph(
            Text("Tokens of an iteration", "short", "Mean batch of the engine: the gear that it is in.", NONE),
            Query(mean_of("vllm:iteration_tokens_total"), "all replicas"),
        ),
        graph(
            Text("Preemptions", "ops", "Requests that lost their KV cache and start anew.", "No request was preempted"),
            Query(rate_of("vllm:num_preemptions_total", ("replica",)), REPLICA),
            width=8,
        ),
        graph(
            Text(
                "Prefix cache",
                "percentunit",
                "Share of prompt tokens found in it; samples of a prompt share them.",
                NONE,
            ),
            Query(f"{rate_of('vllm:prefix_cache_hits_total')} / {rate_of('vllm:prefix_cache_queries_total')}", "hits"),
            width=8,
            top=1,
        ),
        graph(
            Text("Speculation", "percentunit", "Drafted tokens that were accepted.", "The job does not speculate"),
            Query(
                f"{rate_of(ACCEPTED)} / {rate_of(DRAFTED)}",
                "accepted",
            ),
            width=8,
            top=1,
        ),
    ),
)
QUEUE = DashboardRow(
    "TransferQueue",
    (
        graph(
            Text("Samples", "none", "In the queue between rollout and trainer, by partition.", NO_QUEUE),
            Query(_of_queue("tq_partition_samples_total", "partition_id"), "{{partition_id}}"),
            width=12,
        ),
        graph(
            Text("Made", "percentunit", "Share of the samples that have a field already.", NO_QUEUE),
            Query(
                _of_queue("tq_partition_production_progress", "partition_id", "task_name"),
                "{{partition_id}} {{task_name}}",
            ),
            width=12,
        ),
        graph(
            Text("Requests to the controller", "reqps", "How many there are, by kind.", NO_QUEUE),
            Query(rate_of("tq_controller_request_total", ("op_type",)), "{{op_type}}"),
            width=8,
        ),
        graph(
            Text("Time of a request", "s", "p95 by kind.", NO_QUEUE),
            Query(quantile(0.95, "tq_controller_request_duration_seconds", ("op_type",)), "{{op_type}}"),
            width=8,
        ),
        graph(
            Text("Memory", "bytes", "Of the controller and of the storage units.", NO_QUEUE),
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
    about="One job's rollout: which replica works, which waits, and what holds up the rest.",
    rows=(NOW, RANKS, TAIL, ENGINE, QUEUE),
    variables=(NAMESPACES, ONE_JOB),
    annotations=(ATTEMPTS,),
)
