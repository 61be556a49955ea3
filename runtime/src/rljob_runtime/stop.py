"""`python -m rljob_runtime stop`: the preStop hook of head and workers. Asks the trainer to save and stop, and waits.

Whoever deletes a pod (the operator, a drain, a preemption by another controller): the run still gets its chance to
save. The head's hook talks through the spool. A run cannot go on without one of its workers, so the hook of a worker
asks the head's exporter for the same, and keeps its pod, and with it a part of the model, until the head says that the
run has ended. Where nothing runs neither waits for a run: the pods of a finished job go without delay.

The kubelet sends SIGTERM once, after the hook, and the kernel drops it for a process 1 that has no handler yet: a pod
that is deleted while it starts would live on until SIGKILL. So a hook returns only when process 1 can hear it.
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
from rljob_runtime.spool import Spool

HEAD_NAME = "FQ_RAY_IP"
"""Variable of worker pods with the name of the head's Service (KubeRay v1.6.2, controllers/ray/utils/constant.go)."""
OVER = (Phase.IDLE, Phase.ENDED)
HEAD_POLL_SECONDS = 0.5
WORKER_POLL_SECONDS = 2.0
"""At most a thousand workers ask one head."""
LAST_SECONDS = 5.0
"""For the launcher to say that it ended: it looks for an immediate stop every second."""
SILENT_SECONDS = 15.0
"""A head whose exporter does not answer for so long is gone: a busy one must not be taken for it."""
TIMEOUT_SECONDS = 4.0
PROCESS_ONE = Path("/proc/1/status")
SIGNAL_MASK = re.compile(r"^Sig(?:Cgt|Blk):\s*([0-9a-f]+)$", re.MULTILINE)
"""What process 1 catches, or holds back to fetch it, as tini does; the rest never reaches it (pid_namespaces(7))."""
DEAF_SECONDS = 20.0
"""Until process 1 has a handler for SIGTERM: `ray start` imports Ray first, for seconds on a busy node. What does not
listen by then never will; of the 30 s between the run's end and SIGKILL, the rest stays for those that do."""
DEAF_POLL_SECONDS = 0.1
BODY_LIMIT = 64 * 1024

# Proxy settings of a pod are for the world outside.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Place(Protocol):
    """Where a hook asks."""

    @property
    def poll_seconds(self) -> float:
        """How often to look."""

    def progress(self) -> Progress | None:
        """Give the current attempt's progress; None where there is nobody to wait for."""

    def request_stop(self, request: StopRequest) -> float | None:
        """Ask for a stop; the seconds since it was asked for first, or None if the request was not taken."""


def stop_here(spool: Spool, mode: StopMode, wait_seconds: float) -> bool:
    """Stop the head's attempt; True when it ended in time. What does not end in time is ended."""
    here = Here(spool)
    if stop(here, mode, wait_seconds):
        return True
    # The pod dies in any case: said this way, the exporter and the workers hear of the end and let go too.
    stop(here, StopMode.IMMEDIATE, LAST_SECONDS)
    return False


def stop(place: Place, mode: StopMode, wait_seconds: float) -> bool:
    """Ask the current attempt to stop and wait for its end; True when no attempt runs (any more).

    The time counts from the first request, whoever made it: a run that the operator has already waited for gets no
    second grace when its pods are deleted.
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
    """Wait until the process of a /proc/<pid>/status can be told SIGTERM; False when not within `wait_seconds`.

    True as well where the status cannot be read: nobody can tell then, and a hook must not hold its pod.
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
    """Give the current attempt's progress; one whose launcher is gone has ended, whatever it wrote last."""
    progress = spool.progress()
    if progress is None or progress.phase in OVER or launcher_lives(spool.root):
        return progress
    again = spool.progress()
    # What changed between the two looks was written by somebody who lives, or lived to write its end.
    return dataclasses.replace(progress, phase=Phase.ENDED) if again == progress else again


@dataclass(frozen=True)
class Here:
    """The head itself."""

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
    """The head's exporter, as a worker reaches it."""

    address: str
    token: str
    port: int = Port.API
    poll_seconds: float = WORKER_POLL_SECONDS

    def progress(self) -> Progress | None:
        """See `Place`; a head that stays silent has gone, and its run with it."""
        deadline = time.monotonic() + SILENT_SECONDS
        while True:
            try:
                return Progress.from_json(self._ask("/v1/progress"))
            except (OSError, http.client.HTTPException, ContractError):
                if time.monotonic() >= deadline:
                    return None
            time.sleep(HEAD_POLL_SECONDS)

    def request_stop(self, request: StopRequest) -> float | None:
        """See `Place`; how long ago others asked is not known here."""
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
    """Give the head's address as `getent hosts` found it when the pod started.

    The name alone would not do: when a whole RayCluster is deleted, its Service may go before its pods have saved.
    """
    try:
        words = file.read_text().split()
    except OSError:
        words = []
    return words[0] if words else name
