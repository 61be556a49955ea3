"""A report from Prometheus: the exporter's own samples of a recorded run, queried over HTTP."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import recorded

from rljob.cli.errors import UsageError
from rljob.cli.report import prometheus
from rljob.cli.report.plots import STAGES, TABLE, VALIDATION
from rljob.cli.report.prometheus import FIGURES, Server, Target, read_records
from rljob.reading.records import Record
from rljob_runtime.contract import JobConfig, Phase, Platform, PodVariable, Progress, StepMetric

SELECTOR = re.compile(r'(\w+)\{job="rljob-jobs",rljob="quickstart",rljob_namespace="default"\}')
DRAWN = {key for row in TABLE for key, _ in row.series} | {f"timing_s/{stage}" for stage in ("step", *dict(STAGES))}
Series = dict[tuple[tuple[str, str], ...], list[list[Any]]]


def series_of(records: list[Record], shift: float = 0.0) -> dict[str, Series]:
    """Return what Prometheus would store if it scraped immediately after each step."""
    held: dict[str, Series] = {}

    def add(metric: str, labels: dict[str, str], moment: float, value: float) -> None:
        series = held.setdefault(metric, {})
        series.setdefault(tuple(sorted(labels.items())), []).append([moment, str(value)])

    patterns = {
        metric: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(key))) for metric, key in FIGURES.items()
    }
    for record in records:
        pod, moment = {"pod": f"head-{record.attempt}"}, record.time + shift
        add("rljob_step", pod, moment, record.step)
        add("rljob_info", pod | {"attempt": str(record.attempt), "pod_uid": "u", "submission_id": "s"}, moment, 1)
        add("rljob_validation_step", pod, moment, 0)
        add("rljob_validation_score", pod, moment, 0.4)
        for key, value in record.metrics.items():
            metric, found = next(((m, p.fullmatch(key)) for m, p in patterns.items() if p.fullmatch(key)), ("", None))
            if found:
                add(metric, pod | found.groupdict(), moment, value)
    return held


@contextmanager
def serving(held: dict[str, Series], status: int = 200, other: bytes = b"") -> Iterator[tuple[str, list[str]]]:
    """Answer as Prometheus does."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            metric = SELECTOR.fullmatch(query)
            assert metric, query
            result = [{"metric": dict(labels), "values": values} for labels, values in held.get(metric[1], {}).items()]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(other or json.dumps({"status": "success", "data": {"result": result}}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TARGET = Target("default", "quickstart", 1795321600.0, 1795322000.0)


def test_what_was_scraped_becomes_the_records_again() -> None:
    run = recorded.restarted()
    with serving(series_of(list(run.records))) as (url, _):
        found = [record for record in read_records(Server(url), TARGET) if record.trained]
    assert [(r.attempt, r.step) for r in found] == [(r.attempt, r.step) for r in run.records]
    for record, before in zip(found, run.records, strict=True):
        wanted = {key: value for key, value in before.metrics.items() if key in DRAWN}
        assert {key: record.metrics[key] for key in wanted} == wanted


def test_a_validation_belongs_to_its_own_step() -> None:
    with serving(series_of(list(recorded.run().records))) as (url, _):
        found = read_records(Server(url), TARGET)
    assert [(record.step, record.metrics[VALIDATION]) for record in found if VALIDATION in record.metrics] == [(0, 0.4)]


def test_a_step_that_was_scraped_twice_keeps_its_first_sample() -> None:
    first = recorded.run().records[0]
    late = Record(1, 1, first.time + 15, {**first.metrics, StepMetric.REWARD: 9.0})
    with serving(series_of([first, late])) as (url, _):
        (_, found) = read_records(Server(url), TARGET)
    assert found.time == first.time
    assert found.metrics[StepMetric.REWARD] == first.metrics[StepMetric.REWARD]


def test_the_resolution_keeps_within_what_prometheus_gives() -> None:
    with serving({}) as (url, asked):
        month = Target("default", "quickstart", TARGET.end - 30 * 86400, TARGET.end)
        assert read_records(Server(url + "/"), month) == []
        read_records(Server(url), Target("default", "quickstart", None, TARGET.end))
    for path in asked:
        query = {key: float(value[0]) for key, value in parse_qs(urlsplit(path).query).items() if key != "query"}
        assert (query["end"] - query["start"]) / query["step"] <= prometheus.MAX_SAMPLES
        assert query["step"] >= prometheus.RESOLUTION_SECONDS


def test_a_server_that_refuses_or_is_not_prometheus_is_an_error() -> None:
    for status in (422, 599):
        with serving({}, status=status) as (url, _), pytest.raises(UsageError, match=f"answers {status} .*check the"):
            read_records(Server(url), TARGET)
    for other in (b"[]", b'{"data": {}}'):
        with serving({}, other=other) as (url, _), pytest.raises(UsageError, match="not answer as Prometheus does"):
            read_records(Server(url), TARGET)
    with pytest.raises(UsageError, match="does not answer"):
        read_records(Server("http://127.0.0.1:1"), TARGET)
    with pytest.raises(UsageError, match="use an address such as"):
        read_records(Server("file:///etc/passwd#"), TARGET)


def test_the_exporter_serves_every_figure_that_is_drawn(tmp_path: Path) -> None:
    """Here the exporter itself runs, on the spool of a recorded step."""
    record = recorded.run().records[0]
    with exporting(tmp_path, record) as scrape, serving(scraped(scrape)) as (url, _):
        (found,) = read_records(Server(url), TARGET)
    assert (found.attempt, found.step) == (1, 1)
    missed = {key: value for key, value in record.metrics.items() if key in DRAWN and found.metrics.get(key) != value}
    assert missed == {}
    assert len(DRAWN & record.metrics.keys()) >= 16


@contextmanager
def exporting(folder: Path, record: Record) -> Iterator[str]:
    """Run the exporter, and return its page."""
    config = JobConfig(1, "default", "quickstart", "uid", "quickstart-1", 1, Platform.CPU, 1, 2, 1, 40, {})
    (folder / "job.json").write_bytes(config.to_json())
    progress = Progress("pod", Phase.TRAINING, 1, "submission", record.step, 40, record.time)
    (folder / "current.json").write_bytes(progress.to_json())
    (folder / "attempt-1").mkdir()
    (folder / "attempt-1" / "steps.jsonl").write_text(recorded.STEPS.splitlines()[0] + "\n")
    metrics, api = free_ports()
    variables: dict[str, str] = {
        PodVariable.SPOOL: str(folder),
        PodVariable.CONFIG: str(folder / "job.json"),
        PodVariable.POD_UID: "pod",
        PodVariable.TOKEN: "token",
        PodVariable.METRICS_PORT: str(metrics),
        PodVariable.API_PORT: str(api),
    }
    words = [sys.executable, "-m", "rljob_runtime", "exporter"]
    with subprocess.Popen(words, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True) as exporter:
        try:
            yield page(f"http://127.0.0.1:{metrics}/metrics", exporter)
        finally:
            exporter.kill()


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]


def page(url: str, exporter: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and exporter.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own
                text: str = answer.read().decode()
                return text
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the exporter ended with {exporter.poll()}, or does not answer")


def scraped(text: str) -> dict[str, Series]:
    """Read a page as Prometheus does, at a given time of the run."""
    held: dict[str, Series] = {}
    for metric, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        series = held.setdefault(metric, {})
        series[tuple(re.findall(r'(\w+)="([^"]*)"', labels))] = [[TARGET.begin, value]]
    return held
