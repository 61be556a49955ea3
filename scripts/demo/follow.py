"""Following one RLJob to its end: a progress bar on a terminal, a line per change elsewhere, and bounded patience."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.cli.status import progress_bar
from scripts.demo.commands import Kubernetes, Manifest
from scripts.demo.errors import DemoError

POLL_SECONDS = 2.0
QUIET_LINE_SECONDS = 20.0
ENDED = ("Succeeded", "Failed", "Invalid")


@dataclass(frozen=True)
class Patience:
    """How long the demo waits: for the first step, between steps, and in all."""

    start_seconds: float = 900.0
    step_seconds: float = 420.0
    total_seconds: float = 2400.0


class Line:
    """One line that is drawn again and again on a terminal, and printed when it changes elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._shown = ""
        self._shown_at = 0.0

    def draw(self, text: str, *, important: bool) -> None:
        """Show the text."""
        if self._terminal:
            print(f"\r\033[K{text}", end="", flush=True)
        elif text != self._shown and (important or time.monotonic() - self._shown_at > QUIET_LINE_SECONDS):
            print(text, flush=True)
            self._shown_at = time.monotonic()
        else:
            return
        self._shown = text

    def end(self) -> None:
        """Leave the line."""
        if self._terminal:
            print(flush=True)


def follow(kubernetes: Kubernetes, namespace: str, name: str, patience: Patience) -> Manifest:
    """Poll until the job ended; raises DemoError when it takes too long."""
    started = moved = time.monotonic()
    line, last = Line(), ("", -1)
    while True:
        job = kubernetes.get("rljob", name, "--namespace", namespace)
        if job is None:
            raise DemoError(f"RLJob {namespace}/{name} is gone: somebody deleted it")
        status = job.get("status") or {}
        now, here = time.monotonic(), (str(status.get("state", "Pending")), _step(status))
        line.draw(describe(status, now - started), important=here[0] != last[0])
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
    """The line of a moment."""
    clock = f"{int(elapsed_seconds) // 60:2d}:{int(elapsed_seconds) % 60:02d}"
    state = str(status.get("state", "Pending"))
    progress = status.get("progress") or {}
    if not progress.get("step"):
        return f"{clock}  {state:<12} {status.get('message', '')}".rstrip()[:140]
    figures = [
        f"{label} {progress[key]}"
        for label, key in (("reward", "reward"), ("TPS/card", "tokensPerSecondPerCard"), ("idle", "clusterIdleRatio"))
        if progress.get(key) is not None
    ]
    bar = progress_bar(int(progress["step"]), int(progress.get("totalSteps", 0)))
    return f"{clock}  {state:<12} {bar}  {'  '.join(figures)}"


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
