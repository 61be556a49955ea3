"""The initializers of a local run: one after another, each as a process with the limits of the manifest."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob.api.sources import Initializer, InitializerType
from rljob.cli.local.folder import JobFolder
from rljob.cli.local.follow import Interrupts
from rljob.cli.local.processes import Child, Processes
from rljob.cli.progress_line import Line, progress_line
from rljob.render.initializer_request import arguments

POLL_SECONDS = 0.3
END_SECONDS = 5.0


@dataclass(frozen=True)
class Step:
    """An initializer with local paths, and its variables."""

    initializer: Initializer
    environment: Mapping[str, str]


class InitializerError(Exception):
    """An initializer failed after all retries; the message says how."""


def run_initializers(
    steps: list[Step], folder: JobFolder, processes: Processes, interrupts: Interrupts, line: Line
) -> bool:
    """Run all initializers. Return False if the user interrupted; raise InitializerError if one failed."""
    return all(_run(step, folder, processes, interrupts, line) for step in steps)


def _run(step: Step, folder: JobFolder, processes: Processes, interrupts: Interrupts, line: Line) -> bool:
    wanted, begun = step.initializer, time.monotonic()
    if wanted.creates is not None and Path(wanted.creates).exists():
        print(f"initializer {wanted.name}: skipped, {wanted.creates} exists", flush=True)
        return True
    command = list(wanted.command)
    if wanted.type is not InitializerType.COMMAND:
        command = [sys.executable, "-m", "rljob_runtime", *arguments(wanted)]
    log = folder.logs / f"initializer-{wanted.name}.log"
    log.unlink(missing_ok=True)
    for attempt in range(1 + wanted.retries):
        try:
            child = processes.start(command, step.environment, log, folder.root)
        except OSError as error:
            raise InitializerError(f"initializer {wanted.name}: {command[0]}: {error.strerror}") from error
        ended = _watch(child, wanted, begun, interrupts, line)
        line.end()
        if not ended or child.exit_code == 0:
            return ended
        left = wanted.retries - attempt
        if left:
            print(f"initializer {wanted.name}: exit code {child.exit_code}, retries left: {left}", flush=True)
    raise InitializerError(
        f"initializer {wanted.name} failed {1 + wanted.retries} times, the last time with exit code "
        f"{child.exit_code}; {log} ends with\n{child.tail(15)}"
    )


def _watch(child: Child, wanted: Initializer, begun: float, interrupts: Interrupts, line: Line) -> bool:
    """Wait for the end of an initializer. Return False if the user interrupted."""
    while child.exit_code is None:
        elapsed = time.monotonic() - begun
        if interrupts.count:
            child.end(END_SECONDS)
            return False
        if elapsed > wanted.timeout_seconds:
            child.end(END_SECONDS)
            raise InitializerError(
                f"initializer {wanted.name} did not end within its timeoutSeconds {wanted.timeout_seconds}; "
                f"{child.log} ends with\n{child.tail(15)}"
            )
        line.draw(progress_line(elapsed, "Initializing", {}, child.tail(1) or wanted.name), important=False)
        time.sleep(POLL_SECONDS)
    return True
