"""The keys that the operator calls unread are those that no module of a run reads in the installed verl."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from rljob.launchers.verl.unread_keys import BY_HAND, FOUND, PASSED_ON
from rljob_runtime.planning import verl

ROOTS = (
    "verl.trainer.main_ppo",
    "verl.workers.engine_workers",
    "verl.workers.engine",
    "verl.workers.rollout.vllm_rollout",
    "verl.checkpoint_engine",
    "verl.experimental.agent_loop",
    "verl.experimental.reward_loop",
)
SCHEMA = ("verl.workers.config", "verl.trainer.config")
"""Classes that hold the keys."""


@pytest.fixture(scope="module")
def read() -> set[str]:
    """Return the names that the modules of a run contain: attributes, parameters, and words of texts."""
    found: set[str] = set()
    for name, tree in modules().items():
        if name.startswith(SCHEMA):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(node.value.replace(".", " ").split())
            elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                found.add(node.arg)
    return found


def modules() -> dict[str, ast.Module]:
    """Return the modules that a run imports, also within functions, by name."""
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent.parent
    trainer = (root / "verl/trainer/ppo/v1").rglob("*.py")
    waiting = [*ROOTS, *(".".join(path.relative_to(root).with_suffix("").parts) for path in trainer)]
    found: dict[str, ast.Module] = {}
    known: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known or not f"{name}.".startswith("verl."):
            continue
        known.add(name)
        path = root.joinpath(*name.split("."))
        path = path / "__init__.py" if (path / "__init__.py").exists() else path.with_suffix(".py")
        if path.exists():
            found[name] = ast.parse(path.read_text())
            waiting += [name.rpartition(".")[0], *imported(name, found[name], package=path.name == "__init__.py")]
    return found


def imported(name: str, tree: ast.Module, *, package: bool) -> Iterator[str]:
    """Yield the names of modules that a module imports, and of what it takes from them, which may be modules."""
    parts = name.split(".") if package else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else []
            whole = ".".join([*base, *([node.module] if node.module else [])])
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names)


def keys() -> set[str]:
    return {*verl.keys(megatron=False), *verl.keys(megatron=True)}


def test_what_is_called_unread_is_read_nowhere(read: set[str]) -> None:
    assert {key for key in FOUND if key.rpartition(".")[2] in read} == set()


def test_everything_that_is_read_nowhere_is_known(read: set[str]) -> None:
    unread = {key for key in keys() if key.rpartition(".")[2] not in read and "._" not in key}
    assert {key for key in unread if not any(part in f"{key}." for part in PASSED_ON)} == set(FOUND)


def test_the_names_of_the_others_are_read_for_another_key(read: set[str]) -> None:
    assert set(BY_HAND) <= keys()
    assert {key.rpartition(".")[2] for key in BY_HAND} <= read
