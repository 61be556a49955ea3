"""The chart's scrape configuration in a real Prometheus: discovered pods, their labels, and the dashboards' data.

The exporter and the operator's metrics are real, on a spool that a small run writes step by step; the pages of vLLM,
TransferQueue and Ray are static text. tests/e2e/test_training_metrics.py checks the metrics of a whole run.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rljob.telemetry.metrics import Metrics
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Phase, Platform, Progress
from rljob_runtime.exporter.exposition import SAMPLE_LINE
from rljob_runtime.exporter.scrape import Scrape
from rljob_runtime.spool import step_metrics
from rljob_runtime.spool.spool import Spool, StepRecord
from rljob_runtime.spool.step_metrics import Batch, ReplicaWindow, RolloutWindow
from tests.chart.helm import pick, render
from tests.kube import wait_for
from tests.monitoring import served
from tests.monitoring.boards import Board, faults, look
from tests.monitoring.discovery import discovering, scrape_jobs
from tests.monitoring.figures import looks, wrong_idle_ratios, wrong_rates, wrong_sums
from tests.monitoring.prometheus import SCRAPE_CONFIG, Prometheus, configuration, running
from tests.monitoring.questions import BOARDS, Time, board_files, panels
from tests.monitoring.rules import write_rules

INTERVAL_SECONDS = 1
STEPS = 5
JOB = {"rljob": "sums", "rljob_namespace": "team-a"}
RAY_PAGE = """# TYPE ray_resources gauge
ray_resources{Name="NPU",State="USED",SessionName="s",NodeAddress="127.0.0.1"} 2.0
# TYPE ray_node_mem_used gauge
ray_node_mem_used{SessionName="s",ip="127.0.0.1"} 5.0
# TYPE ray_grpc_server_req_process_time_ms gauge
ray_grpc_server_req_process_time_ms{SessionName="s"} 5.0
"""


@dataclass(frozen=True)
class Scraped:
    """What Prometheus has scraped, and the records of the run."""

    prometheus: Prometheus
    lines: list[list[dict[str, Any]]]
    time: Time
    page: str
    """The exporter's last page."""


def job() -> JobConfig:
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace="team-a",
        name="sums",
        uid="uid-1",
        cluster_name="sums-uid01-1",
        cluster_generation=1,
        platform=Platform.CPU,
        nodes=1,
        devices=4,
        dies_per_card=2,
        total_steps=40,
        overrides={},
    )


def record(step: int) -> StepRecord:
    """Return a step whose metrics all differ from those of the other steps."""
    metrics = {
        "critic/score/mean": step / 10,
        "perf/total_num_tokens": 1000.0 + step,
        "prompt_length/mean": 10.0,
        "response_length/mean": 30.0,
        "timing_s/step": 4.0 + step / 10,
        "timing_s/gen": 2.0,
        "timing_s/update_actor": 1.0 + step / 20,
    }
    window = RolloutWindow({"a": ReplicaWindow(0.0, 1.0 + step / 10, 8), "b": ReplicaWindow(0.0, 2.0, 8)})
    return StepRecord(
        step, time.time(), metrics | step_metrics.compute(metrics, window, Batch(), devices=4, dies_per_card=2)
    )


def train(spool: Spool) -> None:
    """Write what the trainer of a real run writes, with three scrapes per step."""
    for step in range(1, STEPS + 1):
        spool.append_step(1, record(step))
        spool.update_progress(step=step, phase=Phase.TRAINING, median_step_seconds=4.0)
        time.sleep(3 * INTERVAL_SECONDS)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder, metrics = tmp_path_factory.mktemp("scraping"), Metrics()
    config, spool = folder / "job.json", Spool(folder / "spool")
    config.write_bytes(job().to_json())
    spool.write_progress(Progress(pod_uid="pod-1", phase=Phase.STARTING, attempt=1, submission_id="s", total_steps=40))
    metrics.leader.set(1)
    head = {"rljob.dev/job": "sums", "ray.io/node-type": "head"}
    with ExitStack() as stack:
        exporter = stack.enter_context(served.page(Scrape(spool, config).text))
        operator = stack.enter_context(served.page(lambda: metrics.exposition().decode()))
        ray = stack.enter_context(served.page(lambda: RAY_PAGE))
        labels = pick(render(), "Deployment")["spec"]["template"]["metadata"]["labels"]
        pods = [
            served.pod("operator-1", "rljob-system", labels, {"http": operator}),
            served.pod("head-1", "team-a", head, {"rljob-metrics": exporter, "rljob-api": 9, "metrics": ray}),
            served.pod("head-0", "team-a", head, {"rljob-metrics": exporter, "metrics": ray}, phase="Failed"),
            served.pod("worker-1", "team-a", {**head, "ray.io/node-type": "worker"}, {"metrics": ray}),
            served.pod("other-1", "team-a", {"app": "web"}, {"http": 9, "metrics": 9}),
        ]
        stack.enter_context(discovering(SCRAPE_CONFIG, folder, lambda: pods))
        rules = write_rules(folder / "rules.yaml")
        settings = configuration(INTERVAL_SECONDS, scrape_jobs(SCRAPE_CONFIG, folder), rules)
        prometheus = stack.enter_context(running(folder / "prometheus", settings))
        wait_for("4 targets are up", lambda: len(_up(prometheus)) == 4, 60, every=0.2)
        begin = time.time()
        trainer = threading.Thread(target=train, args=(spool,))
        trainer.start()
        trainer.join()
        files = spool.root.glob("attempt-*/steps.jsonl")
        lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        last = Time(begin, time.time(), INTERVAL_SECONDS)
        yield Scraped(prometheus, lines, last, Scrape(spool, config).text())


