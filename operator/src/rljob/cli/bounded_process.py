"""Run a program whose output somebody else may have made, with a limit on time and size.

`kubectl exec` and `kubectl logs` pass on what a pod writes, which can be endless and need not be text.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

OUTPUT_BYTES = 256 << 20
"""A list of 10,000 pods is less than half as large."""
LOOK_SECONDS = 0.1


class TooLongError(Exception):
    """The program wrote more than the limit."""


@dataclass(frozen=True)
class Done:
    """How a program ended, and its output as text."""

    code: int
    output: str
    errors: str


def run(words: Sequence[str], text: str | None, seconds: float, limit: int = OUTPUT_BYTES) -> Done:
    """Run a program. Raise subprocess.TimeoutExpired or TooLongError after it has been killed."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write((text or "").encode())
        given.seek(0)
        with subprocess.Popen(words, stdin=given, stdout=output, stderr=errors) as process:
            try:
                _await(process, (output.fileno(), errors.fileno()), seconds, limit)
            except BaseException:
                process.kill()
                raise
        parts = []
        for file in (output, errors):
            file.seek(0)
            parts.append(file.read(limit).decode(errors="replace"))
        return Done(process.returncode, *parts)


def _await(process: subprocess.Popen[bytes], files: tuple[int, ...], seconds: float, limit: int) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            process.wait(max(0.0, min(LOOK_SECONDS, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
        else:
            return
        if max(os.fstat(file).st_size for file in files) > limit:
            raise TooLongError
