"""A run as spans: waits, attempts, starts, steps and the stages of steps. As events of Perfetto, and as OTLP. Pure.

Steps are recorded at their end, after a validation (rljob_runtime/verl_plugin/trainer/trainer.py), and their stages
follow one another from the begin of the step, so that their times follow from the durations.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.cli.report.plots import STAGES, VALIDATION_SECONDS
from rljob.cli.report.run import Attempt, ReportRun, step_seconds
from rljob.reading.records import Record
from rljob_runtime.contract import StepMetric

ATTRIBUTES: Mapping[str, str] = {
    "reward": StepMetric.REWARD,
    "tokens_per_second_per_card": StepMetric.STEP_TPS_PER_CARD,
    "response_tokens_mean": "response_length/mean",
    "cluster_idle_ratio": StepMetric.CLUSTER_IDLE,
}
"""Attributes of a step's span and the metrics that they are."""
LEVELS = ("job", "attempts", "steps", "stages")
STATUS_ERROR = 2
"""opentelemetry/proto/trace/v1/trace.proto, Status.StatusCode."""


@dataclass(frozen=True)
class Span:
    """Something that took time."""

    path: tuple[str, ...]
    """Names from the job to the span itself, which identify it."""
    begin: float
    end: float
    """Unix times in seconds."""
    attributes: Mapping[str, str | float] = field(default_factory=dict)
    failed: bool = False

    @property
    def name(self) -> str:
        """Return what people read."""
        return self.path[-1]


def spans(run: ReportRun, now: float) -> list[Span]:
    """Return the spans of a run that has begun, each after the one that contains it; what runs lasts until now."""
    inner = [*_waits(run), *(span for attempt in run.attempts for span in _attempt(run, attempt, now))]
    if not inner:
        return []
    begin = min([*(span.begin for span in inner), *([run.created] if math.isfinite(run.created) else [])])
    job = Span((run.name,), begin, max(span.end for span in inner), {"state": run.state}, failed=run.state == "Failed")
    return [job, *inner]


def _waits(run: ReportRun) -> Iterator[Span]:
    begin = run.created
    for label, end in run.waits:
        if end > begin:
            yield Span((run.name, f"wait for {label}"), begin, end)
            begin = end


def _attempt(run: ReportRun, attempt: Attempt, now: float) -> Iterator[Span]:
    own = [record for record in run.records if record.attempt == attempt.number and record.trained]
    begin = attempt.begin if math.isfinite(attempt.begin) else _begin(own[0]) if own else math.nan
    if math.isnan(begin):
        return
    path = (run.name, f"attempt {attempt.number}")
    end = attempt.end if math.isfinite(attempt.end) else max([now, *(record.time for record in own[-1:])])
    told = {"outcome": attempt.outcome, "reason": attempt.reason, "message": attempt.message, "cluster": attempt.place}
    lost = attempt.outcome in ("Failed", "Lost")
    yield Span(path, begin, max(begin, end), {key: text for key, text in told.items() if text}, lost)
    if own and _begin(own[0]) > begin:
        yield Span((*path, "start"), begin, _begin(own[0]))
    for record in own:
        yield from _step(path, record)


def _begin(record: Record) -> float:
    return record.time - _validation(record) - step_seconds(record)


def _validation(record: Record) -> float:
    seconds = record.metrics.get(VALIDATION_SECONDS, 0.0)
    return seconds if math.isfinite(seconds) else 0.0


def _step(path: tuple[str, ...], record: Record) -> Iterator[Span]:
    own = (*path, f"step {record.step}")
    begin, end = _begin(record), record.time - _validation(record)
    known = {
        name: record.metrics[key]
        for name, key in ATTRIBUTES.items()
        if math.isfinite(record.metrics.get(key, math.nan))
    }
    yield Span(own, begin, end, known)
    for stage, label in STAGES:
        seconds = record.metrics.get(f"timing_s/{stage}", 0.0)
        if 0 < seconds < math.inf:
            yield Span((*own, label), begin, min(begin + seconds, end))
            begin = min(begin + seconds, end)
    if _validation(record):
        yield Span((*path, f"validation after step {record.step}"), end, record.time)


def perfetto(found: list[Span]) -> dict[str, Any]:
    """Return the trace as Perfetto and chrome://tracing read it: the Trace Event Format, in microseconds."""
    levels = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": level, "args": {"name": name}}
        for level, name in enumerate(LEVELS)
    ]
    name = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": found[0].name}}] if found else []
    events = [
        {
            "ph": "X",
            "name": span.name,
            "pid": 1,
            "tid": len(span.path) - 1,
            "ts": round(span.begin * 1e6),
            "dur": round(span.end * 1e6) - round(span.begin * 1e6),
            "args": dict(span.attributes),
        }
        for span in found
    ]
    return {"traceEvents": [*name, *levels, *events], "displayTimeUnit": "ms"}


def otlp(found: list[Span], namespace: str) -> dict[str, Any]:
    """Return the body of an OTLP/HTTP request in JSON (opentelemetry-proto 1.9, ExportTraceServiceRequest).

    Ids follow from names and the begin of the job, so that what is sent again is the same trace.
    """
    seed = f"{namespace}/{found[0].name}/{found[0].begin}"
    resource = {"service.name": "rljob", "k8s.namespace.name": namespace, "rljob.name": found[0].name}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": "rljob"}, "spans": [_otlp_span(span, seed) for span in found]}],
            }
        ]
    }


def _otlp_span(span: Span, seed: str) -> dict[str, Any]:
    return {
        "traceId": _id(seed, 32),
        "spanId": _id(f"{seed}{span.path}", 16),
        **({"parentSpanId": _id(f"{seed}{span.path[:-1]}", 16)} if len(span.path) > 1 else {}),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(round(span.begin * 1e9)),
        "endTimeUnixNano": str(round(span.end * 1e9)),
        "attributes": _attributes(span.attributes),
        "status": {"code": STATUS_ERROR} if span.failed else {},
    }


def _attributes(found: Mapping[str, str | float]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"doubleValue": value}}
        for key, value in found.items()
    ]


def _id(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
