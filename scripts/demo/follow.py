"""Follow one RLJob to its end: a progress bar on a terminal, a line per change elsewhere, with bounded waiting."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rljob.cli.progress_line import Line, progress_line
from rljob.cli.status import ENDED
from rljob.reading import start
from scripts.demo.commands import Kubernetes, Manifest
from scripts.demo.errors import DemoError

POLL_SECONDS = 4.0
"""Seconds between two polls. Each poll starts kubectl, which takes CPU time from the job on a machine with two cores.
"""


@dataclass(frozen=True)
class Patience:
    """Time limits of the demo: for the first step, between steps, and in total."""

    start_seconds: float = 900.0
    step_seconds: float = 420.0
    total_seconds: float = 2400.0


def follow(kubernetes: Kubernetes, namespace: str, name: str, patience: Patience) -> Manifest:
    """Poll until the job has ended. Raise DemoError if it takes too long."""
    started = moved = time.monotonic()
    line, last, said = Line(), ("", -1), ""
    while True:
        job = kubernetes.get("rljob", name, "--namespace", namespace)
        if job is None:
            raise DemoError(f"RLJob {namespace}/{name} no longer exists; it was deleted")
        status = job.get("status") or {}
        now, here = time.monotonic(), (str(status.get("state", "Pending")), _step(status))
        stage = start.words(status)
        line.draw(describe(status, now - started), important=(here[0], stage) != (last[0], said))
        said = stage
        if here != last:
            moved, last = now, here
        if here[0] in ENDED:
            line.end()
            return job
        late = _late(patience, step=here[1], waited=now - moved, total=now - started)
        if late:
            line.end()
            raise DemoError(f"{late}; state {here[0]}: {status.get('message', 'no message')}")
        time.sleep(POLL_SECONDS)


def describe(status: Mapping[str, Any], elapsed_seconds: float) -> str:
    """Return the current line."""
    state = str(status.get("state", "Pending"))
    message = start.current(status, datetime.now(UTC))
    return progress_line(elapsed_seconds, state, status.get("progress") or {}, message)


def _step(status: Mapping[str, Any]) -> int:
    return int((status.get("progress") or {}).get("step", 0))


def _late(patience: Patience, *, step: int, waited: float, total: float) -> str:
    if total > patience.total_seconds:
        return f"the job did not end within {patience.total_seconds / 60:.0f} minutes"
    if step == 0 and total > patience.start_seconds:
        return f"no step within {patience.start_seconds / 60:.0f} minutes"
    if step > 0 and waited > patience.step_seconds:
        return f"no step for {patience.step_seconds / 60:.0f} minutes"
    return ""
