"""The figures of a full run, at its end."""

from __future__ import annotations

import time

import pytest
from property.tally import FULL, TALLY

BEGAN = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the simulated worlds went through."""
    if not FULL:
        return
    terminalreporter.section("chaos")
    for what in sorted(TALLY):
        terminalreporter.line(f"{TALLY[what]:>9,}  {what}")
    terminalreporter.line(f"{time.monotonic() - BEGAN:>9,.0f}  seconds")
