"""Figures of balance on their way from a step to Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rljob_runtime.contract import Phase, Progress
from rljob_runtime.exporter.collector import MAX_UPDATES
from rljob_runtime.exporter.scrape import Scrape
from rljob_runtime.spool import step_metrics
from rljob_runtime.spool.spool import Spool, StepRecord
from runtime.tests.conftest import MakeJob

JOB = {"rljob": "sums", "rljob_namespace": "team-a"}
Samples = dict[str, list[tuple[dict[str, str], float]]]


def served(metrics: dict[str, float], spool: Spool, make_job: MakeJob, config: Path) -> Samples:
    """Return what a scrape has of a step with these metrics."""
    config.write_bytes(make_job().to_json())
    spool.write_progress(Progress("pod-1", Phase.TRAINING, attempt=1))
    spool.append_step(1, StepRecord(step=1, time=1.0, metrics=metrics))
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(Scrape(spool, config).text())
    }


def test_an_update_waits_for_its_slowest_rank() -> None:
    # Update 0: ranks with costs 2 and 6; update 1: 5 and 5.
    figures = step_metrics.update_metrics([[[0], [1]], [[2], [3]]], [10, 30, 20, 21], [2, 6, 5, 5])
    assert figures == {
        "rljob/updates_waiting_ratio": pytest.approx(1 - 9 / 11),
        "rljob/update/0/waiting_ratio": pytest.approx(1 - 4 / 6),
        "rljob/update/0/rank_tokens_min": 10.0,
        "rljob/update/0/rank_tokens_max": 30.0,
        "rljob/update/1/waiting_ratio": 0.0,
        "rljob/update/1/rank_tokens_min": 20.0,
        "rljob/update/1/rank_tokens_max": 21.0,
    }


def test_waiting_at_updates_is_served(spool: Spool, make_job: MakeJob, tmp_path: Path) -> None:
    figures = step_metrics.update_metrics([[[0], [1]], [[2], [3]]], [10, 30, 20, 21], [2, 6, 5, 5])
    seen = served(figures, spool, make_job, tmp_path / "job.json")
    assert seen["rljob_updates_waiting_ratio"] == [(JOB, figures["rljob/updates_waiting_ratio"])]
    assert seen["rljob_update_waiting_ratio"] == [
        ({**JOB, "update": "0"}, figures["rljob/update/0/waiting_ratio"]),
        ({**JOB, "update": "1"}, 0.0),
    ]
    assert ({**JOB, "update": "0", "stat": "max"}, 30.0) in seen["rljob_update_rank_tokens"]
    assert ({**JOB, "update": "1", "stat": "min"}, 20.0) in seen["rljob_update_rank_tokens"]


def test_only_the_first_updates_are_served_and_the_others_counted(
    spool: Spool, make_job: MakeJob, tmp_path: Path
) -> None:
    many = {f"rljob/update/{number}/waiting_ratio": 0.5 for number in range(MAX_UPDATES + 7)}
    seen = served(many, spool, make_job, tmp_path / "job.json")
    assert len(seen["rljob_update_waiting_ratio"]) == MAX_UPDATES
    assert ({**JOB, "source": "rljob"}, 7.0) in seen["rljob_exporter_series_dropped"]


def test_the_slowest_control_call_is_served(spool: Spool, make_job: MakeJob, tmp_path: Path) -> None:
    seen = served({step_metrics.CONTROL_CALL_SECONDS: 11.03}, spool, make_job, tmp_path / "job.json")
    assert seen["rljob_control_call_seconds"] == [(JOB, 11.03)]
