"""The progress line of a run: redrawn in place on a terminal, printed at intervals elsewhere.

`rljob run --local` and `make demo` show it. Its input has the format of `status.progress` of an RLJob.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from rljob.api.printing import one_line
from rljob.cli.status import progress_bar
from rljob.cli.terminal import send_control
from rljob.reading import figures
from rljob.reading.start import STARTING

QUIET_LINE_SECONDS = 20.0
"""Minimum interval between lines without a terminal, except for important ones."""
MESSAGE_CHARACTERS = 140
FIGURES = (
    ("reward", "reward", figures.reward),
    ("TPS/card", "tokensPerSecondPerCard", figures.rate),
    ("DP idle", "clusterIdleRatio", figures.share),
    ("ends about", "eta", str),
)
"""Label, key of status.progress and form."""


class Line:
    """A line that is redrawn on a terminal, and printed when it changes elsewhere."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._shown = ""
        self._shown_at = 0.0

    def draw(self, text: str, *, important: bool) -> None:
        """Show the text."""
        text = one_line(text)
        if self._terminal:
            # A line that wraps could not be redrawn.
            width = shutil.get_terminal_size().columns - 1
            send_control(f"\r\033[K{text[:width]}", self._out)
            self._out.flush()
        elif text != self._shown and (important or time.monotonic() - self._shown_at > QUIET_LINE_SECONDS):
            print(text, flush=True, file=self._out)
            self._shown_at = time.monotonic()
        else:
            return
        self._shown = text

    def end(self) -> None:
        """End the line, so that what follows begins a new one."""
        if self._terminal and self._shown:
            print(flush=True, file=self._out)
        self._shown = ""


def clock(seconds: float) -> str:
    """Format a duration as ` 2:05`."""
    return f"{int(seconds) // 60:2d}:{int(seconds) % 60:02d}"


def progress_line(elapsed_seconds: float, state: str, progress: Mapping[str, Any], message: str = "") -> str:
    """Return the current line: the message before the first step, and while an attempt starts, else a bar."""
    if not progress.get("step") or (state == STARTING and message):
        line = f"{clock(elapsed_seconds)}  {state:<12} {message}".rstrip()
        return line if len(line) <= MESSAGE_CHARACTERS else f"{line[: MESSAGE_CHARACTERS - 1]}…"
    shown = [f"{label} {form(progress[key])}" for label, key, form in FIGURES if progress.get(key) is not None]
    bar = progress_bar(progress)
    return f"{clock(elapsed_seconds)}  {state:<12} {bar}  {'  '.join(shown)}".rstrip()
