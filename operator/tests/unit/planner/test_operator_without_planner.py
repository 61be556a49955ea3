"""The operator, and the commands that do not plan, load none of the planner."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(sum(name.startswith("rljob.planner") for name in sys.modules))
"""


def planner_modules(module: str) -> int:
    """Return how many modules of the planner a process has loaded after one import."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, module], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("module", ["rljob.__main__", "rljob.client", "rljob.cli.known_launchers"])
def test_nothing_of_it_is_loaded(module: str) -> None:
    assert planner_modules(module) == 0


def test_what_plans_loads_it() -> None:
    """The counterpart, without which the test above could not fail."""
    assert planner_modules("rljob.cli.plan.topics") > 10
