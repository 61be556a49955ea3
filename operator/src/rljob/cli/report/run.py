"""The data of a report, independent of its source: step records, attempts, usage, configuration. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rljob.reading.records import Record, kept
from rljob.reading.samples import Recorded, SampleFile
from rljob_runtime.contract import StepMetric


@dataclass(frozen=True)
class Attempt:
    """One run of the driver."""

    number: int
    begin: float
    """Unix time in seconds; NaN if unknown."""
    end: float
    """Unix time in seconds; NaN while the attempt runs, or if unknown."""
    outcome: str = "running"
    reason: str = ""
    message: str = ""
    place: str = ""
    """RayCluster or folder."""
    resumed_from: int = 0
    last_step: int = 0
    held_seconds: float = math.nan
    """Device-seconds, including the start as far as it is known."""
    productive_seconds: float = math.nan
    """Device-seconds of steps that no later attempt repeated."""
    recovery: tuple[tuple[str, int], ...] = ()
    """Seconds from the last step before it to its first one, by cause."""


@dataclass(frozen=True)
class Setting:
    """A field of the configuration."""

    field: str
    value: str
    source: str
    """Who set the value: the job or a recipe; empty for a default."""


@dataclass(frozen=True)
class Wanted:
    """What to read of a run."""

    steps: bool = True
    samples: Callable[[list[SampleFile]], list[SampleFile]] | None = None
    """Chooses the samples to read; None reads none."""


@dataclass(frozen=True)
class Found:
    """What was read of a run."""

    records: Sequence[Record]
    source: str
    """Where it was read, for people."""
    samples: Sequence[Recorded] = ()


EVALUATION_FIELDS = ("step", "state", "score", "name", "message")
"""Fields of status.evaluation.steps."""


@dataclass(frozen=True)
class ReportRun:
    """One job, as far as it is known."""

    namespace: str
    name: str
    state: str
    message: str
    source: str
    """Source of the records, for people."""
    records: Sequence[Record]
    attempts: Sequence[Attempt]
    created: float = math.nan
    """When the job was created."""
    waits: Sequence[tuple[str, float]] = ()
    """What the job waited for before its first attempt, in that order, and when each ended (Unix seconds)."""
    devices: int = 0
    held_seconds: float = math.nan
    """Device-seconds of all attempts, as far as they are known."""
    productive_seconds: float = math.nan
    """Part of the device-seconds spent on steps that no later attempt repeated."""
    device_time: str = ""
    """Shares of the device-seconds of ended attempts by use."""
    settings: Sequence[Setting] = ()
    decisions: Sequence[Setting] = ()
    samples: Sequence[Recorded] = ()
    """Recorded answers, by step."""
    evaluations: Sequence[tuple[str, ...]] = ()
    """Of checkpoints, by jobs of their own: the texts of EVALUATION_FIELDS."""
    notes: Sequence[str] = ()
    """What the run reported although it continued; what the report lacks, and why."""

    @property
    def steps(self) -> list[Record]:
        """The steps that produced the model."""
        return kept(self.records)


WAITS = (("Initialized", "initializers"), ("Admitted", "queue"), ("ClusterReady", "pods"))
"""Conditions of a status that a job meets one after another before its first attempt, and what each waits for."""


def status_waits(status: Mapping[str, Any], first: float) -> list[tuple[str, float]]:
    """Return what a job waited for until its first attempt began; what a later attempt waited for is not included."""
    known = {entry["type"]: entry for entry in status.get("conditions") or () if entry.get("status") == "True"}
    ends = ((label, seconds_of(known[kind].get("lastTransitionTime"))) for kind, label in WAITS if kind in known)
    return [(label, end) for label, end in ends if not end > first + 1]


def seconds_of(text: object) -> float:
    """Convert a time of the API to Unix seconds; NaN if there is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return math.nan


def status_attempts(status: Mapping[str, Any], now: float) -> list[Attempt]:
    """Read the attempts of an RLJob's status; the usage of a running attempt is computed up to now."""
    devices = float((status.get("resolved") or {}).get("devices") or math.nan)
    return [_attempt(raw, devices, now) for raw in status.get("attempts") or ()]


def status_evaluations(status: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Read the evaluations of an RLJob's status."""
    found = (status.get("evaluation") or {}).get("steps") or ()
    return [tuple(str(entry.get(name, "")) for name in EVALUATION_FIELDS) for entry in found]


def _attempt(raw: Mapping[str, Any], devices: float, now: float) -> Attempt:
    begin, end = seconds_of(raw.get("submittedTime")), seconds_of(raw.get("endTime"))
    held = float(raw.get("deviceSeconds", math.nan))
    if math.isnan(end):
        # For a running attempt, the status reports what it held before its submission.
        held = (now - begin) * devices + (0.0 if math.isnan(held) else held)
    return Attempt(
        number=int(raw["number"]),
        begin=begin,
        end=end,
        outcome=str(raw.get("outcome") or "running"),
        reason=str(raw.get("reason") or ""),
        message=str(raw.get("message") or ""),
        place=str(raw.get("clusterName") or ""),
        resumed_from=int(raw.get("resumedFromStep") or 0),
        last_step=int(raw.get("lastStep") or 0),
        held_seconds=held,
        productive_seconds=float(raw.get("productiveDeviceSeconds", math.nan)),
        recovery=tuple((str(part["cause"]), int(part["seconds"])) for part in raw.get("recovery") or ()),
    )


def recorded_attempts(records: Sequence[Record], devices: int = 0) -> list[Attempt]:
    """Derive attempts from the records alone: from the start of the first step to the end of the last.

    How they ended and the time before the first step are unknown.
    """
    count = float(devices or math.nan)
    final = kept(records)
    attempts = []
    for number in sorted({record.attempt for record in records}):
        own = [record for record in records if record.attempt == number and record.trained]
        if not own:
            continue
        begin, end = own[0].time - step_seconds(own[0]), own[-1].time
        productive = math.fsum(step_seconds(record) for record in final if record.attempt == number)
        attempts.append(
            Attempt(
                number=number,
                begin=begin,
                end=end,
                outcome="",
                resumed_from=own[0].step - 1,
                last_step=own[-1].step,
                held_seconds=(end - begin) * count,
                productive_seconds=productive * count,
            )
        )
    return attempts


def step_seconds(record: Record) -> float:
    """Return the duration of a step by the trainer's clock; 0 if it was not measured."""
    seconds = record.metrics.get(StepMetric.STEP_SECONDS, 0.0)
    return seconds if math.isfinite(seconds) else 0.0
