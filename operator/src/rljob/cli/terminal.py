"""The border between the command line and the terminal: control characters in text are shown, not sent.

Messages of jobs, logs of pods and answers of other programs contain whatever somebody else wrote. `main` replaces
standard output and standard error by `PrintableStream`, so every command is covered; only the progress displays send
control sequences of their own, with `send_control`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import IO, cast

from rljob.api.printing import printable


class PrintableStream:
    """A text stream that makes everything printable which is written to it."""

    def __init__(self, out: IO[str]) -> None:
        self.out = out

    def write(self, text: str) -> int:
        """Write the text with visible control characters."""
        return self.out.write(printable(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        """Pass everything else on: flush, isatty, encoding."""
        found: object = getattr(self.out, name)
        return found


def send_control(sequence: str, out: IO[str]) -> None:
    """Send a control sequence of our own to the terminal."""
    (out.out if isinstance(out, PrintableStream) else out).write(sequence)


@contextmanager
def printable_output() -> Iterator[None]:
    """Make standard output and standard error printable during the block."""
    out, errors = (cast("IO[str]", PrintableStream(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(errors):
        yield
