"""The operator, and the commands that do not plan, load none of the planner."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

PLANS = "rljob.cli.plan.topics"
WITHOUT = ("rljob.cli.known_launchers", "rljob.client", "rljob.__main__")
PROGRAM = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    print(sum(name.startswith("rljob.planner") for name in sys.modules))
"""


@functools.cache
def planner_modules() -> dict[str, int]:
    """Return how many modules of the planner a process has loaded after it imported one module after the other."""
    modules = (*WITHOUT, PLANS)
    done = subprocess.run([sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, check=True)
    return dict(zip(modules, map(int, done.stdout.split()), strict=True))


@pytest.mark.parametrize("module", WITHOUT)
def test_nothing_of_it_is_loaded(module: str) -> None:
    assert planner_modules()[module] == 0


def test_what_plans_loads_it() -> None:
    """The counterpart, without which the test above could not fail."""
    assert planner_modules()[PLANS] > 10
