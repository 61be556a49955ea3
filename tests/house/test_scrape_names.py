"""The names that the scrape job of the exporters stores: those of the exporter, and none of anybody else."""

from __future__ import annotations

import re

import pytest
import yaml

from rljob.telemetry.metrics import Metrics
from rljob_runtime.exporter.catalogue import CATALOGUE
from rljob_runtime.exporter.collector import MAX_REPLICAS
from rljob_runtime.exporter.exposition import MAX_LABEL_VALUE, MAX_LABELS
from rljob_runtime.exporter.scrape import bound
from rljob_runtime.exporter.upstream_metrics import PER_REPLICA
from scripts.scrape_names import exporter_names, names_pattern, scrape_config_text
from tests.monitoring.prometheus import SCRAPE_CONFIG


@pytest.fixture(scope="module")
def pattern() -> re.Pattern[str]:
    jobs = yaml.safe_load(SCRAPE_CONFIG.read_text())["scrape_configs"]
    (rule,) = [row for job in jobs if job["job_name"] == "rljob-jobs" for row in job["metric_relabel_configs"][:1]]
    assert (rule["action"], rule["source_labels"]) == ("keep", ["__name__"])
    return re.compile(rule["regex"])


def test_the_file_has_the_names_of_the_exporter(pattern: re.Pattern[str]) -> None:
    assert pattern.pattern == names_pattern()


def test_every_name_of_the_exporter_matches(pattern: re.Pattern[str]) -> None:
    served = (
        exporter_names() | {row.name for row in (*CATALOGUE, *PER_REPLICA)} | {"vllm:e2e_request_latency_seconds_sum"}
    )
    assert [name for name in served if not pattern.fullmatch(name)] == []


def test_no_name_of_the_operator_of_a_rule_or_of_others_matches(pattern: re.Pattern[str]) -> None:
    operators = {family.name for family in Metrics().registry.collect()}
    others = {f"{name}{suffix}" for name in operators for suffix in ("", "_total", "_bucket", "_sum", "_count")}
    others |= {"rljob:pod:info", "kube_rljob_info", "up", "ALERTS", "rljob_stepx", "xrljob_step", "tq_", "rljob_"}
    assert len(others) > 100
    assert [name for name in others if pattern.fullmatch(name)] == []


def test_a_page_of_the_exporter_is_within_the_limits() -> None:
    jobs = yaml.safe_load(SCRAPE_CONFIG.read_text())["scrape_configs"]
    (job,) = [job for job in jobs if job["job_name"] == "rljob-jobs"]
    # Name, job and instance of Prometheus; container and endpoint of Prometheus Operator; those of relabeling.
    of_target = 5 + len([row for row in job["relabel_configs"] if "target_label" in row])
    assert MAX_LABELS + of_target <= job["label_limit"]
    assert job["label_value_length_limit"] == MAX_LABEL_VALUE
    assert max(map(len, exporter_names())) <= job["label_value_length_limit"]
    assert bound(MAX_REPLICAS) <= job["sample_limit"]


def test_a_file_without_the_marks_is_not_written() -> None:
    with pytest.raises(ValueError, match="lacks the line"):
        scrape_config_text("scrape_configs: []\n")
