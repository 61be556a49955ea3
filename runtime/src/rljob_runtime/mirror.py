"""Copies of an attempt's records on a shared volume, so that they outlive the pods (`log_path` of job.json).

`<log_path>/<cluster>/attempt-<n>/` gets the step records, written by the trainer, and from the launcher, as they grow,
the driver's log (into which Ray forwards what workers of all nodes print) and the error logs of the head's own workers,
which Ray's forwarding shortens. After a failure come the ends of Ray's own logs on the head. Copies of workers' logs
are bounded, the driver's is not. A volume that fails or hangs never costs the run, and the copy only what it has not
taken in the end: what a write has left out is written again. The first failure is told.
"""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import JobConfig
from rljob_runtime.files import in_time
from rljob_runtime.spool import Spool, StepRecord
from rljob_runtime.stacks.gather import error_logs
from rljob_runtime.stacks.register import run_name

COPY_EVERY_SECONDS = 5.0
PENDING_STEPS = 256
"""Records that may wait for the volume, some 8 kB each; what comes beyond them is not copied."""
DRAIN_SECONDS = 5.0
"""At the end of the training, for what still waits."""
CHUNK_BYTES = 1 << 20
DRIVER_LOG = "driver.log"
WORKERS = "workers"
"""Folder of the workers' error logs, each under its own name."""
WORKER_BYTES = 16 << 20
"""Of one worker's log."""
MAX_WORKERS = 64
"""Files; the head holds the task runner, the queue's controller and the like, some ten processes."""
RAY_LOGS = ("raylet.out", "raylet.err", "gcs_server.out", "gcs_server.err")
"""Ray's own, beside those of the workers (ray/_private/node.py, 2.60)."""
RAY_BYTES = 256 * 1024
LEFT_OUT = b"\n--- rljob: the rest is left out ---\n"


@dataclass
class Copy:
    """A log and its copy, whose own size tells how much is copied: a write may fail half-way."""

    source: Path
    target: Path
    limit: int | None = None
    before: int | None = None
    """Bytes that the target held before, as of an earlier run under the same name; they stay."""

    def grow(self) -> None:
        """Copy what the copy lacks of the log."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with self.source.open("rb") as source, self.target.open("ab") as copy:
            size = copy.tell()
            self.before = size if self.before is None else min(self.before, size)
            copied = source.seek(size - self.before)
            room = sys.maxsize if self.limit is None else self.limit - copied
            while room >= 0 and (chunk := source.read(CHUNK_BYTES)):
                copy.write(chunk if len(chunk) <= room else chunk[:room] + LEFT_OUT)
                room -= len(chunk)


class Mirror:
    """One attempt's folder on the volume."""

    def __init__(self, job: JobConfig, attempt: int) -> None:
        root = Path(job.log_path) / job.cluster_name if job.log_path else None
        self._attempt = attempt
        self._run = run_name(job, attempt)
        self._records = Spool(root) if root else None
        self._copies: dict[Path, Copy] = {}
        self._lock = threading.Lock()
        self._first_failure = threading.Lock()
        """Taken by the first failure, which is told."""
        self._pending: queue.Queue[StepRecord] = queue.Queue(PENDING_STEPS)
        self._writer: threading.Thread | None = None
        self._over = threading.Event()
        """Set at the end of the training: what the volume still does not take then is left out."""

    @property
    def folder(self) -> Path | None:
        """The attempt's folder on the volume; None without a log path."""
        return self._records.attempt_folder(self._attempt) if self._records else None

    def append_step(self, record: StepRecord) -> None:
        """Have a step's record copied, in order, and go on: the training must not wait for a volume that hangs."""
        if self._records is None:
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_steps, args=(self._records,), daemon=True)
            self._writer.start()
        try:
            self._pending.put_nowait(record)
        except queue.Full:
            self._tell(TimeoutError(f"step {record.step} is left out, the volume has not answered for long"))

    def drain(self) -> None:
        """Wait, bounded, until the records are copied; without it a process that ends takes the last ones with it."""
        self._over.set()
        if not in_time(DRAIN_SECONDS, self._pending.join):
            self._tell(TimeoutError(f"the volume did not answer within {DRAIN_SECONDS:g} s"))

    def _write_steps(self, records: Spool) -> None:
        while True:
            record, last_try = self._pending.get(), False
            while not self._is_written(records, record) and not last_try:
                last_try = self._over.wait(COPY_EVERY_SECONDS)
            self._pending.task_done()

    def _is_written(self, records: Spool, record: StepRecord) -> bool:
        try:
            records.append_step(self._attempt, record)
        except OSError as error:
            self._tell(error)
            return False
        return True

    def follow(self, log: Path | None) -> None:
        """Copy the driver's log, and those of the run's workers on this node, from now on."""
        if self._records is None:
            return

        def loop() -> None:
            while True:
                time.sleep(COPY_EVERY_SECONDS)
                self.copy(log)

        threading.Thread(target=loop, daemon=True).start()

    def copy(self, log: Path | None) -> None:
        """Copy what the logs have grown by."""
        if self.folder is None:
            return
        with self._lock:
            if log is not None:
                self._copies.setdefault(log, Copy(log, self.folder / DRIVER_LOG))
            for path in error_logs(self._run):
                if path not in self._copies and len(self._copies) <= MAX_WORKERS:
                    self._copies[path] = Copy(path, self.folder / WORKERS / path.name, WORKER_BYTES)
            for copy in self._copies.values():
                try:
                    copy.grow()
                except OSError as error:
                    self._tell(error)

    def finish(self, log: Path | None, *, failed: bool) -> None:
        """Bring the copies up to date; after a failure keep the ends of Ray's own logs beside them."""
        self.copy(log)
        if self.folder is None or not failed:
            return
        for source in sorted({path.parent / name for path in self._copies for name in RAY_LOGS}):
            try:
                with source.open("rb") as file:
                    file.seek(max(0, source.stat().st_size - RAY_BYTES))
                    (self.folder / source.name).write_bytes(file.read(RAY_BYTES))
            except FileNotFoundError:
                continue
            except OSError as error:
                self._tell(error)

    def _tell(self, error: OSError) -> None:
        if self._first_failure.acquire(blocking=False):
            with contextlib.suppress(OSError):  # of a disk that is full: the copying goes on
                print(f"rljob: records are not copied to the log volume: {error}", file=sys.stderr, flush=True)  # noqa: T201


def own_log() -> Path | None:
    """Give the file that this process prints into; Ray's job supervisor makes one for each job."""
    try:
        if stat.S_ISREG(os.fstat(1).st_mode):
            return Path("/proc/self/fd/1").readlink()
    except OSError:
        pass
    return None
