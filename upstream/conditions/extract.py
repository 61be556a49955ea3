"""Find what upstream code raises or asserts because of configuration or environment.

A condition is the conjunction of the `if` tests around a `raise`, or around an `assert` with its negated test. Only
those are kept that read configuration or environment: by a name such as `config`, `args` or `environ`, by a local name
that was assigned from one, or because the whole file is about configuration. Only the standard library is imported, so
that the seam tests can run this file in the runtime image.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

CONFIGURATION = re.compile(r"(^|_)(config|configs|cfg|conf|args|kwargs|environ|getenv|envs|envs_ascend)$")
"""Names that stand for configuration or environment."""
ENDS = (ast.Return, ast.Continue, ast.Break)
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SHOWN = 160
"""Characters of a condition in the table; its hash covers the whole."""


@dataclass(frozen=True)
class Condition:
    """A place where upstream code refuses its configuration."""

    file: str
    function: str
    """Qualified name, or `<module>`."""
    digest: str
    line: int
    kind: str
    """`raise` or `assert`."""
    text: str
    """When it fails, as a normalised expression; the outer tests are left out first where it is long."""

    @property
    def key(self) -> str:
        """Return what identifies the condition across lines that move."""
        return f"{self.file}:{self.function}:{self.digest}"


def conditions(source: str, file: str, *, whole: bool = False) -> list[Condition]:
    """Return the conditions of a module in order; `whole` keeps all of them, not only those that read configuration."""
    found: dict[str, Condition] = {}
    for function, kind, node, tests in _functions(ast.parse(source)):
        text = " and ".join(tests) or "always"
        digest = hashlib.sha256(f"{kind} {text}".encode()).hexdigest()[:8]
        if text == "always" or not (whole or node.configured):
            continue
        condition = Condition(file, function, digest, node.line, kind, _shown(tests))
        found.setdefault(condition.key, condition)
    return sorted(found.values(), key=lambda condition: condition.line)


def _shown(tests: tuple[str, ...]) -> str:
    """Return a conjunction in at most `SHOWN` characters: the innermost tests say most."""
    kept, left = [tests[-1]], list(tests[:-1])
    while left and len(" and ".join([left[-1], *kept])) + 6 <= SHOWN:
        kept.insert(0, left.pop())
    text = " and ".join(["…", *kept] if left else kept)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


@dataclass(frozen=True)
class Place:
    """The line of a condition, and whether it reads configuration."""

    line: int
    configured: bool


Row = tuple[str, str, Place, tuple[str, ...]]


def _functions(tree: ast.Module) -> Iterator[Row]:
    yield from _Body("<module>", frozenset()).walk(tree.body, (), configured=False)


class _Body:
    """Walks the statements of one function, or of a module or class."""

    def __init__(self, name: str, outer: frozenset[str]) -> None:
        self.name = name
        self.local = outer

    def walk(self, body: list[ast.stmt], tests: tuple[str, ...], *, configured: bool) -> Iterator[Row]:
        """Yield the conditions of statements that run if `tests` hold."""
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from self._inner(node)
            elif isinstance(node, ast.Assert):
                place = Place(node.lineno, configured or self._reads(node.test))
                yield self.name, "assert", place, (*tests, _negated(node.test))
            elif isinstance(node, ast.Raise):
                if node.exc is not None:
                    yield self.name, "raise", Place(node.lineno, configured), tests
            elif isinstance(node, ast.If):
                reads = configured or self._reads(node.test)
                yield from self.walk(node.body, (*tests, _text(node.test)), configured=reads)
                yield from self.walk(node.orelse, (*tests, _negated(node.test)), configured=reads)
                if isinstance(node.body[-1], ENDS) and not node.orelse:
                    tests, configured = (*tests, _negated(node.test)), reads
            else:
                yield from self._other(node, tests, configured=configured)

    def _other(self, node: ast.stmt, tests: tuple[str, ...], *, configured: bool) -> Iterator[Row]:
        """Walk the blocks of a statement that is no condition itself."""
        if isinstance(node, ast.Match):
            for case in node.cases:
                test = f"{_text(node.subject)} is {_text(case.pattern)}"
                yield from self.walk(case.body, (*tests, test), configured=configured or self._reads(node.subject))
            return
        if isinstance(node, ast.Try):
            tried = configured or any(map(self._reads, node.body))
            for handler in node.handlers:
                name = _text(handler.type) if handler.type else "any error"
                yield from self.walk(handler.body, (*tests, f"raised({name})"), configured=tried)
        for block in ("body", "orelse", "finalbody"):
            yield from self.walk(getattr(node, block, []), tests, configured=configured)

    def _inner(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Row]:
        name = node.name if self.name == "<module>" else f"{self.name}.{node.name}"
        inner = _Body(name, self.local)
        if not isinstance(node, ast.ClassDef):
            inner.local |= _derived(node, inner)
        yield from inner.walk(node.body, (), configured=False)

    def _reads(self, node: ast.AST) -> bool:
        """Report whether an expression reads configuration."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and (CONFIGURATION.search(inner.id) or inner.id in self.local):
                return True
            if isinstance(inner, ast.Attribute) and CONFIGURATION.search(inner.attr):
                return True
        return False


def _derived(function: ast.AST, body: _Body) -> frozenset[str]:
    """Return the local names that are assigned from configuration, directly or through another."""
    assigned = [
        ([*node.targets] if isinstance(node, ast.Assign) else [node.target], node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None
    ]
    while True:
        fresh = {
            name.id
            for targets, value in assigned
            if body._reads(value)  # noqa: SLF001 - the same module
            for target in targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        } - body.local
        if not fresh:
            return body.local
        body.local |= fresh


def _negated(test: ast.expr) -> str:
    """Return when a test does not hold."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _text(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in OPPOSITES:
        opposite = OPPOSITES[type(test.ops[0])]()
        return _text(ast.Compare(test.left, [opposite], test.comparators))
    return f"not ({_plain(test)})"


def _text(node: ast.AST) -> str:
    """Return an expression on one line, in brackets where it is a disjunction."""
    return f"({_plain(node)})" if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) else _plain(node)


def _plain(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())
