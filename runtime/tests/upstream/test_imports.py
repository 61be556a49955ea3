"""What the modules of verl and TransferQueue that a run imports need to be imported has a row in the requirements."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator

import pytest

from rljob_runtime.fork_server.preload import PARTS
from rljob_runtime.image_check.requirements import TABLE
from rljob_runtime.image_check.seams import TABLE as SEAMS
from rljob_runtime.image_check.source import NotFoundInSourceError, Sources

FOLLOWED = {"verl", "transfer_queue"}
OTHERS = {"ray"}
"""Has a row of its own in the judgement."""
KNOWN = {name for row in TABLE for name in row.names} | OTHERS


class Closure:
    """Follows the imports that a module executes in any case: not those in `if`, `try` and functions."""

    def __init__(self) -> None:
        self._sources = Sources()
        self.seen: set[str] = set()
        self.needed: dict[str, str] = {}
        """Top package -> the first module that imports it."""

    def follow(self, module: str) -> None:
        """Import a module, and before it its parents."""
        parts = module.split(".")
        for name in (".".join(parts[: depth + 1]) for depth in range(len(parts))):
            if name not in self.seen:
                self.seen.add(name)
                try:
                    tree = self._sources._tree(name)
                except NotFoundInSourceError:
                    continue  # a name of the module before it
                for imported in self._imports(name, tree):
                    self._reached(imported, name)

    def _reached(self, imported: str, by: str) -> None:
        top = imported.partition(".")[0]
        if top in FOLLOWED:
            self.follow(imported)
        elif top not in sys.stdlib_module_names:
            self.needed.setdefault(top, by)

    def _imports(self, module: str, tree: ast.Module) -> Iterator[str]:
        for node in tree.body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._sources._imported(module, node)
                yield base
                if base.partition(".")[0] in FOLLOWED:
                    yield from (f"{base}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module")
def closure() -> Closure:
    found = Closure()
    for module in (*PARTS, *(seam.module for seam in SEAMS)):
        if module.partition(".")[0] in FOLLOWED:
            found.follow(module)
    return found


def test_enough_is_followed(closure: Closure) -> None:
    assert len(closure.seen) > 150


def test_what_is_imported_has_a_row(closure: Closure) -> None:
    providers = importlib.metadata.packages_distributions()
    normal = {top: {re.sub(r"[-_.]+", "-", name).lower() for name in providers[top]} for top in closure.needed}
    assert {top: closure.needed[top] for top, names in normal.items() if not names & KNOWN} == {}


def test_no_row_is_idle(closure: Closure) -> None:
    providers = importlib.metadata.packages_distributions()
    needed = {re.sub(r"[-_.]+", "-", name).lower() for top in closure.needed for name in providers[top]}
    imported = {row.names[0] for row in TABLE if row.source.startswith("imported by")}
    assert imported <= needed


def test_rows_name_the_place_that_imports(closure: Closure) -> None:
    assert {
        row.source.partition(" by ")[2].partition(".py")[0].replace("/", ".")
        for row in TABLE
        if "imported by" in row.source
    } <= {*closure.seen}


def test_every_seam_is_as_expected() -> None:
    # vllm-ascend is beside the image, which is one for CPUs.
    sources = Sources([*sys.path, *filter(None, [os.environ.get("RLJOB_VLLM_ASCEND")])])
    for seam in SEAMS:
        found = sources.find(seam.module, seam.attribute)
        assert found.found, found.problem
        if seam.parameters is not None:
            assert found.parameters == seam.parameters, seam.name
