"""The records of a real run, for tests of what is derived from them: records, RLJob and snapshot of a quickstart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rljob.cli.report.cluster import run_of, settings
from rljob.cli.report.run import Found, ReportRun, Setting
from rljob.launchers import LAUNCHER
from rljob.reading.records import Record, read_records
from rljob.render.accelerators import BUILT_IN
from rljob.render.configmap import read_snapshot
from rljob_runtime.contract import Sample, SampleSource, sample_file

FOLDER = Path(__file__).resolve().parent / "fixtures" / "quickstart"
STEPS = (FOLDER / "steps.jsonl").read_text()
NOW = 1795322000.0
"""A while after its end, as Unix time in seconds."""
DRAWN = ("reward", "timeline", "stages", "tps", "idle", "lengths", "entropy", "gradient", "usage")
"""Plots of its report."""


def manifest(name: str) -> dict[str, Any]:
    """Return the RLJob, or its snapshot."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def run() -> ReportRun:
    """Return the run as it was."""
    records = read_records(STEPS, 1)
    job = manifest("rljob")
    return run_of("quickstart", job, configuration(job), Found(records, "a volume"), [], NOW)


def restarted() -> ReportRun:
    """Return the run as if its node had been lost after step 20, with a checkpoint at step 15."""
    job, records = manifest("rljob"), read_records(STEPS, 1)
    (attempt,) = job["status"]["attempts"]
    begin, pause = records[0].time, 120.0
    lost = {
        "outcome": "Lost",
        "reason": "NodeLost",
        "message": "node <script>alert('node')</script> & its pods are gone",
        "lastStep": 20,
        "endTime": "2026-11-22T04:29:40Z",
        "deviceSeconds": 238,
        "productiveDeviceSeconds": 110,
    }
    again = {"number": 2, "clusterName": "quickstart-29ae8-2", "resumedFromStep": 15}
    times = {"submittedTime": "2026-11-22T04:30:20Z", "endTime": "2026-11-22T04:33:00Z"}
    job["status"]["attempts"] = [attempt | lost, attempt | again | times]
    job["status"]["usage"] = {"deviceSeconds": 601, "productiveDeviceSeconds": 242}
    first = records[:20]
    second = [Record(2, r.step, r.time + pause - (records[15].time - begin) / 2, r.metrics) for r in records[15:]]
    return run_of("quickstart", job, configuration(job), Found([*first, *second], "a volume"), [], NOW)


def configuration(job: Mapping[str, Any]) -> list[Setting]:
    """Return the fields that the run used."""
    return settings(job["spec"], read_snapshot(manifest("snapshot"), BUILT_IN), LAUNCHER, BUILT_IN)


def write_samples(attempt: Path) -> None:
    """Write answers of two steps and two validations into the folder of an attempt, as the trainer does."""
    made: dict[tuple[int, SampleSource], list[tuple[str, str, float | None]]] = {
        (1, SampleSource.ROLLOUT): [("1+1=", "<b>2</b>", 1.0), ("2+2=", "5\x1b[31m", 0.0), ("3+3=", "6" * 9000, 0.5)],
        (20, SampleSource.ROLLOUT): [("4+4=", "8", 1.0), ("5+5=", "11", None)],
        (1, SampleSource.VALIDATION): [("What is 7+7?", "15", 0.0)],
        (20, SampleSource.VALIDATION): [("What is 7+7?", "14", 1.0)],
    }
    for (step, source), rows in made.items():
        path = attempt / "samples" / sample_file(step, source)
        path.parent.mkdir(exist_ok=True)
        found = [
            Sample(step, source, prompt, answer, score, {"acc": score == 1.0}, tokens=len(answer))
            for prompt, answer, score in rows
        ]
        path.write_bytes(b"".join(each.to_json() + b"\n" for each in found) + b'{"cut off')