def _up(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [target for target in prometheus.targets() if target["health"] == "up"]


def test_the_pods_of_operator_and_jobs_are_found_and_no_others(scraped: Scraped) -> None:
    found = {(target["labels"]["job"], target["labels"]["pod"]) for target in scraped.prometheus.targets()}
    assert found == {
        ("rljob-operator", "operator-1"),
        ("rljob-jobs", "head-1"),
        ("rljob-ray", "head-1"),
        ("rljob-ray", "worker-1"),
    }


def test_series_name_job_namespace_and_pod(scraped: Scraped) -> None:
    (step,) = scraped.prometheus.at("rljob_step")
    assert {**JOB, "namespace": "team-a", "pod": "head-1", "job": "rljob-jobs"}.items() <= step.labels.items()
    nodes = {(found.labels["pod"], found.labels["ray_node_type"]) for found in scraped.prometheus.at("ray_resources")}
    assert nodes == {("head-1", "head"), ("worker-1", "worker")}
    for found in scraped.prometheus.at("ray_node_mem_used"):
        assert JOB.items() <= found.labels.items()
        assert "SessionName" not in found.labels


def test_of_ray_only_what_is_shown_is_kept(scraped: Scraped) -> None:
    assert not scraped.prometheus.at("ray_grpc_server_req_process_time_ms")


def test_every_series_of_the_exporter_is_stored(scraped: Scraped) -> None:
    series = scraped.prometheus.at('{job="rljob-jobs",__name__!~"up|scrape_.+"}')
    names = {one.labels["__name__"] for one in series}
    assert names == {match["name"] for match in map(SAMPLE_LINE.match, scraped.page.splitlines()) if match}
    assert not [name for one in series for name in one.labels if name.startswith("exported_")]


def test_a_pod_is_joined_to_its_job(scraped: Scraped) -> None:
    found = scraped.prometheus.at("rljob:pod:info")
    assert {(one.labels["pod_name"], one.labels["rljob"]) for one in found} == {
        ("head-1", "sums"),
        ("worker-1", "sums"),
    }


def test_tokens_per_second_and_idle_ratios_are_those_of_the_records(scraped: Scraped) -> None:
    seen = looks(scraped.prometheus, 'rljob="sums"', scraped.lines, scraped.time)
    assert {look.line["step"] for look in seen if look.line} == set(range(1, STEPS + 1))
    assert wrong_rates(seen, 1e-6) == []
    assert wrong_idle_ratios(seen, 1e-6) == []
    assert wrong_sums(seen, scraped.lines, 1e-6) == []


def test_a_record_that_differs_is_found(scraped: Scraped) -> None:
    other = [[dict(line, metrics={**line["metrics"], "timing_s/step": 9.0}) for line in scraped.lines[0]]]
    seen = looks(scraped.prometheus, 'rljob="sums"', other, scraped.time)
    assert len(wrong_rates(seen, 0.01)) == len(seen) > 0
    assert wrong_sums(seen, other, 0.01)


VARIABLES = {"namespace": "team-a", "rljob": "sums", "__rate_interval": "4s", "__range": "15s"}


def shown(scraped: Scraped, path: Path) -> Board:
    return look(scraped.prometheus, path, VARIABLES, scraped.time)


@pytest.mark.parametrize("path", board_files(), ids=lambda path: path.stem)
def test_panels_name_their_lines_and_are_true_to_their_units(scraped: Scraped, path: Path) -> None:
    assert faults(shown(scraped, path)) == []


def test_panels_show_the_run_or_say_why_they_are_empty(scraped: Scraped) -> None:
    job, operator, npu = (shown(scraped, BOARDS / f"{name}.json") for name in ("job", "operator", "npu"))
    lines = {panel.title: [line.legend for line in panel.lines] for panel in job.panels}
    assert lines["Score"] == ["mean"]
    assert len(lines["Tokens per second per card"]) > 1
    assert "leaders" in {panel.title.lower() for panel in operator.panels if not panel.empty}
    assert {panel.no_value for panel in npu.panels if panel.empty} == {
        "npu-exporter is not scraped, or no job holds chips"
    }
    (jobs,) = (panel for panel in shown(scraped, BOARDS / "fleet.json").panels if panel.kind == "table")
    (row,) = jobs.cells
    assert (row[:4], row[4]) == (("sums", "team-a", "5", "40"), "0.5")


def test_a_panel_that_misleads_is_found(scraped: Scraped, tmp_path: Path) -> None:
    text = (BOARDS / "job.json").read_text()
    board = json.loads(text.replace('"legendFormat": "{{stat}}"', '"legendFormat": "{{state}}"'))
    for panel in panels(board):
        if panel["title"] == "Step":
            panel["fieldConfig"]["defaults"]["unit"] = "percentunit"
    planted = tmp_path / "job.json"
    planted.write_text(json.dumps(board))
    found = "\n".join(faults(shown(scraped, planted)))
    assert "job: Score: the legend of A names state, which its series lack" in found
    assert "job: Step: A has " in found


LIMITS = {
    "sample_limit": "sampleLimit",
    "label_limit": "labelLimit",
    "label_name_length_limit": "labelNameLengthLimit",
    "label_value_length_limit": "labelValueLengthLimit",
    "body_size_limit": "bodySizeLimit",
}
"""Fields of a PodMonitor's spec (prometheus-operator, pkg/apis/monitoring/v1/podmonitor_types.go)."""
ENDPOINT = {"honor_labels": "honorLabels", "honor_timestamps": "honorTimestamps", "follow_redirects": "followRedirects"}


@pytest.mark.parametrize("name", ["jobs", "ray"])
def test_with_prometheus_operator_series_are_named_and_limited_alike(name: str) -> None:
    scrapes = yaml.safe_load(SCRAPE_CONFIG.read_text())["scrape_configs"]
    plain = next(scrape for scrape in scrapes if scrape["job_name"] == f"rljob-{name}")
    monitor = pick(render("--set", "metrics.podMonitor.enabled=true"), "PodMonitor", f"rljob-operator-{name}")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert {field: monitor["spec"][theirs] for field, theirs in LIMITS.items()} == {f: plain[f] for f in LIMITS}
    assert {field: endpoint[theirs] for field, theirs in ENDPOINT.items()} == dict.fromkeys(ENDPOINT, False)
    assert {field: plain[field] for field in ENDPOINT} == dict.fromkeys(ENDPOINT, False)
    job, *rows = endpoint["relabelings"]
    assert job == {"targetLabel": "job", "replacement": f"rljob-{name}"}
    # Prometheus Operator itself sets namespace and pod, and drops pods that have ended.
    named = {row["targetLabel"]: row["sourceLabels"] for row in rows} | {
        "namespace": ["__meta_kubernetes_namespace"],
        "pod": ["__meta_kubernetes_pod_name"],
    }
    targets = [row for row in plain["relabel_configs"] if "target_label" in row]
    assert {row["target_label"]: row["source_labels"] for row in targets} == named
    kept = [(row["action"], row["regex"], row.get("source_labels")) for row in plain["metric_relabel_configs"]]
    assert [(row["action"], row["regex"], row.get("sourceLabels")) for row in endpoint["metricRelabelings"]] == kept


def test_with_prometheus_operator_the_operator_has_the_same_job() -> None:
    monitor = pick(render("--set", "metrics.serviceMonitor.enabled=true"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "rljob-operator"}]
    assert "namespaceSelector" not in monitor["spec"]


def test_the_annotations_of_the_operators_pod_locate_its_metrics() -> None:
    def annotations(*values: str) -> dict[str, str]:
        found = pick(render(*values), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return dict(itertools.filterfalse(lambda item: not item[0].startswith("prometheus.io/"), found.items()))

    assert annotations() == {}
    assert annotations("--set", "metrics.annotations.enabled=true") == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
