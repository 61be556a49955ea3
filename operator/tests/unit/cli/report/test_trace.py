"""A run as spans: contained in each other, in the formats of Perfetto and OpenTelemetry."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import recorded

from rljob.cli.main import main
from rljob.cli.report.run import ReportRun, status_waits
from rljob.cli.report.trace import otlp, perfetto, spans
from rljob_runtime.contract import JobConfig, Platform

NOW = recorded.NOW


def test_a_run_has_its_attempts_steps_and_stages_one_in_the_other() -> None:
    found = spans(recorded.restarted(), NOW)
    by_path = {span.path: span for span in found}
    assert len(by_path) == len(found)
    assert [span.path for span in found[:5]] == [
        ("quickstart",),
        ("quickstart", "wait for initializers"),
        ("quickstart", "wait for pods"),
        ("quickstart", "attempt 1"),
        ("quickstart", "attempt 1", "start"),
    ]
    for span in found[1:]:
        outer = by_path[span.path[:-1]]
        assert outer.begin - 0.01 <= span.begin <= span.end
        assert span.end <= outer.end + 0.01 or span.path[1:] == ("attempt 1", "step 20"), span.path
    steps = [span for span in found if len(span.path) == 3 and span.name.startswith("step ")]
    assert len(steps) == 45
    assert steps[0].attributes["reward"] > 0.4  # type: ignore[operator] # a number
    stages = [span for span in found if span.path[:3] == steps[0].path and len(span.path) == 4]
    assert stages[0].begin == steps[0].begin
    assert all(before.end == after.begin for before, after in pairwise(stages))
    assert (by_path["quickstart", "attempt 1"].failed, by_path["quickstart", "attempt 2"].failed) == (True, False)


def test_a_wait_ends_with_its_condition_and_a_later_attempt_has_none() -> None:
    created = 1000.0
    times = {"Initialized": 1010.0, "Admitted": 1100.0, "ClusterReady": 5000.0}
    met = [
        {"type": kind, "status": "True", "lastTransitionTime": datetime.fromtimestamp(at, UTC).isoformat()}
        for kind, at in times.items()
    ]
    waits = status_waits({"conditions": [*met, {"type": "Suspended", "status": "False"}]}, 1130.0)
    run = ReportRun("team", "sums", "Training", "", "here", (), (), created=created, waits=waits)
    job, *found = spans(run, 1200.0)
    assert [(span.name, span.begin, span.end) for span in found] == [
        ("wait for initializers", 1000.0, 1010.0),
        ("wait for queue", 1010.0, 1100.0),
    ]
    assert (job.begin, job.end) == (1000.0, 1100.0)


def test_nothing_recorded_has_no_spans() -> None:
    assert spans(ReportRun("team", "sums", "Pending", "", "here", (), (), created=NOW), NOW) == []


def test_perfetto_reads_microseconds_by_level() -> None:
    found = spans(recorded.run(), NOW)
    events = perfetto(found)["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(found)
    assert drawn[0]["ts"] == round(found[0].begin * 1e6)
    assert {event["tid"] for event in drawn} == {0, 1, 2, 3}
    for level in (2, 3):
        own = [event for event in drawn if event["tid"] == level]
        assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in pairwise(own))
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == [
        "quickstart",
        "job",
        "attempts",
        "steps",
        "stages",
    ]


def test_the_same_run_is_the_same_trace() -> None:
    found = spans(recorded.run(), NOW)
    (resource,) = otlp(found, "default")["resourceSpans"]
    made = resource["scopeSpans"][0]["spans"]
    assert otlp(found, "default")["resourceSpans"] == [resource]
    ids = {span["spanId"] for span in made}
    assert len(ids) == len(made)
    assert {len(span["spanId"]) for span in made} == {16}
    assert {span["traceId"] for span in made} == {made[0]["traceId"]}
    assert [span["name"] for span in made if "parentSpanId" not in span] == ["quickstart"]
    assert {span["parentSpanId"] for span in made[1:]} <= ids


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a local run."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".rljob" / "sums" / "spool" / "attempt-1"
    folder.mkdir(parents=True)
    (folder / "steps.jsonl").write_text(recorded.STEPS)
    config = JobConfig(1, "default", "sums", "uid", "local", 1, Platform.CPU, 1, 2, 1, 40, {})
    (tmp_path / ".rljob" / "sums" / "job.json").write_bytes(config.to_json())
    return tmp_path


def test_it_writes_a_file(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "sums", "--local"]) == 0
    assert capsys.readouterr().out.startswith("trace.json (")
    assert len(json.loads((root / "trace.json").read_text())["traceEvents"]) > 200


@pytest.mark.usefixtures("root")
def test_it_sends_them_to_a_collector(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("rljob.cli.verbs.trace.AT_ONCE", 100)
    seen: list[tuple[str, dict[str, Any]]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200 if len(seen) < 5 else 400)
            self.end_headers()

        def log_message(self, format: str, *rest: object) -> None:  # noqa: A002 - of the base class
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = main(["trace", "sums", "--local", "--otlp", url])
        told = capsys.readouterr().out
        refused = [main(["trace", "sums", "--local", "--otlp", url]) for _ in range(2)]
        server.shutdown()
        thread.join()
    count = int(told.split()[0])
    assert (done, told) == (0, f"{count} spans sent to {url}\n")
    assert {path for path, _ in seen} == {"/v1/traces"}
    sent = [body["resourceSpans"][0]["scopeSpans"][0]["spans"] for _, body in seen[: -(-count // 100)]]
    assert sum(map(len, sent)) == count
    assert refused == [2, 2]
    assert "answers 400" in capsys.readouterr().err


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:4318", "use an address such as"),
        ("http://127.0.0.1:9", "does not answer"),
        ("http://localhost:abc", "does not answer"),
        ("http://[::1", "does not answer"),
    ],
)
def test_an_address_that_does_not_answer_is_named(url: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "sums", "--local", "--otlp", url]) == 2
    assert says in capsys.readouterr().err
