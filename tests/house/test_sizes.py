"""No file has more than 500 lines, no function more than 80."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80


def python_files() -> list[Path]:
    folders = ("operator", "runtime", "scripts", "tests", "benchmarks", "upstream")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


@dataclass(frozen=True)
class Sizes:
    """What the tests ask about every file, for which each is read and parsed once."""

    lines: dict[str, int]
    functions: dict[str, int]
    silent: list[str]


@functools.cache
def sizes() -> Sizes:
    found = Sizes({}, {}, [])
    for path in python_files():
        name, text = str(path.relative_to(ROOT)), path.read_text()
        tree = ast.parse(text)
        found.lines[name] = len(text.splitlines())
        found.functions.update((f"{name}:{function}", length) for function, length in functions(tree))
        if not ast.get_docstring(tree):
            found.silent.append(name)
    return found


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_longer_than_500_lines() -> None:
    assert {path: length for path, length in sizes().lines.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_80_lines() -> None:
    assert {name: length for name, length in sizes().functions.items() if length > MAX_FUNCTION_LINES} == {}


def test_every_module_opens_with_a_docstring() -> None:
    assert sizes().silent == []
