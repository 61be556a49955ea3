"""Copies of an attempt's records on a shared volume, so that they outlive the pods (`log_path` of job.json).

`<log_path>/<cluster>/attempt-<n>/` gets the step records, written by the trainer, and the driver's log, copied by the
launcher as it grows. A volume that fails costs the copy, never the run: the first failure is told, later ones are not.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

from rljob_runtime.contract import JobConfig
from rljob_runtime.spool import Spool, StepRecord

COPY_EVERY_SECONDS = 5.0
CHUNK_BYTES = 1 << 20
DRIVER_LOG = "driver.log"


class Mirror:
    """One attempt's folder on the volume."""

    def __init__(self, job: JobConfig, attempt: int) -> None:
        root = Path(job.log_path) / job.cluster_name if job.log_path else None
        self._attempt = attempt
        self._records = Spool(root) if root else None
        self._copied = 0
        self._lock = threading.Lock()
        self._failed = False

    @property
    def folder(self) -> Path | None:
        """The attempt's folder on the volume; None without a log path."""
        return self._records.attempt_folder(self._attempt) if self._records else None

    def append_step(self, record: StepRecord) -> None:
        """Copy a step's record."""
        if self._records is None:
            return
        try:
            self._records.append_step(self._attempt, record)
        except OSError as error:
            self._tell(error)

    def follow(self, log: Path | None) -> None:
        """Copy the driver's log from now on."""
        if self._records is None or log is None:
            return

        def loop() -> None:
            while True:
                time.sleep(COPY_EVERY_SECONDS)
                self.copy(log)

        threading.Thread(target=loop, daemon=True).start()

    def copy(self, log: Path | None) -> None:
        """Copy what the driver's log has grown by."""
        if self._records is None or log is None:
            return
        try:
            with self._lock:
                target = self._records.attempt_folder(self._attempt) / DRIVER_LOG
                target.parent.mkdir(parents=True, exist_ok=True)
                with log.open("rb") as source, target.open("ab") as copy:
                    source.seek(self._copied)
                    while chunk := source.read(CHUNK_BYTES):
                        copy.write(chunk)
                        self._copied += len(chunk)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            print(f"rljob: records are not copied to the log volume: {error}", file=sys.stderr, flush=True)  # noqa: T201


def own_log() -> Path | None:
    """Give the file that this process prints into; Ray's job supervisor makes one for each job."""
    try:
        if stat.S_ISREG(os.fstat(1).st_mode):
            return Path("/proc/self/fd/1").readlink()
    except OSError:
        pass
    return None
