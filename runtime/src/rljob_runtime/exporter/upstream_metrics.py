"""What is served of vLLM's and TransferQueue's own metrics, under their own names, with the job's labels added.

A replica's page has some four hundred series, most of them buckets of histograms; with 256 replicas that is more than
all else together. So a few families are kept by replica, and everything else is summed over the replicas, without the
labels `replica` and `engine`: rates, and quantiles over histograms, are those of the whole rollout.
"""

from __future__ import annotations

from rljob_runtime.exporter.metric import Metric

VLLM_PREFIX = "vllm:"
"""Of vLLM's families (vllm/v1/metrics/loggers.py, 0.23)."""
VLLM = "the replica's /metrics"

PER_REPLICA = (
    Metric(
        "vllm:num_requests_running",
        "gauge",
        "Requests that the replica computes now.",
        VLLM,
        ("replica", "engine", "model_name"),
    ),
    Metric(
        "vllm:num_requests_waiting",
        "gauge",
        "Requests that wait for a place in the replica's batch.",
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
        "Requests that the replica put back because its KV cache was full.",
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
"""Kept by replica; every other family of vLLM is summed over the replicas."""

LEFT_OUT = ("vllm:lora_requests_info",)
"""No sum of it means anything."""

TRANSFER_QUEUE_PREFIX = "tq_"
"""Of TransferQueue's families (transfer_queue/metrics.py, 0.1.11); served by its controller."""
TQ = "TransferQueue's controller"

SUMMED_UNITS = (
    Metric("tq_storage_capacity_total", "gauge", "Samples that the storage units can hold.", TQ),
    Metric("tq_storage_active_keys_total", "gauge", "Samples that the storage units hold.", TQ),
    Metric("tq_storage_memory_rss_bytes", "gauge", "Memory of the storage units.", TQ, unit="bytes"),
    Metric("tq_storage_ssd_active_bytes", "gauge", "Bytes that the storage units have put on disks.", TQ, unit="bytes"),
    Metric("tq_storage_requests_arrived", "gauge", "Requests that reached the storage units.", TQ),
    Metric("tq_storage_request_ops", "gauge", "Requests that the storage units answered.", TQ, ("op_type",)),
)
"""Summed over storage units; their other families, which are quantiles and ratios, are left out."""

TRANSFER_QUEUE = (
    Metric("tq_controller_uptime_seconds", "gauge", "Age of the controller.", TQ, unit="seconds"),
    Metric("tq_controller_memory_rss_bytes", "gauge", "Memory of the controller.", TQ, unit="bytes"),
    Metric("tq_controller_request_total", "counter", "Requests to the controller.", TQ, ("op_type",)),
    Metric("tq_controller_request_errors_total", "counter", "Requests that failed.", TQ, ("op_type",)),
    Metric(
        "tq_controller_request_duration_seconds", "histogram", "Time of a request.", TQ, ("op_type",), unit="seconds"
    ),
    Metric("tq_controller_request_samples_total", "counter", "Samples that requests named.", TQ, ("op_type",)),
    Metric("tq_partitions_total", "gauge", "Partitions that exist (train, val).", TQ),
    Metric("tq_partition_samples_total", "gauge", "Samples of a partition.", TQ, ("partition_id",)),
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
    Metric("tq_global_index_reusable_total", "gauge", "Indexes that were given back.", TQ),
    *SUMMED_UNITS,
)
