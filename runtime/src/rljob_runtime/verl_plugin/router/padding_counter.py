"""Count the tokens that an engine computes only to fill a batch, among vLLM's own metrics.

In graph mode, an engine runs the smallest captured batch that holds its tokens, and with data parallelism the largest
of all ranks: the rest is padding. vLLM 0.23 counts both in every step if `cudagraph_metrics` is set
(v1/worker/gpu_model_runner.py:3868, vllm-ascend: worker/model_runner_v1.py:3018), but only prints tables in the log. A
step in which a rank has no requests at all is none of its scheduler's and is not counted.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter
from vllm.v1.metrics.loggers import AggregateStatLoggerBase, LoggingStatLogger, PerEngineStatLoggerAdapter

LABELS = ("engine", "mode")
"""The mode is vLLM's of a step: FULL or PIECEWISE graphs, or NONE."""


def attach(engine: Any, *, prints: bool) -> None:  # noqa: ANN401 - vLLM ships no types
    """Count what the engine reports from now on. Without `prints`, vLLM's tables stay out of the log."""
    manager = engine.logger_manager
    if manager is None:
        return  # verl's disable_log_stats
    for logger in manager.stat_loggers if not prints else ():
        for inner in logger.per_engine_stat_loggers.values() if isinstance(logger, PerEngineStatLoggerAdapter) else ():
            if isinstance(inner, LoggingStatLogger):
                inner.cudagraph_logging = None
    manager.stat_loggers.append(PaddingCounter(engine.vllm_config, manager.engine_indexes))


class PaddingCounter(AggregateStatLoggerBase):  # type: ignore[misc] # vLLM ships no types
    """Counts in the registry that the server's /metrics shows."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:  # noqa: ANN401, ARG002 - vLLM's signature
        self._computed = Counter("vllm:rljob_computed_tokens", "Tokens of requests that steps computed.", LABELS)
        self._padding = Counter("vllm:rljob_padding_tokens", "Tokens that steps computed to fill a batch.", LABELS)

    def record(
        self,
        scheduler_stats: Any,  # noqa: ANN401 - vLLM's
        iteration_stats: Any,  # noqa: ANN401, ARG002 - vLLM's
        mm_cache_stats: Any = None,  # noqa: ANN401, ARG002 - vLLM's
        engine_idx: int = 0,
    ) -> None:
        """Count one step of an engine."""
        step = getattr(scheduler_stats, "cudagraph_stats", None)  # an exception here would end the engine
        if step is not None:
            labels = (str(engine_idx), step.runtime_mode)
            self._computed.labels(*labels).inc(step.num_unpadded_tokens)
            self._padding.labels(*labels).inc(step.num_paddings)

    def log_engine_initialized(self) -> None:
        """Say nothing."""
