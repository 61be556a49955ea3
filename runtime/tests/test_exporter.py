"""The exporter over real HTTP: authorization, stop requests, and whether Prometheus can parse the page."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rljob_runtime.contract import (
    CheckResult,
    CoreBinding,
    ExitCode,
    Outcome,
    Phase,
    Preflight,
    Progress,
    StartProgress,
    StartStage,
    StopMode,
    StopRequest,
)
from rljob_runtime.exporter import catalogue, scrape, scrape_targets
from rljob_runtime.exporter.server import ApiHandler, Exporter, MetricsHandler, make_server
from rljob_runtime.ray_cluster import head_lock
from rljob_runtime.spool.spool import Spool, StepRecord
from runtime.tests.conftest import MakeJob

TOKEN = "correct-horse"
VLLM_PAGE = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# HELP vllm:e2e_request_latency_seconds Histogram of latency.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 2.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} 0.5
# HELP python_info Python.
# TYPE python_info gauge
python_info{version="3"} 1.0
"""


LONG_PAGE = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{long}"}} 1.0
vllm:num_requests_running{{engine="0",model_name="{short}"}} 2.0
vllm:num_requests_running{{engine="0",model_name="{wide}"}} 3.0
vllm:num_requests_running{{engine="0",{many}}} 4.0
"""


QUEUE_PAGE = """# HELP tq_storage_active_keys_total Active keys in storage unit
# TYPE tq_storage_active_keys_total gauge
tq_storage_active_keys_total{storage_unit_id="a"} 3.0
tq_storage_active_keys_total{storage_unit_id="b"} 4.0
# HELP tq_storage_request_latency_p99 P99 request latency in storage unit (seconds)
# TYPE tq_storage_request_latency_p99 gauge
tq_storage_request_latency_p99{op_type="GET",storage_unit_id="a"} 0.5
# HELP tq_partition_samples_total Number of active samples in a partition
# TYPE tq_partition_samples_total gauge
tq_partition_samples_total{partition_id="train"} 16.0
"""


TRAINING = Progress(pod_uid="pod-1", phase=Phase.TRAINING, attempt=2, submission_id="s-2", step=3, total_steps=40)


class Replica(BaseHTTPRequestHandler):
    page = VLLM_PAGE

    def do_GET(self) -> None:
        body = self.page.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Queue(Replica):
    page = QUEUE_PAGE


def started(server: ThreadingHTTPServer) -> ThreadingHTTPServer:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


@pytest.fixture
def exporter(spool: Spool, make_job: MakeJob, tmp_path: Path) -> Exporter:
    config = tmp_path / "job.json"
    config.write_bytes(make_job().to_json())
    return Exporter(spool=spool, config=config, pod_uid="pod-1", token=TOKEN)


@pytest.fixture
def api(exporter: Exporter) -> Iterator[int]:
    server = started(make_server(ApiHandler, exporter, ("127.0.0.1", 0)))
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def training(spool: Spool) -> Iterator[None]:
    with head_lock(spool.root, 0):
        spool.write_progress(TRAINING)
        yield


def call(port: int, method: str, path: str, token: str | None = TOKEN, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def test_before_the_first_attempt_the_phase_is_idle(api: int) -> None:
    status, body = call(api, "GET", "/v1/progress")
    assert status == 200
    assert Progress.from_json(body) == Progress(pod_uid="pod-1", phase=Phase.IDLE)


@pytest.mark.parametrize("token", [None, "", "wrong", f"{TOKEN}x"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/progress"), ("POST", "/v1/stop"), ("GET", "/nowhere")])
def test_requests_without_the_token_are_denied(api: int, method: str, path: str, token: str | None) -> None:
    assert call(api, method, path, token)[0] == 401


def test_without_a_configured_token_every_request_is_denied(exporter: Exporter) -> None:
    assert not Exporter(exporter.spool, exporter.config, "pod-1", token="").authorized("Bearer ")


def test_a_run_whose_launcher_was_killed_has_ended(api: int, spool: Spool) -> None:
    spool.write_progress(TRAINING)
    assert Progress.from_json(call(api, "GET", "/v1/progress")[1]) == replace(TRAINING, phase=Phase.ENDED)


def test_what_a_start_does_is_served_while_its_launcher_lives(api: int, spool: Spool) -> None:
    starting = replace(TRAINING, phase=Phase.STARTING)
    stage = StartProgress(StartStage.LOADING_MODEL, 5.0, 1, 2)
    with head_lock(spool.root, 0):
        spool.write_progress(starting)
        spool.write_start(starting.attempt, stage)
        assert Progress.from_json(call(api, "GET", "/v1/progress")[1]) == replace(starting, start=stage)
    assert Progress.from_json(call(api, "GET", "/v1/progress")[1]) == replace(TRAINING, phase=Phase.ENDED)


@pytest.mark.usefixtures("training")
def test_a_stop_reaches_the_spool(api: int, spool: Spool) -> None:
    request = StopRequest(attempt=2, mode=StopMode.ABORT_ROLLOUT)
    status, body = call(api, "POST", "/v1/stop", body=request.to_json())
    assert status == 202
    assert Progress.from_json(body).attempt == 2
    assert spool.stop_request(2) == request


@pytest.mark.usefixtures("training")
def test_a_stop_for_another_attempt_is_a_conflict(api: int, spool: Spool) -> None:
    body = StopRequest(attempt=1, mode=StopMode.AFTER_STEP).to_json()
    assert call(api, "POST", "/v1/stop", body=body)[0] == 409
    assert spool.stop_request(1) is None


def test_a_stop_after_the_end_changes_nothing(api: int, spool: Spool) -> None:
    outcome = Outcome(int(ExitCode.DONE), "Completed", "")
    spool.write_progress(Progress(pod_uid="pod-1", phase=Phase.ENDED, attempt=1, outcome=outcome))
    body = StopRequest(attempt=1, mode=StopMode.AFTER_STEP).to_json()
    assert call(api, "POST", "/v1/stop", body=body)[0] == 202
    assert spool.stop_request(1) is None


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"\xff", 400), (b"{}", 400), (b'{"attempt":2,"mode":"Never"}', 400), (b"x" * 65_537, 413)],
)
@pytest.mark.usefixtures("training")
def test_a_bad_body_is_refused(api: int, body: bytes, status: int) -> None:
    assert call(api, "POST", "/v1/stop", body=body)[0] == status


class RayJobs(BaseHTTPRequestHandler):
    """Ray's job API: it answers with what it was asked."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said = f"{self.command} {self.path} {body.decode()} {self.headers.get('Authorization')}".encode()
        self.send_response(418)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said[:9] if self.path.endswith("/cut") else said)

    do_POST = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def of_ray(exporter: Exporter) -> Iterator[int]:
    ray = started(ThreadingHTTPServer(("127.0.0.1", 0), RayJobs))
    server = started(make_server(ApiHandler, replace(exporter, ray_jobs_port=ray.server_port), ("127.0.0.1", 0)))
    yield server.server_port
    for each in (server, ray):
        each.shutdown()
        each.server_close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/api/jobs/", b"{}"), ("GET", "/api/jobs/s-2", b""), ("GET", "/api/jobs/s-2/logs", b"")],
)
def test_a_ray_without_tokens_is_asked_with_the_token_only(of_ray: int, method: str, path: str, body: bytes) -> None:
    assert call(of_ray, method, path, token="wrong", body=body)[0] == 401
    # The token stays here.
    assert call(of_ray, method, path, body=body) == (418, f"{method} {path} {body.decode()} None".encode())


