"""The spool: a folder on the head pod through which trainer, launcher, exporter and preStop hook talk.

It is an emptyDir that outlives the driver. The launcher writes the beginning and the end of an attempt, the trainer
(pinned to the head, so it sees the same folder) what lies between; the exporter and the hook only read progress and
leave stop requests. Each small file is replaced atomically; `steps.jsonl` is appended, and a reader ignores a
line that was cut off.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_runtime.contract import ContractError, CoreBinding, Progress, SpoolFile, StopMode, StopRequest
from rljob_runtime.files import naming, write_atomically

TAIL_BYTES = 256 * 1024
"""A step's line is about 8 kB; this holds the last one even with many times verl's usual hundred keys."""

STRENGTH = {StopMode.AFTER_STEP: 0, StopMode.ABORT_ROLLOUT: 1, StopMode.IMMEDIATE: 2, StopMode.STALLED: 2}
"""A later request may hasten a stop, never slow it down."""


@dataclass(frozen=True)
class StepRecord:
    """One line of steps.jsonl."""

    step: int
    time: float
    """Unix seconds."""
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Spool:
    """The folder; every method opens, does one thing and closes."""

    root: Path

    def progress(self) -> Progress | None:
        """Read current.json; None before the first attempt."""
        try:
            progress = Progress.from_json((self.root / SpoolFile.CURRENT).read_bytes())
        except FileNotFoundError:
            return None
        try:
            seen = (self.attempt_folder(progress.attempt) / SpoolFile.BINDING).read_bytes()
            return dataclasses.replace(progress, core_binding=CoreBinding.from_json(seen))
        except (OSError, ContractError):
            return progress

    def write_progress(self, progress: Progress) -> None:
        """Replace current.json."""
        write_atomically(self.root / SpoolFile.CURRENT, progress.to_json())

    def update_progress(self, **changes: Any) -> Progress:  # noqa: ANN401 - fields of Progress
        """Change some fields of the current attempt and stamp the time."""
        current = self.progress()
        if current is None:
            raise ContractError(f"{self.root / SpoolFile.CURRENT}: missing; the launcher writes it before anyone else")
        changed = dataclasses.replace(current, observed_time=time.time(), **changes)
        self.write_progress(changed)
        return changed

    def write_binding(self, attempt: int, seen: CoreBinding) -> None:
        """Show what was seen of bound processes; a file of its own, since the trainer writes current.json meanwhile."""
        write_atomically(self.attempt_folder(attempt) / SpoolFile.BINDING, seen.to_json())

    def attempt_folder(self, attempt: int) -> Path:
        """Folder of one attempt's files."""
        return self.root / f"attempt-{attempt}"

    @property
    def rollout_targets_file(self) -> Path:
        """Where verl writes the addresses of vLLM's metrics; of the current attempt only."""
        return self.root / SpoolFile.ROLLOUT_TARGETS

    @property
    def queue_target_file(self) -> Path:
        """Where the trainer writes the address of TransferQueue's metrics; of the current attempt only."""
        return self.root / SpoolFile.QUEUE_TARGET

    def write_queue_target(self, address: str) -> None:
        """Show where TransferQueue's metrics are."""
        write_atomically(self.queue_target_file, address.encode())

    def append_step(self, attempt: int, record: StepRecord) -> None:
        """Add a step's line; one write, but on a volume that takes only a part of it."""
        path = self.attempt_folder(attempt) / SpoolFile.STEPS
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(
            {
                "step": record.step,
                "time": record.time,
                "metrics": {k: _json_number(v) for k, v in record.metrics.items()},
            }
        )
        with naming(path), path.open("ab", buffering=0) as file:
            rest = memoryview((b"\n" if _is_cut_off(path) else b"") + line.encode() + b"\n")
            while rest:
                rest = rest[file.write(rest) :]

    def last_step(self, attempt: int) -> StepRecord | None:
        """Read the newest complete line."""
        try:
            with (self.attempt_folder(attempt) / SpoolFile.STEPS).open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - TAIL_BYTES))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return None
        return next((record for line in reversed(lines) if (record := read_line(line)) is not None), None)

    def note_begun(self, attempt: int) -> None:
        """Show that the attempt's first step has begun: from now on a stop has something to save."""
        path = self.attempt_folder(attempt) / SpoolFile.BEGUN
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def has_begun(self, attempt: int) -> bool:
        """Whether the attempt's first step has begun."""
        return (self.attempt_folder(attempt) / SpoolFile.BEGUN).exists()

    def stop_request(self, attempt: int) -> StopRequest | None:
        """Read the stop request for an attempt; an unreadable one counts as the gentlest."""
        try:
            return StopRequest.from_json((self.attempt_folder(attempt) / SpoolFile.STOP).read_bytes())
        except FileNotFoundError:
            return None
        except ContractError:
            return StopRequest(attempt=attempt, mode=StopMode.AFTER_STEP)

    def request_stop(self, request: StopRequest) -> None:
        """Leave a stop request; a weaker one than what is there changes nothing."""
        earlier = self.stop_request(request.attempt)
        if earlier is None or STRENGTH[request.mode] > STRENGTH[earlier.mode]:
            write_atomically(self.attempt_folder(request.attempt) / SpoolFile.STOP, request.to_json())


def read_line(line: bytes) -> StepRecord | None:
    """Read a line of steps.jsonl; None if a crash cut it off."""
    try:
        raw = json.loads(line)
        metrics = {key: float(value) for key, value in raw["metrics"].items()}
        return StepRecord(step=int(raw["step"]), time=float(raw["time"]), metrics=metrics)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_cut_off(path: Path) -> bool:
    """Tell whether the last line lacks its end, as when a full volume took only a part of it."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read(1) not in (b"", b"\n")


def _json_number(value: float) -> float | str:
    """JSON has no NaN; `float()` reads these words back."""
    return value if math.isfinite(value) else str(value)
