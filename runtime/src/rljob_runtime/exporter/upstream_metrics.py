"""Metrics of vLLM and TransferQueue that are served under their own names, with the job's labels added.

A replica exposes about four hundred series, most of them histogram buckets; with 256 replicas that would exceed all
other series. Therefore only a few families are kept per replica. All others are summed over the replicas, without the
labels `replica` and `engine`: rates and histogram quantiles then describe the whole rollout.
"""

from __future__ import annotations

from rljob_runtime.exporter.metric import Metric

VLLM_PREFIX = "vllm:"
"""Prefix of vLLM's families (vllm/v1/metrics/loggers.py, 0.23)."""
VLLM = "the replica's /metrics"

PER_REPLICA = (
    Metric(
        "vllm:num_requests_running",
        "gauge",
        "Requests that the replica is processing.",
        VLLM,
        ("replica", "engine", "model_name"),
    ),
    Metric(
        "vllm:num_requests_waiting",
        "gauge",
        "Requests that wait for a slot in the replica's batch.",
        VLLM,
        ("replica", "engine", "model_name"),
    ),
    Metric(
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of the replica's KV cache in use.",
        VLLM,
        ("replica", "engine", "model_name"),
        "ratio",
    ),
    Metric(
        "vllm:num_preemptions_total",
        "counter",
        "Requests that the replica preempted because its KV cache was full.",
        VLLM,
        ("replica", "engine", "model_name"),
    ),
    Metric(
        "vllm:prompt_tokens_total",
        "counter",
        "Tokens that the replica prefilled.",
        VLLM,
        ("replica", "engine", "model_name"),
        "tokens",
    ),
    Metric(
        "vllm:generation_tokens_total",
        "counter",
        "Tokens that the replica generated.",
        VLLM,
        ("replica", "engine", "model_name"),
        "tokens",
    ),
)
"""Kept per replica. Every other family of vLLM is summed over the replicas."""

PADDING = (
    Metric(
        "vllm:rljob_computed_tokens_total",
        "counter",
        "Tokens of requests that the engines' steps computed, by graph mode (FULL, PIECEWISE, NONE).",
        "the runtime's counter in the replica's /metrics",
        ("mode",),
        "tokens",
    ),
    Metric(
        "vllm:rljob_padding_tokens_total",
        "counter",
        "Tokens that the engines' steps computed to fill a captured batch, the largest of all data-parallel ranks.",
        "the runtime's counter in the replica's /metrics",
        ("mode",),
        "tokens",
    ),
)
"""Summed over the replicas (verl_plugin/router/padding_counter.py)."""

LEFT_OUT = ("vllm:lora_requests_info",)
"""Families whose sum has no meaning."""

TRANSFER_QUEUE_PREFIX = "tq_"
"""Prefix of TransferQueue's families (transfer_queue/metrics.py, 0.1.11), served by its controller."""
TQ = "TransferQueue's controller"

SUMMED_UNITS = (
    Metric("tq_storage_capacity_total", "gauge", "Capacity of the storage units in samples.", TQ),
    Metric("tq_storage_active_keys_total", "gauge", "Samples in the storage units.", TQ),
    Metric("tq_storage_memory_rss_bytes", "gauge", "Memory of the storage units.", TQ, unit="bytes"),
    Metric(
        "tq_storage_ssd_active_bytes", "gauge", "Bytes that the storage units have written to disk.", TQ, unit="bytes"
    ),
    Metric("tq_storage_requests_arrived", "gauge", "Requests received by the storage units.", TQ),
    Metric("tq_storage_request_ops", "gauge", "Requests answered by the storage units.", TQ, ("op_type",)),
)
"""Summed over storage units. Their other families, which are quantiles and ratios, are left out."""

TRANSFER_QUEUE = (
    Metric("tq_controller_uptime_seconds", "gauge", "Age of the controller.", TQ, unit="seconds"),
    Metric("tq_controller_memory_rss_bytes", "gauge", "Memory of the controller.", TQ, unit="bytes"),
    Metric("tq_controller_request_total", "counter", "Requests to the controller.", TQ, ("op_type",)),
    Metric("tq_controller_request_errors_total", "counter", "Failed requests to the controller.", TQ, ("op_type",)),
    Metric(
        "tq_controller_request_duration_seconds",
        "histogram",
        "Duration of a request.",
        TQ,
        ("op_type",),
        unit="seconds",
    ),
    Metric("tq_controller_request_samples_total", "counter", "Samples in requests.", TQ, ("op_type",)),
    Metric("tq_partitions_total", "gauge", "Existing partitions (train, val).", TQ),
    Metric("tq_partition_samples_total", "gauge", "Samples in a partition.", TQ, ("partition_id",)),
    Metric(
        "tq_partition_production_progress",
        "gauge",
        "Share of a partition's samples that have a field.",
        TQ,
        ("partition_id", "task_name"),
        "ratio",
    ),
    Metric(
        "tq_partition_consumption_progress",
        "gauge",
        "Share of a partition's samples that a task has read.",
        TQ,
        ("partition_id", "task_name"),
        "ratio",
    ),
    Metric("tq_global_index_allocated_total", "gauge", "Indexes in use.", TQ),
    Metric("tq_global_index_reusable_total", "gauge", "Indexes that were released.", TQ),
    *SUMMED_UNITS,
)