def test_an_answer_that_ray_cuts_off_is_seen_to_be_incomplete(of_ray: int) -> None:
    with pytest.raises(http.client.IncompleteRead):
        call(of_ray, "GET", "/api/jobs/cut")


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/a/b", "/api/jobs/../nodes", "/nodes", "/api/jobs/?a=b"])
def test_nothing_else_of_ray_is_passed_on(of_ray: int, path: str) -> None:
    assert call(of_ray, "GET", path)[0] == 404


def test_a_ray_that_checks_tokens_is_asked_directly(api: int) -> None:
    assert call(api, "POST", "/api/jobs/", body=b"{}")[0] == 404


def test_a_ray_that_has_yet_to_start_is_busy(exporter: Exporter) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        starting = replace(exporter, ray_jobs_port=nobody.getsockname()[1])
        server = started(make_server(ApiHandler, starting, ("127.0.0.1", 0)))
        assert call(server.server_port, "GET", "/api/jobs/s-2")[0] == 503
    server.shutdown()
    server.server_close()


def test_unknown_paths_are_not_found(api: int) -> None:
    assert call(api, "GET", "/v1/other")[0] == 404
    assert call(api, "POST", "/v1/other", body=b"")[0] == 404


def test_both_ports_answer_health_without_token(api: int, exporter: Exporter) -> None:
    server = started(make_server(MetricsHandler, exporter, ("127.0.0.1", 0)))
    port = server.server_address[1]
    assert call(api, "GET", "/healthz", token=None) == (200, b"ok\n")
    assert call(port, "GET", "/healthz", token=None) == (200, b"ok\n")
    assert call(port, "GET", "/v1/progress")[0] == 404
    server.shutdown()
    server.server_close()


