"""`python -m rljob_runtime stop`: the preStop hook of head and workers. Asks the trainer to save and stop, and waits.

With the hook, a run can save whenever a pod is deleted: by the operator, a drain, or a preemption by another
controller. The head's hook uses the spool. A run cannot continue without one of its workers, so a worker's hook sends
the same request to the head's exporter and keeps its pod, with its part of the model, until the head reports the end
of the run. Without a run, neither waits: the pods of a finished job are deleted without delay.

The kubelet sends SIGTERM once, after the hook. The kernel drops it if process 1 has no handler yet, so a pod that is
deleted while it starts would run until SIGKILL. The hook therefore returns only when process 1 handles SIGTERM.
"""

from __future__ import annotations

import dataclasses
import http.client
import re
import signal
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rljob_runtime.contract import ContractError, Phase, Port, Progress, SpoolFile, StopMode, StopRequest
from rljob_runtime.ray_cluster import launcher_lives
from rljob_runtime.spool.spool import Spool

HEAD_NAME = "FQ_RAY_IP"
"""Variable of worker pods with the name of the head's Service (KubeRay v1.6.2, controllers/ray/utils/constant.go)."""
OVER = (Phase.IDLE, Phase.ENDED)
HEAD_POLL_SECONDS = 0.5
WORKER_POLL_SECONDS = 2.0
"""Up to a thousand workers poll one head."""
LAST_SECONDS = 5.0
"""Time for the launcher to report its end; it checks for an immediate stop every second."""
SILENT_SECONDS = 15.0
"""A head whose exporter has not answered for this long is considered gone. A busy exporter answers earlier."""
TIMEOUT_SECONDS = 4.0
PROCESS_ONE = Path("/proc/1/status")
SIGNAL_MASK = re.compile(r"^Sig(?:Cgt|Blk):\s*([0-9a-f]+)$", re.MULTILINE)
"""Signals that process 1 catches, or blocks to fetch them, as tini does. Others never reach it (pid_namespaces(7))."""
DEAF_SECONDS = 20.0
"""Time for process 1 to install a handler for SIGTERM: `ray start` first imports Ray, which takes seconds on a busy
node. A process without a handler by then never gets one; the rest of the 30 s between the run's end and SIGKILL remains
for the others."""
DEAF_POLL_SECONDS = 0.1
BODY_LIMIT = 64 * 1024

# The pod's proxy settings do not apply within the cluster.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Place(Protocol):
    """Interface through which a hook talks to the run."""

    @property
    def poll_seconds(self) -> float:
        """Seconds between two polls."""

    def progress(self) -> Progress | None:
        """Return the current attempt's progress; None if no run needs to be waited for."""

    def request_stop(self, request: StopRequest) -> float | None:
        """Request a stop; return the seconds since the first request, or None if the request was not accepted."""


def stop_here(spool: Spool, mode: StopMode, wait_seconds: float) -> bool:
    """Stop the head's attempt and return whether it ended in time. Otherwise end it immediately."""
    here = Here(spool)
    if stop(here, mode, wait_seconds):
        return True
    # The pod is deleted in any case. An immediate stop lets the exporter and the workers see the end and exit too.
    stop(here, StopMode.IMMEDIATE, LAST_SECONDS)
    return False


def stop(place: Place, mode: StopMode, wait_seconds: float) -> bool:
    """Request a stop of the current attempt and wait for its end; return True when no attempt is running (any more).

    The time counts from the first request, from any sender: a run that the operator has already waited for gets no
    second grace period when its pods are deleted.
    """
    deadline = time.monotonic() + wait_seconds
    asked: int | None = None
    while True:
        progress = place.progress()
        if progress is None or progress.phase in OVER:
            return True
        if asked != progress.attempt:
            passed = place.request_stop(StopRequest(attempt=progress.attempt, mode=mode))
            if passed is not None:
                asked, deadline = progress.attempt, deadline - passed
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(place.poll_seconds, max(deadline - time.monotonic(), 0.0)))


def await_listener(status_file: Path, wait_seconds: float = DEAF_SECONDS) -> bool:
    """Wait until the process of a /proc/<pid>/status file handles SIGTERM; return False after `wait_seconds`.

    Also returns True if the status cannot be read, because a hook must not delay its pod without need.
    """
    deadline = time.monotonic() + wait_seconds
    while not _listens(status_file):
        if time.monotonic() >= deadline:
            return False
        time.sleep(DEAF_POLL_SECONDS)
    return True


def _listens(status_file: Path) -> bool:
    try:
        masks = SIGNAL_MASK.findall(status_file.read_text(errors="replace"))
    except OSError:
        return True
    return not masks or any(int(mask, 16) & 1 << (signal.SIGTERM - 1) for mask in masks)


def seen_progress(spool: Spool) -> Progress | None:
    """Return the current attempt's progress. If its launcher is gone, the attempt counts as ended in any phase."""
    progress = spool.progress()
    if progress is None or progress.phase in OVER or launcher_lives(spool.root):
        return progress
    again = spool.progress()
    # A change between the two reads was made by a live process, or by a process that wrote its end.
    return dataclasses.replace(progress, phase=Phase.ENDED, start=None) if again == progress else again


@dataclass(frozen=True)
class Here:
    """The run on the head itself."""

    spool: Spool
    poll_seconds: float = HEAD_POLL_SECONDS

    def progress(self) -> Progress | None:
        """See `Place`."""
        return seen_progress(self.spool)

    def request_stop(self, request: StopRequest) -> float:
        """See `Place`."""
        self.spool.request_stop(request)
        written = (self.spool.attempt_folder(request.attempt) / SpoolFile.STOP).stat().st_mtime
        return max(time.time() - written, 0.0)


@dataclass(frozen=True)
class Head:
    """The head's exporter, as used by a worker."""

    address: str
    token: str
    port: int = Port.API
    poll_seconds: float = WORKER_POLL_SECONDS

    def progress(self) -> Progress | None:
        """See `Place`. A silent head counts as gone, together with its run."""
        deadline = time.monotonic() + SILENT_SECONDS
        while True:
            try:
                return Progress.from_json(self._ask("/v1/progress"))
            except (OSError, http.client.HTTPException, ContractError):
                if time.monotonic() >= deadline:
                    return None
            time.sleep(HEAD_POLL_SECONDS)

    def request_stop(self, request: StopRequest) -> float | None:
        """See `Place`. The time of earlier requests by others is unknown here."""
        try:
            self._ask("/v1/stop", request.to_json())
        except (OSError, http.client.HTTPException):
            return None
        return 0.0

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        host = f"[{self.address}]" if ":" in self.address else self.address
        request = urllib.request.Request(f"http://{host}:{self.port}{path}", body)
        request.add_header("Authorization", f"Bearer {self.token}")
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
            text: bytes = answer.read(BODY_LIMIT)
        return text


def head_address(file: Path, name: str) -> str:
    """Return the head's address, which `getent hosts` resolved when the pod started.

    The name is not sufficient: when a RayCluster is deleted, its Service may disappear before its pods have saved.
    """
    try:
        words = file.read_text().split()
    except OSError:
        words = []
    return words[0] if words else name
