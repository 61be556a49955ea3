"""The figures of a full run, at its end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from property.tally import FULL, TALLY

BEGAN = time.monotonic()
KEY = "chaos"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a worker's worlds went through to who started the workers."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[KEY] = dict(TALLY)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - pytest-xdist's, which has no types
    """Add it up."""
    TALLY.update(getattr(node, "workeroutput", {}).get(KEY, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the simulated worlds went through."""
    if not FULL:
        return
    terminalreporter.section("chaos")
    for what in sorted(TALLY):
        terminalreporter.line(f"{TALLY[what]:>9,}  {what}")
    terminalreporter.line(f"{time.monotonic() - BEGAN:>9,.0f}  seconds")
