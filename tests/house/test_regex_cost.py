"""Every regular expression of operator and runtime does work that is linear in its text, as most texts are foreign."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from rljob.api.secret_shapes import SHAPES
from rljob.cli import kubectl_errors
from rljob.core.attempts import scheduler_messages
from rljob_runtime.exporter import verl_metrics
from tests.house.regex_cost import SEARCHING, superlinear

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "operator/src/rljob", ROOT / "runtime/src/rljob_runtime")
FUNCTIONS = SEARCHING | {"compile", "match", "fullmatch"}
CALL = re.compile(r"\bre\.\w+\(")


@dataclass(frozen=True)
class Use:
    """One call of a function of `re`."""

    place: str
    """File and line."""
    source: str
    """The expression of the pattern."""
    pattern: str | None
    """None if it is not known from the module alone."""
    flags: int
    anchored: bool
    """Whether it is tried at one place of a text only."""


def modules() -> Iterator[Path]:
    for folder in SOURCES:
        yield from sorted(folder.rglob("*.py"))


@functools.cache
def loaded(path: Path) -> ModuleType | None:
    """Import a module; None if it needs a library that is not installed here."""
    root = next(folder for folder in SOURCES if path.is_relative_to(folder))
    name = ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def evaluated(node: ast.expr, module: ModuleType | None) -> object:
    """Return the value of an expression by the names of its module; None if it has others."""
    try:
        names = {"re": re} | (vars(module) if module is not None else {})
        return eval(compile(ast.Expression(node), "pattern", "eval"), dict(names))  # noqa: S307 - our own sources
    except NameError:
        return None


def uses() -> Iterator[Use]:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if not CALL.search(text):
            continue
        tree = ast.parse(text)
        for parent in ast.walk(tree):
            for node in ast.iter_child_nodes(parent):
                if isinstance(node, ast.Call) and is_of_re(node):
                    yield use_of(node, parent, path, text)


def is_of_re(node: ast.Call) -> bool:
    called = node.func
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "re"
        and called.attr in FUNCTIONS
    )


def use_of(node: ast.Call, parent: ast.AST, path: Path, text: str) -> Use:
    module, (pattern, *others) = loaded(path), node.args
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    flags = 0
    for given in (*others, *(word.value for word in node.keywords if word.arg == "flags")):
        if isinstance(value := evaluated(given, module), re.RegexFlag):
            flags |= value
    methods = frozenset({name})
    if name == "compile":
        methods = SEARCHING | FUNCTIONS
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            called = re.findall(rf"\b{parent.targets[0].id}\.(\w+)\(", text)
            rest = len(re.findall(rf"\b{parent.targets[0].id}\b", text)) - 1 - len(called)
            methods = frozenset(called) if rest == 0 else methods
    value = evaluated(pattern, module)
    value = value.decode("latin-1") if isinstance(value, bytes) else value
    return Use(
        f"{path.relative_to(ROOT)}:{node.lineno}",
        ast.unparse(pattern),
        value if isinstance(value, str) else None,
        int(flags),
        not methods & SEARCHING,
    )


BOUNDED = {
    "operator/src/rljob/cli/arguments.py": "argparse's message about the user's own command line",
}
"""Files with patterns that may be superlinear, because nobody else writes their texts."""
BY_USERS = (
    "operator/src/rljob/core/validation/patterns.py",
    "operator/src/rljob/launchers/command/checks.py",
    "runtime/src/rljob_runtime/command/progress.py",
    "runtime/src/rljob_runtime/spool/log_rules.py",
)
"""Files that compile patterns of users: `core.validation.patterns` refuses repeated repetitions, and their texts are
lines of at most 4,096 characters in the user's own pod, where a limit of CPU time applies."""
PARTS = {
    "operator/src/rljob/api/secret_shapes.py": [shape.pattern for shape in SHAPES.values()],
    "operator/src/rljob/cli/kubectl_errors.py": [pattern for _, pattern, _ in kubectl_errors._FIXES],
    "operator/src/rljob/cli/verbs/logs.py": [r"sums-[0-9a-f]{5}-(\d+)"],
    "operator/src/rljob/core/attempts/scheduler_messages.py": [pattern for pattern, _ in scheduler_messages.REASONS],
    "operator/src/rljob/cli/local/paths.py": [r"(?:(?<![\w./-])|(?<=file://))(/data|/code)(?![\w.-])"],
    "operator/src/rljob/core/scheduling/held_nodes.py": [r"(\d{1,9}) Insufficient huawei\.com/Ascend910(?![\w-])"],
    "operator/src/rljob/core/validation/images.py": ["[a-f0-9]{64}"],
    "runtime/src/rljob_runtime/command/attempt_folders.py": [r"step-(?P<step>\d{1,9})-(?P=step)\.pt"],
    "runtime/src/rljob_runtime/exporter/verl_metrics.py": [
        row.pattern.pattern for row in verl_metrics.ROWS if "{" in row.key
    ],
}
"""Patterns of a file that are put together from parts, as they are in the end, or examples of them."""
MATCHED_WHOLE = frozenset(
    {
        "operator/src/rljob/core/attempts/scheduler_messages.py",
        "operator/src/rljob/core/validation/images.py",
        "runtime/src/rljob_runtime/command/attempt_folders.py",
        "runtime/src/rljob_runtime/exporter/verl_metrics.py",
    }
)
"""Those of them that use match or fullmatch."""


def cases() -> Iterator[object]:
    for use in uses():
        file = use.place.partition(":")[0]
        if use.pattern is not None and file not in BOUNDED:
            yield pytest.param(use.pattern, use.flags, use.anchored, id=use.place)
    for file, patterns in PARTS.items():
        yield from (
            pytest.param(each, 0, file in MATCHED_WHOLE, id=f"{file}[{number}]") for number, each in enumerate(patterns)
        )


@pytest.mark.parametrize(("pattern", "flags", "anchored"), [*cases()])
def test_the_work_of_a_pattern_is_linear_in_its_text(pattern: str, flags: int, *, anchored: bool) -> None:
    text = superlinear(pattern, flags, anchored=anchored)
    assert text is None, f"{pattern!r} does much more work on twice of {text!r}; use possessive parts, or bound them"


def test_every_pattern_is_known_here() -> None:
    unknown = {use.place.partition(":")[0] for use in uses() if use.pattern is None}
    assert unknown == {*BY_USERS, *PARTS}


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        (r"\b[\w-]*(?:token|password)[\w-]*\s*[=:]", 0),  # tried at every character of a long word
        (r"(a+)+b", 0),
        (r"(a|a)*b", 0),
        (r"\s+$", 0),
        (r"a.*b.*c", 0),
        (r"\w+\w+x", 0),
        (r"(?:x*)*y", 0),
        (r"(?s)<.*?>;", 0),
        (r"(?=.*a)b", 0),
        (r"([a-z]+\d*)*!", re.IGNORECASE),
    ],
)
def test_superlinear_patterns_are_found(pattern: str, flags: int) -> None:
    assert superlinear(pattern, flags) is not None


@pytest.mark.parametrize(
    "pattern",
    [r"\x1b\[[0-9;]*m", r"(?<!\w)\w++\s*+=", r"(?>a+)b?", r"x.{1,200}y", r"[a-z]{2,5}$", r"^\s*+#", r"(.)\1"],
)
def test_linear_patterns_are_not_found(pattern: str) -> None:
    assert superlinear(pattern) is None
