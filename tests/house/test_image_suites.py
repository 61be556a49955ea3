"""The suites that run in the runtime image import only what is there: not this repository's packages of tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.in_image import SUITES

ABSENT = {"runtime", "tests", "scripts", "benchmarks", "rljob"}
"""Packages that are importable here, and are not mounted beside a suite of tests, or lack what they import there."""
COMPLETE = (
    *("rljob.api.training", "rljob.planner"),
    *("rljob.launchers.verl.closed_sets", "rljob.launchers.verl.unread_keys"),
)
"""Of the operator's wheel, which is mounted without its dependencies: they need numpy and pydantic, which the image
has."""
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {suite.folder for suite in SUITES.values() if suite.mounted_at == "/tests"}
FILES = [file for folder in sorted(FOLDERS) for file in sorted(folder.rglob("*.py"))]


def imported(file: Path) -> set[str]:
    """Return the first parts of the names of the modules that a file imports, or the name of the complete package."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {_package(name.name) for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(_package(node.module or "") if not node.level else "relative")
    return found


def _package(module: str) -> str:
    return next((name for name in COMPLETE if f"{module}.".startswith(f"{name}.")), module.partition(".")[0])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_suite_imports_only_what_the_image_has(file: Path) -> None:
    assert not imported(file) & {*ABSENT, "relative"}
