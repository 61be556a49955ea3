"""Read a run's records from Prometheus: samples of the exporter's metrics, joined by their time to steps.

Prometheus samples metrics, so it misses some of the steps shorter than the scrape interval, and a step's time is that
of its first sample.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rljob.cli import usage
from rljob.cli.errors import UsageError
from rljob.cli.report.plots import VALIDATION
from rljob.reading.records import Record
from rljob_runtime.contract import StepMetric, parse_foreign_json

TIMEOUT_SECONDS = 60.0
MAX_BYTES = 64 << 20
RESOLUTION_SECONDS = 5.0
MAX_SAMPLES = 10_000
"""Maximum that Prometheus returns per series (web/api/v1/api.go, "exceeded maximum resolution of 11,000 points")."""
LAG_SECONDS = 60.0
DEFAULT_SECONDS = 7 * 86400.0

STEP = "rljob_step"
INFO = "rljob_info"
FIGURES: Mapping[str, str] = {
    "rljob_reward_mean": StepMetric.REWARD,
    "rljob_first_dp_idle_ratio": StepMetric.FIRST_DP_IDLE,
    "rljob_cluster_idle_ratio": StepMetric.CLUSTER_IDLE,
    "rljob_stage_seconds": "timing_s/{stage}",
    "rljob_tokens_per_second": "rljob/tokens_per_second/{stage}/{tokens}/{per}",
    "rljob_entropy": "actor/entropy",
    "rljob_gradient_norm": "{model}/grad_norm",
    "rljob_response_tokens": "response_length/{stat}",
    "rljob_prompt_tokens": "prompt_length/{stat}",
}
"""Series of the exporter and their names in the records, in which labels replace parts of the name."""
VALIDATION_STEP = "rljob_validation_step"
VALIDATION_SCORE = "rljob_validation_score"
"""The score is unchanged until the next validation, so it belongs to that step and not to the current one."""
OWN_LABELS = frozenset({"__name__", "attempt", "submission_id", "pod_uid", "stage", "tokens", "per", "model", "stat"})
"""Labels that distinguish series of one scrape; all other labels identify the target."""

Labels = tuple[tuple[str, str], ...]
Moment = tuple[Labels, float]
"""A target and the Unix time of a sample."""


@dataclass(frozen=True)
class Target:
    """Target and time range of the records."""

    namespace: str
    name: str
    begin: float | None
    end: float


@dataclass(frozen=True)
class Server:
    """A Prometheus server, or one with the same API."""

    url: str

    def query_range(self, query: str, begin: float, end: float) -> list[dict[str, Any]]:
        """Return the series of a range query."""
        step = max(RESOLUTION_SECONDS, math.ceil((end - begin) / MAX_SAMPLES))
        return self._ask("query_range", {"query": query, "start": f"{begin:.3f}", "end": f"{end:.3f}", "step": step})

    def query(self, query: str, moment: float) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        return self._ask("query", {"query": query, "time": f"{moment:.3f}"})

    def _ask(self, path: str, words: Mapping[str, object]) -> list[dict[str, Any]]:
        query, url = words["query"], f"{self.url.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"--prometheus {self.url}: use an address such as http://localhost:9090")
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - the scheme is checked
                found = parse_foreign_json(answer.read(MAX_BYTES), MAX_BYTES)
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode(errors="replace")
            raise UsageError(
                f"{self.url} answers {error.code} {error.reason} to `{query}`: {said}; check the address and the server"
            ) from error
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{self.url} does not answer `{query}`: {error}; check that it is a Prometheus server"
            ) from error
        try:
            series: list[dict[str, Any]] = found["data"]["result"]
        except (KeyError, TypeError) as error:
            raise UsageError(f"{self.url} does not answer as Prometheus does; check the address") from error
        return series


def read_records(server: Server, target: Target) -> list[Record]:
    """Return a record for each step of each attempt that was scraped."""
    begin = target.begin if target.begin is not None else target.end - DEFAULT_SECONDS
    # Only the scrape of the exporters takes these labels from the pod.
    job = f'job="{usage.JOBS_SCRAPE}",rljob={_quoted(target.name)},rljob_namespace={_quoted(target.namespace)}'

    def ask(metric: str) -> Iterator[tuple[dict[str, str], Moment, float]]:
        yield from _samples(server.query_range(f"{metric}{{{job}}}", begin, target.end))

    attempts = {moment: int(labels["attempt"]) for labels, moment, _ in ask(INFO)}
    found: dict[tuple[int, int], Record] = {}

    def note(step: int | None, moment: Moment, key: str, value: float) -> None:
        attempt = attempts.get(moment)
        if step is not None and attempt is not None:
            record = found.setdefault((attempt, step), Record(attempt, step, moment[1], {}))
            # The first sample of a step belongs to it; a sample scraped during the next update may not.
            found[attempt, step] = replace(record, metrics={key: value, **record.metrics})

    steps = {moment: int(value) for _, moment, value in ask(STEP)}
    for metric, key in FIGURES.items():
        for labels, moment, value in ask(metric):
            note(steps.get(moment), moment, key.format(**labels), value)
    checked = {moment: int(value) for _, moment, value in ask(VALIDATION_STEP)}
    for _, moment, value in ask(VALIDATION_SCORE):
        note(checked.get(moment), moment, VALIDATION, value)
    return [found[place] for place in sorted(found)]


def _samples(series: list[dict[str, Any]]) -> Iterator[tuple[dict[str, str], Moment, float]]:
    for one in series:
        labels: dict[str, str] = one["metric"]
        target = tuple(sorted((name, value) for name, value in labels.items() if name not in OWN_LABELS))
        for moment, value in one["values"]:
            yield labels, (target, float(moment)), float(value)


def _quoted(text: str) -> str:
    """Quote a string for PromQL, whose escapes are those of Go and include JSON's."""
    return json.dumps(text)
