"""The counter of padding among vLLM's own metrics, fed by what vLLM's engines report."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterator
from typing import Any

import pytest

from rljob_runtime.exporter.aggregator import Aggregator
from rljob_runtime.exporter.upstream_metrics import PADDING, VLLM_PREFIX


@pytest.fixture
def registry() -> Iterator[Any]:
    from prometheus_client import REGISTRY
    from vllm.v1.metrics.prometheus import unregister_vllm_metrics

    unregister_vllm_metrics()
    yield REGISTRY
    unregister_vllm_metrics()


def step(unpadded: int, padded: int, mode: str = "FULL") -> Any:
    """Return what an engine reports of a step (v1/worker/gpu_model_runner.py:3870, vLLM 0.23.0)."""
    from vllm.compilation.cuda_graph import CUDAGraphStat
    from vllm.v1.metrics.stats import SchedulerStats

    ran = CUDAGraphStat(
        num_unpadded_tokens=unpadded, num_padded_tokens=padded, num_paddings=padded - unpadded, runtime_mode=mode
    )
    return SchedulerStats(cudagraph_stats=ran)


def managed() -> tuple[Any, Any]:
    """Return vLLM's own manager of loggers, as an engine has it, with the loggers that print."""
    from vllm.v1.metrics.loggers import LoggingStatLogger, PerEngineStatLoggerAdapter, StatLoggerManager

    config = types.SimpleNamespace(
        kv_transfer_config=None,
        observability_config=types.SimpleNamespace(cudagraph_metrics=True, enable_mfu_metrics=False),
        compilation_config=types.SimpleNamespace(cudagraph_mode="FULL", cudagraph_capture_sizes=[1, 2, 4, 8]),
    )
    manager = object.__new__(StatLoggerManager)
    manager.engine_indexes = [0, 1]
    printing = PerEngineStatLoggerAdapter(config, manager.engine_indexes, LoggingStatLogger)
    manager.stat_loggers = [printing]
    return types.SimpleNamespace(logger_manager=manager, vllm_config=config), printing


def test_what_engines_report_is_served_by_the_exporter(registry: Any) -> None:
    from prometheus_client import generate_latest

    from rljob_runtime.verl_plugin.router import padding_counter

    engine, printing = managed()
    padding_counter.attach(engine, prints=False)
    for number, stats in ((0, step(5, 8)), (1, step(8, 8)), (0, step(3, 8)), (1, step(100, 100, "NONE")), (0, None)):
        engine.logger_manager.record(stats, None, engine_idx=number)
    assert [logger.cudagraph_logging for logger in printing.per_engine_stat_loggers.values()] == [None, None]
    page = generate_latest(registry).decode()
    families, dropped = Aggregator(VLLM_PREFIX, 100, "replica", summed_away=("engine",)).join(
        {"0": page}, {"rljob": "a"}
    )
    seen = {(name, labels): float(value) for family in families for name, labels, value in family.samples}
    computed, padding = (metric.name for metric in PADDING)
    assert dropped == 0
    assert seen[computed, 'mode="FULL",rljob="a"'] == 5 + 8 + 3
    assert seen[padding, 'mode="FULL",rljob="a"'] == 3 + 0 + 5
    assert seen[computed, 'mode="NONE",rljob="a"'] == 100
    assert seen[padding, 'mode="NONE",rljob="a"'] == 0


@pytest.mark.usefixtures("registry")
def test_a_user_who_asked_for_tables_keeps_them() -> None:
    from rljob_runtime.verl_plugin.router import padding_counter, vllm_replica

    asked, silent = argparse.Namespace(cudagraph_metrics=True), argparse.Namespace(cudagraph_metrics=False)
    engine, printing = managed()
    padding_counter.attach(engine, prints=vllm_replica.count_padding(asked))
    assert all(logger.cudagraph_logging is not None for logger in printing.per_engine_stat_loggers.values())
    assert not vllm_replica.count_padding(silent)
    assert silent.cudagraph_metrics is asked.cudagraph_metrics is True


def test_an_engine_without_statistics_is_left_alone() -> None:
    from rljob_runtime.verl_plugin.router import padding_counter

    padding_counter.attach(types.SimpleNamespace(logger_manager=None), prints=False)


def test_arguments_that_a_server_gets_have_the_switch() -> None:
    import inspect

    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    assert "cudagraph_metrics" in AsyncEngineArgs.__dataclass_fields__
    assert "observability_config.cudagraph_metrics" in inspect.getsource(
        GPUModelRunner._determine_batch_execution_and_padding
    )
