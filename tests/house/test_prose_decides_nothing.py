"""No step decides by the words of a message: the reason of a condition, or a field of the status, has the fact."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "operator" / "src" / "rljob" / "core"
MODULES = [path for folder in ("steps", "transitions") for path in sorted((CORE / folder).glob("*.py"))]
READS = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "find", "index", "splitlines"}
MATCHES = {"match", "fullmatch", "search", "findall", "finditer"}
ALLOWED = {("children.py", "condition.message.startswith(subject)")}
"""Keeps the first of several texts about one child that was refused; nothing but the text depends on it."""


def reads_of_messages(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            if called.attr in READS and _is_message(called.value):
                yield ast.unparse(node)
            if called.attr in MATCHES and any(map(_is_message, node.args)):
                yield ast.unparse(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield from (ast.unparse(node) for held in node.comparators if _is_message(held))


def _is_message(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "message"


@pytest.mark.parametrize(
    "source",
    ["told.message.startswith('a')", "WRITTEN.fullmatch(told.message)", "'of 3' in context.status.message"],
)
def test_each_way_to_read_a_message_is_found(source: str) -> None:
    assert list(reads_of_messages(source)) == [source]


def test_no_step_reads_a_message() -> None:
    found = {(path.name, read) for path in MODULES for read in reads_of_messages(path.read_text())}
    assert found == ALLOWED
