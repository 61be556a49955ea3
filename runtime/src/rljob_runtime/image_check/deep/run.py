"""Runs `process` with limits: a time for each import, and the end of what it prints. Continues after one that dies.

The modules share one process, because each would load torch again otherwise. After an import that hangs or ends the
process, a new one continues behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from rljob_runtime.image_check.facts import SeamFacts

PROCESS = "rljob_runtime.image_check.deep.process"
IMPORT_SECONDS = 180.0
"""For one module. torch, vLLM and verl take 60 s together on two busy cores with files that are not in memory."""
SAY_SECONDS = 2.0
OUTPUT_BYTES = 4096
"""The end of what the imports print, which explains a process that died."""


@dataclass(frozen=True)
class Failure:
    """Why a module could not be imported."""

    kind: str
    """Name of the exception, or how the process ended."""
    text: str
    lacks: str = ""
    """Module that is missing, or that lacks a name."""
    place: str = ""
    """Module whose code raised."""
    line: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of one module."""

    module: str
    failure: Failure | None = None
    seams: Mapping[str, SeamFacts] = field(default_factory=dict)
    """`Seam.name` -> what the loaded module has."""


def run(
    modules: Sequence[str],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    seconds: float = IMPORT_SECONDS,
) -> tuple[Outcome, ...]:
    """Import the modules, and return what came of each, in order."""
    outcomes: list[Outcome] = []
    last_said = 0.0

    def next_module() -> str:
        nonlocal last_said
        name = modules[len(outcomes)]
        if time.monotonic() - last_said >= SAY_SECONDS:
            last_said = time.monotonic()
            say(f"importing {name} ({len(outcomes) + 1} of {len(modules)})")
        return name

    while len(outcomes) < len(modules):
        with _Process(modules[len(outcomes) :], environ) as process:
            while len(outcomes) < len(modules):
                name = next_module()
                line = process.line(seconds)
                if line is None:
                    outcomes.append(Outcome(name, process.end(seconds)))
                    break
                outcomes.append(_outcome(json.loads(line)))
    return tuple(outcomes)


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    if (failed := answer.get("failure")) is not None:
        found = Failure(failed["kind"], failed["text"], failed["lacks"], failed["in"], failed["line"])
        return Outcome(answer["module"], found)
    seams = {
        name: SeamFacts("problem" not in seen, tuple(seen.get("parameters", ())), seen.get("problem", ""))
        for name, seen in answer["seams"].items()
    }
    return Outcome(answer["module"], seams=seams)


class _Process:
    """One process that imports, and the reading ends of what it writes."""

    def __init__(self, modules: Sequence[str], environ: Mapping[str, str]) -> None:
        self._answers, writes = os.pipe()
        self._lines: list[bytes] = []
        self._rest = b""
        self._printed = b""
        self._late = False
        self._process = subprocess.Popen(
            (sys.executable, "-m", PROCESS, str(writes), *modules),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(writes,),
            start_new_session=True,
        )
        os.close(writes)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        if self._process.stdout is not None:
            self._selector.register(self._process.stdout.fileno(), selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # With what its imports have started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        os.close(self._answers)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def line(self, seconds: float) -> bytes | None:
        """Return the next answer, or None if none comes: the process has ended, or the time is over."""
        deadline = time.monotonic() + seconds
        while not self._lines:
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                self._late = True
                return None
            for key, _ in ready:
                if not self._read(key.fd):
                    return None
        return self._lines.pop(0)

    def _read(self, descriptor: int) -> bool:
        """Take what a pipe has; return whether answers may follow."""
        data = os.read(descriptor, 1 << 16)
        if descriptor != self._answers:
            self._printed = (self._printed + data)[-OUTPUT_BYTES:]
            if not data:
                self._selector.unregister(descriptor)
            return True
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._lines += whole
        return bool(data) or bool(self._lines)

    def end(self, seconds: float) -> Failure:
        """Return how an import ended that gave no answer."""
        if self._late:
            return Failure("TimeoutError", f"it took longer than {seconds:g} s")
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        printed = " ".join(self._printed.decode(errors="replace").split())
        return Failure("ProcessEnded", f"the import ended the process ({how}): {printed[-400:] or 'no output'}")
