"""Gather a report's run from folders: of `rljob run --local`, or a job's log volume that is mounted on this machine."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path

from rljob.cli.errors import UsageError
from rljob.cli.report.run import Attempt, Found, ReportRun, Setting, Wanted, recorded_attempts
from rljob.reading.records import Record, read_records
from rljob.reading.samples import ALL, Recorded, files, parse_lines
from rljob_runtime.contract import ContractError, ExitCode, JobConfig, Phase, Progress, SpoolFile

ATTEMPT = "attempt-"
RECORD_BYTES = 256 << 20
"""Most bytes of a file: 100,000 steps with 60 metrics have half of that."""


def read_record(path: Path) -> str:
    """Return a file that the author of a job may have written: neither a pipe nor a link, and no more than a bound."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123 - flags
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is no regular file; remove it from the records")
            text = file.read(RECORD_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; correct it, or remove it from the records"
        ) from error
    if len(text) > RECORD_BYTES:
        raise UsageError(f"{path} has more than {RECORD_BYTES >> 20} MiB; remove it from the records")
    return text.decode(errors="replace")


def read_folders(root: Path, pattern: str) -> list[Record]:
    """Read the records of every attempt in the matching folders below root."""
    records: list[Record] = []
    for path in sorted(root.glob(f"{pattern}{ATTEMPT}*/{SpoolFile.STEPS.value}")):
        number = path.parent.name.removeprefix(ATTEMPT)
        if number.isdigit():
            records += read_records(read_record(path), int(number))
    return records


def read_folder(root: Path, pattern: str, wanted: Wanted) -> Found:
    """Read what is wanted of every attempt in the matching folders below root."""
    answers: list[Recorded] = []
    if wanted.samples is not None:
        found = files(str(path.relative_to(root)) for path in root.glob(f"{pattern}{ALL}"))
        for each in wanted.samples(found):
            answers += parse_lines(read_record(root / each.path), each.attempt)
    return Found(read_folders(root, pattern) if wanted.steps else [], str(root), answers)


def local_run(root: Path, wanted: Wanted) -> ReportRun:
    """Gather the records of a local run. Raise UsageError if there are none."""
    found = read_folder(root / "spool", "", wanted)
    records = found.records
    try:
        config = JobConfig.from_json((root / "job.json").read_bytes())
    except (OSError, ContractError) as error:
        raise UsageError(
            f"{root} is not a folder of `rljob run --local`: {error}; choose one with --workdir"
        ) from error
    progress = _progress(root / "spool" / SpoolFile.CURRENT)
    attempts = recorded_attempts(records, config.devices)
    if progress is not None:
        attempts = _with_progress(attempts, progress, config.devices)
    return ReportRun(
        namespace=config.namespace,
        name=config.name,
        state=attempts[-1].outcome if attempts else "Unknown",
        message=attempts[-1].message if attempts else "",
        source=str(root / "spool"),
        records=records,
        samples=found.samples,
        attempts=attempts,
        created=attempts[0].begin if attempts else math.nan,
        devices=config.devices,
        held_seconds=math.fsum(a.held_seconds for a in attempts),
        productive_seconds=math.fsum(a.productive_seconds for a in attempts if math.isfinite(a.productive_seconds)),
        settings=[Setting(key, _text(value), "job.json") for key, value in sorted(config.overrides.items())],
        notes=[
            *(progress.notes if progress is not None else ()),
            "A local run records the times of its last attempt only; earlier attempts are shown from their first step.",
        ],
    )


def _progress(path: Path) -> Progress | None:
    try:
        return Progress.from_json(path.read_bytes())
    except (OSError, ContractError):
        return None


def _with_progress(attempts: list[Attempt], progress: Progress, devices: int) -> list[Attempt]:
    """Add what the launcher reported about the last attempt: its start and how it ended."""
    known = {attempt.number: attempt for attempt in attempts}
    begin = progress.start_time or math.nan
    found = known.get(progress.attempt, Attempt(progress.attempt, begin, progress.observed_time))
    begin = progress.start_time or found.begin
    outcome, ended = progress.outcome, progress.phase is Phase.ENDED
    known[progress.attempt] = replace(
        found,
        begin=begin,
        end=progress.observed_time if ended else math.nan,
        outcome=_word(outcome.exit_code) if outcome is not None else "running",
        reason=outcome.reason if outcome is not None else "",
        message=outcome.message if outcome is not None else "",
        resumed_from=progress.resumed_from_step or 0,
        held_seconds=(progress.observed_time - begin) * devices,
    )
    return [known[number] for number in sorted(known)]


def _word(exit_code: int) -> str:
    words: dict[int, str] = {ExitCode.DONE: "Succeeded", ExitCode.STOPPED: "Stopped"}
    return words.get(exit_code, "Failed")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