def families(page: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {f.name: [(s.labels, s.value) for s in f.samples] for f in text_string_to_metric_families(page)}


@pytest.mark.usefixtures("training")
def test_prometheus_reads_the_page(exporter: Exporter, spool: Spool) -> None:
    spool.append_step(
        2,
        StepRecord(
            step=3,
            time=1.0,
            metrics={
                "critic/score/mean": 0.5,
                "actor/entropy": float("nan"),
                "actor/of_tomorrow": 7.0,
                "perf/throughput": 50.0,
                "timing_s/gen": 2.0,
                "rljob/rollout_seconds": 1.5,
                "rljob/first_dp_idle_ratio": 0.25,
                "rljob/cluster_idle_ratio": 0.125,
                "rljob/replica/0/finish_seconds": 1.5,
                "rljob/replica/0/requests": 4.0,
                "rljob/tokens_per_second/step/prompt_and_response/card": 100.0,
            },
        ),
    )
    seen = families(exporter.scrape.text())
    job = {"rljob": "sums", "rljob_namespace": "team-a"}
    assert seen["rljob_step"] == [(job, 3.0)]
    assert seen["rljob_reward_mean"] == [(job, 0.5)]
    assert seen["rljob_first_dp_idle_ratio"] == [(job, 0.25)]
    assert seen["rljob_cluster_idle_ratio"] == [(job, 0.125)]
    assert ({**job, "stage": "rollout"}, 1.5) in seen["rljob_stage_seconds"]
    assert ({**job, "stage": "gen"}, 2.0) in seen["rljob_stage_seconds"]
    labels = {**job, "stage": "step", "tokens": "prompt_and_response", "per": "card"}
    assert seen["rljob_tokens_per_second"] == [(labels, 100.0)]
    assert ({**job, "stat": "mean"}, 0.5) in seen["rljob_score"]
    assert seen["rljob_verl_metric"] == [({**job, "key": "actor/of_tomorrow"}, 7.0)]
    assert (seen["rljob_cards"], seen["rljob_devices"]) == ([(job, 1.0)], [(job, 2.0)])
    assert [value for labels, value in seen["rljob_phase"] if labels["phase"] == "Training"] == [1.0]
    assert set(seen) <= {metric.name.removesuffix("_total") for metric in catalogue.CATALOGUE}


@pytest.mark.usefixtures("training")
def test_prompts_in_flight_are_served_by_state_fate_and_age(exporter: Exporter, spool: Spool) -> None:
    metrics = {
        "rljob/staleness/0": 30.0,
        "rljob/staleness/2": 2.0,
        "rljob/mixed_versions_ratio": 0.0625,
        "rljob/queue/running": 8.0,
        "rljob/oldest_prompt_steps": 1.0,
        "rljob/prompts/fetched": 16.0,
        "rljob/prompts/unaccounted": 0.0,
        "rljob/prompts_dropped/stale": 1.0,
    }
    spool.append_step(2, StepRecord(3, 1.0, metrics))
    seen = families(exporter.scrape.text())
    job = {"rljob": "sums", "rljob_namespace": "team-a"}
    assert seen["rljob_staleness_responses"] == [({**job, "versions": "0"}, 30.0), ({**job, "versions": "2"}, 2.0)]
    assert (seen["rljob_mixed_versions_ratio"], seen["rljob_oldest_prompt_steps"]) == ([(job, 0.0625)], [(job, 1.0)])
    assert seen["rljob_prompts_in_flight"] == [({**job, "state": "running"}, 8.0)]
    assert seen["rljob_prompts"] == [({**job, "event": "fetched"}, 16.0), ({**job, "event": "unaccounted"}, 0.0)]
    assert seen["rljob_prompts_dropped"] == [({**job, "reason": "stale"}, 1.0)]


@pytest.mark.usefixtures("training")
def test_what_is_known_of_the_checkpoint_is_served_and_nothing_else(exporter: Exporter, spool: Spool) -> None:
    kept = "rljob_checkpoint_"
    assert not [name for name in families(exporter.scrape.text()) if name.startswith(kept)]
    spool.update_progress(checkpoint_step=2, checkpoint_time=1000.5, resumed_from_step=0, median_step_seconds=12.5)
    spool.update_progress(median_rollout_seconds=7.5, record_seconds=125.0)
    job = {"rljob": "sums", "rljob_namespace": "team-a"}
    seen = families(exporter.scrape.text())
    assert seen["rljob_checkpoint_timestamp_seconds"] == [(job, 1000.5)]
    assert (seen["rljob_resumed_from_step"], seen["rljob_median_step_seconds"]) == ([(job, 0.0)], [(job, 12.5)])
    assert (seen["rljob_median_rollout_seconds"], seen["rljob_record_seconds"]) == ([(job, 7.5)], [(job, 125.0)])
    assert {name for name in seen if name.startswith(kept)} == {f"{kept}step", f"{kept}timestamp_seconds"}
    spool.update_progress(checkpoint_seconds=2.5, checkpoint_bytes=4096)
    seen = families(exporter.scrape.text())
    assert (seen[f"{kept}seconds"], seen[f"{kept}bytes"]) == ([(job, 2.5)], [(job, 4096.0)])


def test_an_empty_spool_gives_an_empty_page(exporter: Exporter) -> None:
    assert exporter.scrape.text().strip() == ""


@pytest.mark.usefixtures("training")
def test_vllm_metrics_are_kept_by_replica_or_summed(exporter: Exporter, spool: Spool) -> None:
    replica = started(ThreadingHTTPServer(("127.0.0.1", 0), Replica))
    address = f"127.0.0.1:{replica.server_address[1]}"
    write_targets(spool.rollout_targets_file, [address, "127.0.0.1:9", address])
    text = exporter.scrape.text()
    seen = families(text)
    replicas = [labels["replica"] for labels, _ in seen["vllm:num_requests_running"]]
    assert replicas == ["0", "2"]
    latency = {labels.get("le", "one"): value for labels, value in seen["vllm:e2e_request_latency_seconds"]}
    assert latency == {"+Inf": 4.0, "one": 1.0}  # the sum overwrites the count
    assert not [labels for labels, _ in seen["vllm:e2e_request_latency_seconds"] if {"replica", "engine"} & set(labels)]
    assert [value for _, value in seen["rljob_exporter_replica_up"]] == [1.0, 0.0, 1.0]
    assert "python_info" not in seen
    assert text.count("# TYPE vllm:num_requests_running") == 1
    replica.shutdown()
    replica.server_close()


@pytest.mark.usefixtures("training")
def test_a_long_label_value_costs_its_own_series_only(exporter: Exporter, spool: Spool) -> None:
    """Prometheus would reject the whole page (label_value_length_limit)."""
    many = ",".join(f'l{number}="1"' for number in range(50))

    class Long(Replica):
        page = LONG_PAGE.format(long="m" * 513, short="m" * 512, wide="\u00e9" * 257, many=many)

    replica = started(ThreadingHTTPServer(("127.0.0.1", 0), Long))
    write_targets(spool.rollout_targets_file, [f"127.0.0.1:{replica.server_address[1]}"])
    metrics = {"critic/score/mean": 0.5, f"val-core/{'d' * 600}/acc/mean@1": 0.1, "val-core/math/acc/mean@1": 0.2}
    spool.append_step(2, StepRecord(3, 1.0, metrics))
    page = families(exporter.scrape.text())
    replica.shutdown()
    replica.server_close()
    values = [value for found in page.values() for labels, _ in found for value in labels.values()]
    assert max(len(value.encode()) for value in values) == 512
    assert [value for _, value in page["vllm:num_requests_running"]] == [2.0]
    assert page["rljob_reward_mean"]
    dropped = {labels["source"]: value for labels, value in page["rljob_exporter_series_dropped"]}
    assert (dropped["vllm"], dropped["verl"]) == (3, 1)


@pytest.mark.usefixtures("training")
def test_replicas_beyond_the_limit_are_counted(
    exporter: Exporter, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "MAX_REPLICAS", 1)
    write_targets(spool.rollout_targets_file, ["127.0.0.1:9", "127.0.0.1:9", "127.0.0.1:9"])
    assert families(exporter.scrape.text())["rljob_exporter_replicas_skipped"][0][1] == 2.0


def test_a_damaged_targets_file_means_no_replicas(tmp_path: Path) -> None:
    file = tmp_path / "targets.yml"
    for content in ("", "scrape_configs: 3", "{", "scrape_configs: [{job_name: ray}]"):
        file.write_text(content)
        assert scrape_targets.replicas(file) == []


@pytest.mark.usefixtures("training")
def test_the_queues_metrics_are_served_while_it_has_some(exporter: Exporter, spool: Spool) -> None:
    assert "rljob_exporter_transfer_queue_up" not in families(exporter.scrape.text())
    server = started(ThreadingHTTPServer(("127.0.0.1", 0), Queue))
    spool.write_queue_target(f"127.0.0.1:{server.server_address[1]}")
    seen, job = families(exporter.scrape.text()), {"rljob": "sums", "rljob_namespace": "team-a"}
    assert seen["rljob_exporter_transfer_queue_up"] == [(job, 1.0)]
    assert seen["tq_storage_active_keys_total"] == [(job, 7.0)]
    assert seen["tq_partition_samples_total"] == [({**job, "partition_id": "train"}, 16.0)]
    assert "tq_storage_request_latency_p99" not in seen
    server.shutdown()
    server.server_close()
    assert families(exporter.scrape.text())["rljob_exporter_transfer_queue_up"] == [(job, 0.0)]


def test_it_loads_nothing_heavy_and_stays_small(tmp_path: Path) -> None:
    # Not getrusage: its peak is inherited from the process that forked this one.
    code = (
        "import pathlib, sys; import rljob_runtime.exporter.server, rljob_runtime.__main__, yaml;"
        "assert not {'torch', 'verl', 'ray', 'vllm', 'numpy'} & set(sys.modules);"
        "print(pathlib.Path('/proc/self/status').read_text())"
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    peak = next(line for line in output.stdout.splitlines() if line.startswith("VmHWM:"))
    assert int(peak.split()[1]) < 60 * 1024


def write_targets(path: Path, addresses: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "scrape_configs": [
            {"job_name": "ray", "file_sd_configs": [{"files": ["/x.json"]}]},
            {"job_name": "rollout", "static_configs": [{"targets": addresses}]},
        ]
    }
    path.write_text(json.dumps(document))


def test_binding_and_checks_of_the_nodes_are_metrics(exporter: Exporter, spool: Spool) -> None:
    table = Preflight(8, 4.2, (CheckResult("device links", passed=7, failed=1, warned=0, seen="NPU 6"),))
    bound = CoreBinding(nodes=8, planned_nodes=7, bound_processes=112, strayed_processes=1)
    spool.write_progress(replace(TRAINING, preflight=table, core_binding=bound))
    seen = families(exporter.scrape.text())
    found = {labels["state"]: value for labels, value in seen["rljob_core_binding_nodes"]}
    assert found == {"planned": 7.0, "unplanned": 1.0}
    found = {labels["state"]: value for labels, value in seen["rljob_core_binding_processes"]}
    assert found == {"bound": 112.0, "strayed": 1.0}
    found = {labels["result"]: value for labels, value in seen["rljob_preflight_nodes"]}
    assert found == {"passed": 7.0, "failed": 1.0, "warned": 0.0}


def test_what_was_not_looked_at_is_no_metric(exporter: Exporter, spool: Spool) -> None:
    spool.write_progress(replace(TRAINING, core_binding=CoreBinding(nodes=1, planned_nodes=1)))
    assert "rljob_core_binding_processes" not in families(exporter.scrape.text())


def test_the_hooks_of_a_large_cluster_may_ask_at_once(exporter: Exporter) -> None:
    with (
        contextlib.closing(make_server(ApiHandler, exporter, ("127.0.0.1", 0)).socket) as busy,
        contextlib.ExitStack() as hooks,
    ):
        for _ in range(100):
            hooks.enter_context(socket.create_connection(busy.getsockname(), timeout=5.0))
