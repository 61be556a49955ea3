"""Functions in which threads of verl, TransferQueue and vLLM wait for work. A process with no other threads is idle.

Data only; runtime/tests/upstream/test_stall.py checks that the functions still exist.
"""

from __future__ import annotations

SERVICE_LOOPS: dict[str, tuple[str, ...]] = {
    # verl 0.9.1
    "verl/utils/transferqueue_utils.py": ("_run_event_loop_forever",),
    # TransferQueue 0.1.11
    "transfer_queue/client.py": ("_start_loop",),
    "transfer_queue/controller.py": ("_process_request_loop", "_wait_connection", "_metrics_snapshot_loop"),
    "transfer_queue/storage/managers/base.py": ("_run_notify_loop",),
    "transfer_queue/storage/simple_storage.py": ("_worker_routine", "_proxy_routine"),
    # vLLM 0.23
    "vllm/v1/engine/core.py": ("_process_input_queue", "process_input_sockets", "process_output_sockets"),
    "vllm/v1/engine/core_client.py": ("process_outputs_socket",),
    "vllm/v1/engine/utils.py": ("_run", "monitor_engine_liveness"),
    "vllm/v1/executor/multiproc_executor.py": (
        "monitor_workers",
        "death_pipe_monitor",
        "async_output_busy_loop",
        "worker_busy_loop",
    ),
}
"""End of a file's path -> functions in which a thread waits for work."""


def is_service_loop(file: str, function: str) -> bool:
    """Return whether a thread with this innermost frame waits for work."""
    return any(file.endswith(f"/{end}") and function in functions for end, functions in SERVICE_LOOPS.items())
