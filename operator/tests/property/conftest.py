"""The statistics of a full run, printed at its end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from property.chaos import FULL, STATISTICS

BEGAN = time.monotonic()
KEY = "chaos"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the statistics of a worker's worlds to the process that started the workers."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[KEY] = dict(STATISTICS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - pytest-xdist's, which has no types
    """Add them up."""
    STATISTICS.update(getattr(node, "workeroutput", {}).get(KEY, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the statistics of the simulated worlds."""
    if not FULL:
        return
    terminalreporter.section("chaos")
    for what in sorted(STATISTICS):
        terminalreporter.line(f"{STATISTICS[what]:>9,}  {what}")
    terminalreporter.line(f"{time.monotonic() - BEGAN:>9,.0f}  seconds")
