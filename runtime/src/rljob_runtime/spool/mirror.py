"""Copy an attempt's records to a shared volume (`log_path` of job.json), so that they outlive the pods.

The trainer writes the step records to `<log_path>/<cluster>/attempt-<n>/`. The launcher copies growing logs there: the
driver's log (into which Ray forwards the output of workers on all nodes) and the error logs of the head's own workers,
which Ray's forwarding truncates. After a failure it adds the ends of Ray's own logs on the head. Copies of worker logs
are limited in size; the driver's log is not. A volume that fails or hangs never ends the run: incomplete writes are
repeated, and only what the volume has not accepted by the end is missing. The first failure is logged.
"""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import JobConfig
from rljob_runtime.files import run_with_timeout
from rljob_runtime.spool.spool import Spool, StepRecord
from rljob_runtime.stacks.gather import error_logs
from rljob_runtime.stacks.register import run_name

COPY_EVERY_SECONDS = 5.0
PENDING_STEPS = 256
"""Maximum number of records, about 8 kB each, that wait for the volume. Further records are not copied."""
PENDING_SAMPLES = 16
"""Number of waiting records from which samples, usually 50 kB and at most 15 MB of a step, are not copied."""
DRAIN_SECONDS = 5.0
"""Time to wait for pending records at the end of the training."""
CHUNK_BYTES = 1 << 20
DRIVER_LOG = "driver.log"
WORKERS = "workers"
"""Folder for the workers' error logs."""
WORKER_BYTES = 16 << 20
"""Limit for one worker's log."""
MAX_WORKERS = 64
"""Maximum number of files. About ten processes run on the head: task runner, queue controller and others."""
RAY_LOGS = ("raylet.out", "raylet.err", "gcs_server.out", "gcs_server.err")
"""Ray's own logs, in the folder of the worker logs (ray/_private/node.py, 2.60)."""
RAY_BYTES = 256 * 1024
TRUNCATED = b"\n--- rljob: the rest of this log is not copied ---\n"


@dataclass
class Copy:
    """A log and its copy. The size of the copy shows how much is copied, because a write may fail half-way."""

    source: Path
    target: Path
    limit: int | None = None
    before: int | None = None
    """Bytes in the target at the start, for example from an earlier run with the same name. They are kept."""

    def grow(self) -> None:
        """Append the missing part of the log to the copy."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with self.source.open("rb") as source, self.target.open("ab") as copy:
            size = copy.tell()
            self.before = size if self.before is None else min(self.before, size)
            copied = source.seek(size - self.before)
            room = sys.maxsize if self.limit is None else self.limit - copied
            while room >= 0 and (chunk := source.read(CHUNK_BYTES)):
                copy.write(chunk if len(chunk) <= room else chunk[:room] + TRUNCATED)
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
        """Acquired by the first failure, which is logged."""
        self._pending: queue.Queue[Callable[[Spool], None]] = queue.Queue(PENDING_STEPS)
        self._writer: threading.Thread | None = None
        self._over = threading.Event()
        """Set at the end of the training. Records that the volume does not accept after that are dropped."""

    @property
    def folder(self) -> Path | None:
        """The attempt's folder on the volume; None without a log path."""
        return self._records.attempt_folder(self._attempt) if self._records else None

    def append_step(self, record: StepRecord) -> None:
        """Queue a step's record for copying, in order. The training never waits for a hanging volume."""
        self._write_later(lambda volume: volume.append_step(self._attempt, record), f"step {record.step}")

    def write_samples(self, name: str, data: bytes) -> None:
        """Queue the samples of a step likewise, unless so many records wait already that memory would fill up."""
        if self._pending.qsize() < PENDING_SAMPLES:
            self._write_later(lambda volume: volume.write_samples(self._attempt, name, data), name)

    def _write_later(self, write: Callable[[Spool], None], what: str) -> None:
        if self._records is None:
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_pending, args=(self._records,), daemon=True)
            self._writer.start()
        try:
            self._pending.put_nowait(write)
        except queue.Full:
            self._log(TimeoutError(f"{what} is not copied: {PENDING_STEPS} records already wait for the volume"))

    def drain(self) -> None:
        """Wait, with a limit, until all records are copied. Otherwise the last records are lost at exit."""
        self._over.set()
        if not run_with_timeout(DRAIN_SECONDS, self._pending.join):
            self._log(TimeoutError(f"the volume did not respond within {DRAIN_SECONDS:g} s"))

    def _write_pending(self, records: Spool) -> None:
        while True:
            write, last_try = self._pending.get(), False
            while not self._is_written(records, write) and not last_try:
                last_try = self._over.wait(COPY_EVERY_SECONDS)
            self._pending.task_done()

    def _is_written(self, records: Spool, write: Callable[[Spool], None]) -> bool:
        try:
            write(records)
        except OSError as error:
            self._log(error)
            return False
        return True

    def follow(self, log: Path | None) -> None:
        """Start copying the driver's log and the logs of the run's workers on this node."""
        if self._records is None:
            return

        def loop() -> None:
            while True:
                time.sleep(COPY_EVERY_SECONDS)
                self.copy(log)

        threading.Thread(target=loop, daemon=True).start()

    def copy(self, log: Path | None) -> None:
        """Copy what was added to the logs."""
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
                    self._log(error)

    def finish(self, log: Path | None, *, failed: bool) -> None:
        """Complete the copies. After a failure, also keep the ends of Ray's own logs."""
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
                self._log(error)

    def _log(self, error: OSError) -> None:
        if self._first_failure.acquire(blocking=False):
            with contextlib.suppress(OSError):  # from a full disk; copying continues
                print(f"rljob: records are not copied to the log volume: {error}", file=sys.stderr, flush=True)  # noqa: T201


def own_log() -> Path | None:
    """Return the file that this process prints to. Ray's job supervisor creates one for each job."""
    try:
        if stat.S_ISREG(os.fstat(1).st_mode):
            return Path("/proc/self/fd/1").readlink()
    except OSError:
        pass
    return None
