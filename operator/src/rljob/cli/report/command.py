"""`rljob report`: gather a run and write its page."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from rljob.cli.errors import UsageError
from rljob.cli.report.page import page
from rljob.cli.report.run import ReportRun


def write_report(run: ReportRun, path: Path) -> str:
    """Write the page atomically and return a line that reports it."""
    text = page(run, datetime.now(UTC))
    write_page(path, text, "--output")
    return f"{path} ({len(text.encode()) / 1000:.0f} kB; steps: {len(run.steps)}, attempts: {len(run.attempts)})"


def write_page(path: Path, text: str, option: str) -> None:
    """Write a page atomically. Raise UsageError, which names the option of the path, if that is not possible."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(text.encode())
        scratch.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose another file with {option}") from error
