"""No file has more than 500 lines, no function more than 80."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80


def python_files() -> list[Path]:
    folders = ("operator", "runtime", "scripts", "tests", "benchmarks")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python_files()}
    assert {path: length for path, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_80_lines() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": length
        for path in python_files()
        for name, length in functions(path)
        if length > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_every_module_opens_with_its_story() -> None:
    silent = [
        str(path.relative_to(ROOT)) for path in python_files() if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []
