"""The suites that run in the runtime image import only what is there: not this repository's packages of tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.in_image import PYTEST, SUITES

ABSENT = {"runtime", "tests", "scripts", "benchmarks", "rljob"}
"""Packages that are importable here, and are not mounted beside a suite of tests."""
ROOT = Path(__file__).resolve().parents[2]
FILES = [file for suite in SUITES.values() if suite.command == PYTEST for file in sorted(suite.folder.rglob("*.py"))]


def imported(file: Path) -> set[str]:
    """Return the first parts of the names of the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0] if not node.level else "relative")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_suite_imports_only_what_the_image_has(file: Path) -> None:
    assert not imported(file) & {*ABSENT, "relative"}
