"""The spool: a folder on the head pod that trainer, launcher, exporter and preStop hook use to communicate.

It is an emptyDir that outlives the driver. The launcher writes the start and the end of an attempt; the trainer, which
is pinned to the head, writes everything in between. Exporter and hook read progress and leave stop requests. Small
files are replaced atomically. `steps.jsonl` is appended to, and readers ignore an incomplete last line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_runtime.contract import (
    ContractError,
    CoreBinding,
    Phase,
    Progress,
    SpoolFile,
    StartProgress,
    StopMode,
    StopRequest,
    parse_foreign_json,
)
from rljob_runtime.files import file_named_in_errors, write_atomically

TAIL_BYTES = 256 * 1024
"""A step's line has about 8 kB; this fits the last line even with many times verl's usual hundred metrics."""

ROLLOUT_TARGETS_JOB = "rollout"
"""`job_name` of the replicas in verl's scrape file (workers/rollout/utils.py, update_prometheus_config; 0.9.1)."""
STRENGTH = {StopMode.AFTER_STEP: 0, StopMode.ABORT_ROLLOUT: 1, StopMode.IMMEDIATE: 2, StopMode.STALLED: 2}
"""A later request may speed a stop up but never slow it down."""


@dataclass(frozen=True)
class StepRecord:
    """One line of steps.jsonl."""

    step: int
    time: float
    """Unix time."""
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Spool:
    """Access to the folder. Every method opens files, does one thing and closes them."""

    root: Path

    def progress(self) -> Progress | None:
        """Read current.json; return None before the first attempt."""
        try:
            progress = Progress.from_json((self.root / SpoolFile.CURRENT).read_bytes())
        except FileNotFoundError:
            return None
        folder = self.attempt_folder(progress.attempt)
        with contextlib.suppress(OSError, ContractError):
            seen = CoreBinding.from_json((folder / SpoolFile.BINDING).read_bytes())
            progress = dataclasses.replace(progress, core_binding=seen)
        if progress.phase is Phase.STARTING:
            progress = dataclasses.replace(progress, start=self.start(progress.attempt))
        return progress

    def start(self, attempt: int) -> StartProgress | None:
        """Return the stage of a start; None if it has reported none that can be read."""
        with contextlib.suppress(OSError, ContractError):
            return StartProgress.from_json((self.attempt_folder(attempt) / SpoolFile.START).read_bytes())
        return None

    def write_progress(self, progress: Progress) -> None:
        """Replace current.json."""
        write_atomically(self.root / SpoolFile.CURRENT, progress.to_json())

    def update_progress(self, **changes: Any) -> Progress:  # noqa: ANN401 - fields of Progress
        """Change fields of the current attempt's progress and set its time."""
        current = self.progress()
        if current is None:
            raise ContractError(f"{self.root / SpoolFile.CURRENT}: missing; the launcher must write it first")
        changed = dataclasses.replace(current, observed_time=time.time(), start=None, **changes)
        self.write_progress(changed)
        return changed

    def write_binding(self, attempt: int, seen: CoreBinding) -> None:
        """Write the observed binding to its own file, because the trainer writes current.json concurrently."""
        write_atomically(self.attempt_folder(attempt) / SpoolFile.BINDING, seen.to_json())

    def write_start(self, attempt: int, seen: StartProgress) -> None:
        """Write the stage of a start to its own file, because several threads report it."""
        write_atomically(self.attempt_folder(attempt) / SpoolFile.START, seen.to_json())

    def attempt_folder(self, attempt: int) -> Path:
        """Return the folder of one attempt."""
        return self.root / f"attempt-{attempt}"

    def open_attempt(self, attempt: int) -> None:
        """Create the attempt's folder, writable for launcher and exporter: their images have different users."""
        folder = self.attempt_folder(attempt)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # the other one has created it and opened it
            folder.chmod(0o777)

    @property
    def rollout_targets_file(self) -> Path:
        """Scrape file, first written by verl, with the addresses of vLLM's metrics; only for the current attempt."""
        return self.root / SpoolFile.ROLLOUT_TARGETS

    def write_rollout_targets(self, addresses: Sequence[str]) -> None:
        """Replace the addresses in that file, in verl's form."""
        jobs = [{"job_name": ROLLOUT_TARGETS_JOB, "static_configs": [{"targets": list(addresses)}]}]
        # JSON is YAML.
        write_atomically(self.rollout_targets_file, json.dumps({"scrape_configs": jobs}).encode())

    @property
    def queue_target_file(self) -> Path:
        """File into which the trainer writes the address of TransferQueue's metrics, only for the current attempt."""
        return self.root / SpoolFile.QUEUE_TARGET

    def write_queue_target(self, address: str) -> None:
        """Record the address of TransferQueue's metrics."""
        write_atomically(self.queue_target_file, address.encode())

    def append_step(self, attempt: int, record: StepRecord) -> None:
        """Append a step's line in one write, unless the volume accepts only a part of it."""
        path = self.attempt_folder(attempt) / SpoolFile.STEPS
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(
            {
                "step": record.step,
                "time": record.time,
                "metrics": {k: _json_number(v) for k, v in record.metrics.items()},
            }
        )
        with file_named_in_errors(path), path.open("ab", buffering=0) as file:
            rest = memoryview((b"\n" if _is_cut_off(path) else b"") + line.encode() + b"\n")
            while rest:
                rest = rest[file.write(rest) :]

    def write_lengths(self, attempt: int, lines: Iterable[str]) -> None:
        """Replace the lengths of a step's responses. They are for planning only, so a full volume does not matter."""
        with contextlib.suppress(OSError):
            write_atomically(self.attempt_folder(attempt) / SpoolFile.LENGTHS, "".join(lines).encode())

    def write_samples(self, attempt: int, name: str, data: bytes, keep: int | None = None) -> None:
        """Write the samples of a step; with `keep`, delete all but so many newest files."""
        folder = self.attempt_folder(attempt) / SpoolFile.SAMPLES
        write_atomically(folder / name, data)
        if keep is not None:
            for old in sorted(folder.glob("*.jsonl"))[:-keep]:
                old.unlink(missing_ok=True)

    def last_step(self, attempt: int) -> StepRecord | None:
        """Return the newest complete line."""
        try:
            with (self.attempt_folder(attempt) / SpoolFile.STEPS).open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - TAIL_BYTES))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return None
        return next((record for line in reversed(lines) if (record := read_line(line)) is not None), None)

    def note_begun(self, attempt: int) -> None:
        """Record that the attempt's first step has started: from now on, a stop has something to save."""
        path = self.attempt_folder(attempt) / SpoolFile.BEGUN
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def has_begun(self, attempt: int) -> bool:
        """Return whether the attempt's first step has started."""
        return (self.attempt_folder(attempt) / SpoolFile.BEGUN).exists()

    def stop_request(self, attempt: int) -> StopRequest | None:
        """Return the stop request for an attempt. An unreadable one counts as AfterStep."""
        try:
            return StopRequest.from_json((self.attempt_folder(attempt) / SpoolFile.STOP).read_bytes())
        except FileNotFoundError:
            return None
        except ContractError:
            return StopRequest(attempt=attempt, mode=StopMode.AFTER_STEP)

    def request_stop(self, request: StopRequest) -> None:
        """Write a stop request, unless there is a more urgent one."""
        earlier = self.stop_request(request.attempt)
        if earlier is None or STRENGTH[request.mode] > STRENGTH[earlier.mode]:
            self.open_attempt(request.attempt)
            write_atomically(self.attempt_folder(request.attempt) / SpoolFile.STOP, request.to_json())


def read_line(line: bytes) -> StepRecord | None:
    """Parse a line of steps.jsonl; return None if it is incomplete after a crash."""
    try:
        raw = parse_foreign_json(line)
        metrics = {key: float(value) for key, value in raw["metrics"].items()}
        return StepRecord(step=int(raw["step"]), time=float(raw["time"]), metrics=metrics)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_cut_off(path: Path) -> bool:
    """Return whether the last line is incomplete, as after a write to a full volume."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read(1) not in (b"", b"\n")


def _json_number(value: float) -> float | str:
    """Return NaN and infinities as strings, which JSON lacks and `float()` parses."""
    return value if math.isfinite(value) else str(value)
