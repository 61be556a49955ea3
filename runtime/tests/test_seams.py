"""Every name of verl, vLLM, TransferQueue and of Ray's private modules that the runtime uses has a row among the seams.

Read from the runtime's own source, so neither of them needs to be installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rljob_runtime
from rljob_runtime.image_check.seams import TABLE

SOURCE = Path(rljob_runtime.__file__).parent
HELD = {"verl", "vllm", "transfer_queue"}
RAY_PRIVATE = {"experimental", "_private", "_raylet", "_common"}
OF_PYTHON = {"__name__", "__class__", "__dict__", "__ray_actor_class__"}
"""Attributes that Python or Ray gives to every class."""
SUBCLASS = "from verl.trainer.ppo.v1 import PPOTrainerSync\nclass A(PPOTrainerSync):\n    def fit(self): "
NAMES = {seam.name for seam in TABLE}
MODULES = {seam.module for seam in TABLE}


def is_held(module: str, name: str = "") -> bool:
    """Return whether an import is of a package whose names are in the table."""
    top, *rest = module.split(".")
    return top in HELD or (top == "ray" and (bool(RAY_PRIVATE & {*rest, name}) or name.startswith("_")))


class Uses(ast.NodeVisitor):
    """Collects what one file uses, as `module:name` or `module:Class.member`."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self._modules: dict[str, str] = {}
        """Name in the file -> module."""
        self._objects: dict[str, str] = {}
        """Name in the file -> `module:name`."""

    def visit_If(self, node: ast.If) -> None:
        """Skip what only a type checker imports."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if is_held(alias.name):
                self._modules[alias.asname or alias.name.partition(".")[0]] = alias.name
                self.used.append(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names if not node.level else []:
            if not is_held(module, alias.name):
                continue
            if f"{module}.{alias.name}" in MODULES:
                self._modules[alias.asname or alias.name] = f"{module}.{alias.name}"
            else:
                self._objects[alias.asname or alias.name] = f"{module}:{alias.name}"
                self.used.append(f"{module}:{alias.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        if (name := self._name_of(node)) is not None:
            self.used.append(name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.generic_visit(node)
        for base in node.bases:
            inner = base.value if isinstance(base, ast.Attribute) and base.attr in OF_PYTHON else base
            if isinstance(inner, ast.Name) and inner.id in self._objects:
                self.used += [f"{self._objects[inner.id]}.{member}" for member in inherited(node)]

    def _name_of(self, node: ast.expr) -> str | None:
        """Return what an expression names, if it begins with an import."""
        if not isinstance(node, ast.Attribute) or node.attr in OF_PYTHON:
            return None
        if isinstance(node.value, ast.Name):
            if (module := self._modules.get(node.value.id)) is not None:
                return f"{module}:{node.attr}"
            # A member of a function is an attribute that the runtime itself has set.
            found = self._objects.get(node.value.id)
            return f"{found}.{node.attr}" if found and found.partition(":")[2][:1].isupper() else None
        of = self._name_of(node.value)
        name = (of or "").partition(":")[2]
        return f"{of}.{node.attr}" if name[:1].isupper() and "." not in name else None


def inherited(node: ast.ClassDef) -> Iterator[str]:
    """Yield the members that a class takes from its base: through `super()`, and of `self` what it does not define."""
    own: set[str] = set()
    read: set[str] = set()
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            own.add(part.name)
        elif isinstance(part, ast.Assign):
            own |= {target.id for target in part.targets if isinstance(target, ast.Name)}
        elif isinstance(part, ast.AnnAssign) and part.value is None and isinstance(part.target, ast.Name):
            read.add(part.target.id)  # declared for the type checker
    for found in ast.walk(node):
        if not isinstance(found, ast.Attribute):
            continue
        of = found.value
        if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super":
            yield found.attr
        elif isinstance(of, ast.Name) and of.id == "self":
            if isinstance(found.ctx, ast.Store) and found.attr not in read:
                own.add(found.attr)
            else:
                read.add(found.attr)
    yield from read - own - OF_PYTHON


def uses(text: str) -> set[str]:
    """Return what a source text uses."""
    visitor = Uses()
    visitor.visit(ast.parse(text))
    return set(visitor.used)


def missing(text: str) -> set[str]:
    """Return what a source text uses and the table lacks."""
    return uses(text) - NAMES - MODULES


def test_every_use_has_a_row() -> None:
    found = {str(path.relative_to(SOURCE)): missing(path.read_text()) for path in SOURCE.rglob("*.py")}
    assert {file: names for file, names in found.items() if names} == {}


def test_the_uses_are_found_at_all() -> None:
    every = set().union(*(uses(path.read_text()) for path in SOURCE.rglob("*.py")))
    assert len(every & NAMES) > 60


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from verl.utils.gone import thing", "verl.utils.gone:thing"),
        ("import verl.utils.gone", "verl.utils.gone"),
        ("def f():\n    from verl.trainer.ppo import core_algos\n    core_algos.other()", "core_algos:other"),
        ("import transfer_queue as tq\ntq.other()", "transfer_queue:other"),
        ("from ray.experimental.internal_kv import _internal_kv_list", "internal_kv:_internal_kv_list"),
        ("from ray._private import services", "ray._private:services"),
        ("from ray import _raylet", "ray:_raylet"),
        ("from vllm.platforms import other", "vllm.platforms:other"),
        ("from verl.plugin.platform import PlatformRegistry\nPlatformRegistry.other()", "PlatformRegistry.other"),
        (f"{SUBCLASS}super().other()", "PPOTrainerSync.other"),
        (f"{SUBCLASS}self.other.act()", "PPOTrainerSync.other"),
    ],
)
def test_a_use_without_a_row_is_found(text: str, name: str) -> None:
    (found,) = missing(text)
    assert found.endswith(name)


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from verl.utils.gone import thing",
        "from ray.util.placement_group import placement_group",
        "import ray\nray.get(1)",
        f"{SUBCLASS}self.own = 1; self.own.act()",
    ],
)
def test_what_needs_no_row(text: str) -> None:
    assert missing(text) == set()


def test_no_row_is_there_twice() -> None:
    assert len(NAMES) == len(TABLE)
