"""`rljob report`: write the page of a run, or print the run."""

from __future__ import annotations

import dataclasses
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rljob.cli import output
from rljob.cli.errors import UsageError
from rljob.cli.report.page import page
from rljob.cli.report.run import EVALUATION_FIELDS, ReportRun
from rljob.cli.status import table
from rljob.reading.figures import ABSENT
from rljob.reading.records import number

HEADS = ("ATTEMPT", "OUTCOME", "REASON", "FROM STEP", "LAST STEP")
WIDE = ("HELD DEVICE SECONDS", "PRODUCTIVE DEVICE SECONDS", "PLACE")


def write_report(run: ReportRun, path: Path) -> str:
    """Write the page atomically and return a line that reports it."""
    text = page(run, datetime.now(UTC))
    write_page(path, text, "--output")
    return f"{path} ({len(text.encode()) / 1000:.0f} kB; steps: {len(run.steps)}, attempts: {len(run.attempts)})"


def run_page(run: ReportRun, form: str) -> str:
    """Return the attempts of a run as a table, or all that is known of it as data; `rljob steps` has the steps."""
    if form in output.DATA:
        return output.data_page([run_document(run)], form)
    wide = form == output.WIDE
    rows = [(*HEADS, *(WIDE if wide else ()))]
    for each in run.attempts:
        more = (number(each.held_seconds, 0), number(each.productive_seconds, 0), each.place or ABSENT)
        reached = (str(each.resumed_from), str(each.last_step))
        rows.append(
            (str(each.number), each.outcome or ABSENT, each.reason or ABSENT, *reached, *(more if wide else ()))
        )
    return table(rows) if run.attempts else f"no attempt is known ({run.source})"


def run_document(run: ReportRun) -> dict[str, Any]:
    """Return what is known of a run as data; what is unknown is null."""
    return {
        "namespace": run.namespace,
        "job": run.name,
        "state": run.state,
        "message": run.message,
        "source": run.source,
        "steps": len(run.steps),
        "heldDeviceSeconds": _finite(run.held_seconds),
        "productiveDeviceSeconds": _finite(run.productive_seconds),
        "attempts": [
            {
                "number": each.number,
                "begin": _finite(each.begin),
                "end": _finite(each.end),
                "outcome": each.outcome,
                "reason": each.reason,
                "message": each.message,
                "place": each.place,
                "resumedFromStep": each.resumed_from,
                "lastStep": each.last_step,
                "heldDeviceSeconds": _finite(each.held_seconds),
                "productiveDeviceSeconds": _finite(each.productive_seconds),
            }
            for each in run.attempts
        ],
        "settings": [dataclasses.asdict(each) for each in run.settings],
        "decisions": [dataclasses.asdict(each) for each in run.decisions],
        "evaluations": [dict(zip(EVALUATION_FIELDS, each, strict=True)) for each in run.evaluations],
        "notes": list(run.notes),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_page(path: Path, text: str, option: str) -> None:
    """Write a page atomically. Raise UsageError, which names the option of the path, if that is not possible."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(text.encode())
        scratch.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose another file with {option}") from error
