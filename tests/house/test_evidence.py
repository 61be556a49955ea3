"""What the pages on other projects and on optimizations claim is proven by tests that exist."""

from __future__ import annotations

import re

import pytest
from builders import BUILT_IN_RECIPES

from scripts.site.comparison import ROOT, Row, comparison
from scripts.site.optimizations import optimizations

DATA, GAINS = comparison(), optimizations()


def missing(test: str) -> str:
    """Return what is wrong with the name of a test, or nothing."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"{path} does not exist"
    if not name or not re.search(rf"^(?:async )?def {re.escape(name)}\(", (ROOT / path).read_text(), re.MULTILINE):
        return f"{path} has no test {name}"
    return ""


@pytest.mark.parametrize("row", DATA.rows, ids=lambda row: row.how[:30])
def test_each_claim_is_proven(row: Row) -> None:
    assert bool(row.tests) == (row.ours == "Y")
    assert [problem for test in row.tests if (problem := missing(test))] == []


def test_every_feature_and_need_has_a_row_of_its_own() -> None:
    assert len({row.what for row in DATA.features}) == 43
    assert len({row.need for row in DATA.training}) == 14


def test_what_shows_an_optimization_exists_and_is_used() -> None:
    assert [problem for test in GAINS.tests.values() if (problem := missing(test))] == []
    assert {name for row in GAINS.rows for name in row.names} == set(GAINS.tests)
    assert [name for row in GAINS.rows for name in row.emulated if "emulated_npu" not in GAINS.tests[name]] == []


def test_every_built_in_recipe_has_a_row() -> None:
    assert {row.what for row in GAINS.recipes} == {each["metadata"]["name"] for each in BUILT_IN_RECIPES.values()}


def test_a_test_that_is_renamed_is_missed() -> None:
    assert missing("tests/house/test_evidence.py::test_each_claim_is_proven") == ""
    assert "no test" in missing("tests/house/test_evidence.py::test_each_claim")
    assert "does not exist" in missing("tests/house/test_gone.py::test_it")
