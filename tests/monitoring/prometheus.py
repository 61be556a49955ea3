"""A real Prometheus from Debian, as a child of the test: own folder, own port on the loopback, ended by its pid.

It uses the chart's `files/scrape-config.yaml`, the file that users without Prometheus Operator use. Only pod discovery
(`discovery`) and the scrape interval differ. Used by tests/chart and tests/e2e.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.packages import unpacked_program
from tests.cluster.processes import tail

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
SCRAPE_CONFIG = ROOT / "charts/rljob-operator/files/scrape-config.yaml"
PACKAGE = "prometheus"
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
ANSWER_SECONDS = 60.0
RETENTION = "10y"
"""Recorded data is queried at any later time."""

# A proxy, if there is one, is for external traffic.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class PrometheusError(AssertionError):
    """Prometheus does not run, or rejects a query; the message is its output."""


@dataclass(frozen=True)
class Series:
    """One series of a result: its labels, and its samples by Unix time."""

    labels: Mapping[str, str]
    samples: Mapping[float, float]


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str
    folder: Path

    def at(self, expression: str, time_seconds: float | None = None) -> list[Series]:
        """Evaluate at one time; a range selector `x[5m]` returns the samples as they were scraped."""
        moment = {} if time_seconds is None else {"time": repr(time_seconds)}
        return self._series("query", {"query": expression, **moment})

    def over(self, expression: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        """Evaluate as a panel does, every few seconds of a time range."""
        parameters = {"query": expression, "start": repr(begin), "end": repr(end), "step": repr(step_seconds)}
        return self._series("query_range", parameters)

    def targets(self) -> list[Manifest]:
        """Return the current targets."""
        found: list[Manifest] = self.ask("targets", {"state": "active"})["activeTargets"]
        return found

    def ask(self, path: str, parameters: Mapping[str, str]) -> Manifest:
        """Send a request to the HTTP API. Raise PrometheusError with its output if it fails."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with _OPENER.open(address, timeout=ANSWER_SECONDS) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise PrometheusError(f"{parameters.get('query', path)}\n{said}") from error
        data: Manifest = json.loads(body)["data"]
        return data

    def _series(self, path: str, parameters: Mapping[str, str]) -> list[Series]:
        data = self.ask(path, parameters)
        if data["resultType"] == "scalar":
            return [Series({}, _samples([data["result"]]))]
        return [Series(row["metric"], _samples(row.get("values") or [row["value"]])) for row in data["result"]]


def _samples(pairs: list[tuple[float, str]]) -> dict[float, float]:
    return {float(moment): float(value) for moment, value in pairs}


def configuration(interval_seconds: int, jobs: Sequence[Manifest] = (), rules: Path | None = None) -> Manifest:
    """Return a configuration with these scrape jobs and rules, with the same interval for both."""
    interval = f"{interval_seconds}s"
    every = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    return {"global": every, "rule_files": [str(rules)] if rules else [], "scrape_configs": list(jobs)}


@contextmanager
def running(folder: Path, config: Manifest) -> Iterator[Prometheus]:
    """Run Prometheus on the data of a folder, new or from an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    file, log, port = folder / "prometheus.yaml", folder / "prometheus.log", _free_port()
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    command = [
        str(unpacked_program(PACKAGE, "prometheus")),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{port}", folder)
        _wait_until_ready(prometheus, process, log)
        yield prometheus
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def promtool(*words: str | Path) -> str:
    """Run promtool. Raise PrometheusError with its output if it fails."""
    command = [unpacked_program(PACKAGE, "promtool"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise PrometheusError(done.stdout + done.stderr)
    return done.stdout


def _wait_until_ready(prometheus: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with _OPENER.open(f"{prometheus.url}/-/ready", timeout=5):
                return
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        time.sleep(0.1)
    raise PrometheusError(f"Prometheus did not become ready; {log} ends with:\n{tail(log)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
