"""The page of failure modes against the code: every reason that a user can see when something is wrong has a row."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rljob.core.attempts.classify import POD_REASONS, REASONS, FailureRow
from rljob.core.attempts.start_diagnosis import StartReason
from rljob.core.reasons import Reason
from rljob.core.scheduling.kueue import EVICTIONS
from rljob_runtime.contract import ExitCode
from rljob_runtime.node_checks.evaluate import Check
from rljob_runtime.outcomes import DEVICE_OUT_OF_MEMORY, FENCED, PLACE_ERRORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failure-modes.md").read_text()
CELL_LIMIT = 250
"""Characters of a cell: a row that is longer cannot be scanned."""
COLUMNS = "| reason | counts as | cause | what happens | what to do |"
NO_FAILURE = {
    *(Reason.VALID, Reason.SPEC_CHANGED, Reason.RECIPE_CHANGED, Reason.RENDERER_CHANGED, Reason.UP_TO_DATE),
    Reason.RUNTIME_CHANGED,
    *(Reason.INITIALIZER_RUNNING, Reason.INITIALIZED, Reason.CLUSTER_STARTING, Reason.CLUSTER_READY),
    *(Reason.WAITING_FOR_QUEUE, Reason.ADMITTED, Reason.SUBMITTED, Reason.TRAINING, Reason.HEALTHY),
    *(Reason.SUSPENDING, Reason.SUSPENDED, Reason.RESTARTING, Reason.UNPAUSED, Reason.RESUMED),
    *(Reason.CHECKPOINT_SAVED, Reason.SUCCEEDED, "Completed", "Evaluated", "Stopped"),
}
"""Normal stages of a job, requests of its owner, or a step on the way to a reason that has a row."""


def _reason_rows() -> Iterator[tuple[str, ...]]:
    """Yield the cells of every row in a table whose first column is the reason."""
    inside = False
    for line in PAGE.splitlines():
        inside = line == COLUMNS or (inside and line.startswith("|"))
        if inside and line.startswith("| `"):
            yield tuple(cell.strip() for cell in line.strip("|").split(" | "))


ROWS = tuple(_reason_rows())
TAKE_REASONS = ("RefusedError", "_refused", "Outcome", "_wait")


@functools.cache
def _calls() -> tuple[ast.Call, ...]:
    """Return the calls of the runtime, in files that name one of those that take a reason."""
    texts = (path.read_text() for path in sorted((ROOT / "runtime" / "src" / "rljob_runtime").rglob("*.py")))
    trees = (ast.parse(text) for text in texts if any(f"{name}(" in text for name in TAKE_REASONS))
    return tuple(node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))


def _refusals() -> Iterator[tuple[str, ExitCode]]:
    """Yield every reason that the launcher raises with its exit code."""
    for node in _calls():
        match node:
            case ast.Call(
                func=ast.Name(id="RefusedError"),
                args=[ast.Attribute(attr=code), ast.Constant(value=str(word)), *_],
            ):
                yield word, ExitCode[code]


def _endings() -> Iterator[str]:
    """Yield every reason with which the launcher refuses to start or ends, found by the calls that take one."""
    for node in _calls():
        match node:
            case ast.Call(func=ast.Name(id="RefusedError" | "_refused"), args=[_, ast.Constant(value=str(word)), *_]):
                yield word
            case ast.Call(func=ast.Name(id="Outcome"), args=[_, ast.Constant(value=str(word)), *_]):
                yield word
            case ast.Call(func=ast.Name(id="_wait"), args=[_, _, ast.Constant(value=str(word)), *_]):
                yield word


TESTS = ("operator/tests", "runtime/tests", "tests")
CHECKS = {check.reason for check in Check}
ENDINGS = {*_endings(), *PLACE_ERRORS.values(), FENCED, DEVICE_OUT_OF_MEMORY}
WORDS = sorted({*Reason, *StartReason, *REASONS, *POD_REASONS, *EVICTIONS, *CHECKS, *ENDINGS} - NO_FAILURE)


def test_the_launchers_own_reasons_are_found() -> None:
    assert {"CheckpointTopology", "UnknownOverride", "WrongPod", "HeadBusy", "StoppedWithoutCheckpoint"} <= set(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_every_reason_has_a_row_that_begins_with_it(word: str) -> None:
    assert any(f"`{word}`" in cells[0] for cells in ROWS), (
        f"{word}: no row of docs/failure-modes.md begins with it and says what it means and what to do"
    )


@pytest.mark.parametrize(("word", "code"), sorted(set(_refusals())))
def test_a_row_has_the_exit_code_of_its_reason(word: str, code: ExitCode) -> None:
    if word in NO_FAILURE:
        return
    for cells in (cells for cells in ROWS if f"`{word}`" in cells[0]):
        assert f"({int(code)})" in cells[1], f"{word} ends with exit code {int(code)}, but its row says {cells[1]}"


@pytest.mark.parametrize("word", sorted({*REASONS, *POD_REASONS} - NO_FAILURE))
def test_a_row_counts_as_its_cause_in_the_table(word: str) -> None:
    table: Mapping[str, FailureRow] = {**REASONS, **POD_REASONS}
    rows = [cells[1] for cells in ROWS if f"`{word}`" in cells[0]]
    assert any(str(table[word].cause) in counted for counted in rows), (
        f"{word} counts as {table[word].cause}, but its rows say {rows}"
    )


def _tests() -> str:
    """Return the text of every test but this one."""
    files = (path for folder in TESTS for path in sorted((ROOT / folder).rglob("*.py")) if path != Path(__file__))
    return "\n".join(path.read_text() for path in files)


def test_every_reason_is_asserted_by_a_test() -> None:
    names: dict[str, list[str]] = {word: [f'"{word}"'] for word in WORDS}
    for enumeration in (Reason, StartReason):
        for member in enumeration:
            names.setdefault(str(member), []).append(f"{enumeration.__name__}.{member.name}")
    for check in Check:
        names.setdefault(check.reason, []).append(f"Check.{check.name}")
    text = _tests()
    missing = [word for word in WORDS if not any(name in text for name in names[word])]
    assert missing == []


def test_rows_are_complete_and_short() -> None:
    assert len(ROWS) > len(WORDS) // 2
    for cells in ROWS:
        assert len(cells) == COLUMNS.count("|") - 1, f"{cells[0]}: {len(cells)} cells"
        assert all(cells), f"{cells[0]} has an empty cell"
    for line in PAGE.splitlines():
        for cell in line.strip("|").split(" | ") if line.startswith("| ") else ():
            assert len(cell) <= CELL_LIMIT, f"{len(cell)} characters, at most {CELL_LIMIT}: {cell}"
