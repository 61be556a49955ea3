"""The conditions under which verl refuses its configuration, as installed in the image, are those of the table.

When this fails after an upgrade: run `python -m upstream.conditions`, judge the new rows in
upstream/conditions/verdicts.tsv, and correct the checks that cite lines of verl.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(os.environ.get("RLJOB_CONDITIONS", "/nowhere"))


def module(name: str) -> ModuleType:
    """Load a module of upstream/conditions, which is mounted; verl installs a package `scripts` of its own."""
    specification = importlib.util.spec_from_file_location(f"conditions_{name}", FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    found = importlib.util.module_from_spec(specification)
    sys.modules[found.__name__] = found
    specification.loader.exec_module(found)
    return found


def installed() -> dict[str, int]:
    """Return the conditions of verl as installed: key -> line."""
    verl = importlib.util.find_spec("verl")
    assert verl is not None
    assert verl.origin is not None
    extract, source = module("extract"), module("sources").VERL
    return {
        condition.key: condition.line
        for name, text in source.files(Path(verl.origin).parents[1]).items()
        for condition in extract.conditions(text, name, whole=source.is_whole(name))
    }


@pytest.fixture(scope="module")
def table() -> dict[str, int]:
    """Return the conditions of the committed table: key -> line."""
    lines = (FOLDER / "tables/verl.tsv").read_text().splitlines()[1:]
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\")
    return {f"{file}:{function}:{digest}": int(line) for file, function, digest, line, _, _ in rows}


def test_the_installed_verl_has_the_conditions_of_the_table(table: dict[str, int]) -> None:
    found = installed()
    assert {"new": sorted(found.keys() - table.keys()), "gone": sorted(table.keys() - found.keys())} == {
        "new": [],
        "gone": [],
    }


def test_the_lines_that_checks_cite_have_not_moved(table: dict[str, int]) -> None:
    found = installed()
    assert {key: line for key, line in found.items() if table.get(key, line) != line} == {}
