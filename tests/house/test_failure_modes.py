"""The page of failure modes against the code: every word that a user can meet when something is wrong has a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rljob.core.attempts.classify import POD_REASONS, REASONS
from rljob.core.attempts.start_diagnosis import StartReason
from rljob.core.reasons import Reason
from rljob.core.scheduling.kueue import EVICTIONS
from rljob_runtime.node_checks.judge import Check
from rljob_runtime.outcomes import DEVICE_OUT_OF_MEMORY, FENCED, PLACE_ERRORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failure-modes.md").read_text()
ROWS = [line for line in PAGE.split("\n## ", 1)[0].splitlines() if line.startswith("| ")]
"""Of the first table: what ends or holds up a job."""
NO_FAILURE = {
    *(Reason.VALID, Reason.SPEC_CHANGED, Reason.RECIPE_CHANGED, Reason.RENDERER_CHANGED, Reason.UP_TO_DATE),
    *(Reason.INITIALIZER_RUNNING, Reason.INITIALIZED, Reason.CLUSTER_STARTING, Reason.CLUSTER_READY),
    *(Reason.WAITING_FOR_QUEUE, Reason.ADMITTED, Reason.SUBMITTED, Reason.TRAINING, Reason.HEALTHY),
    *(Reason.SUSPENDING, Reason.SUSPENDED, Reason.RESTARTING, Reason.UNPAUSED, Reason.RESUMED),
    *(Reason.CHECKPOINT_SAVED, Reason.SUCCEEDED, "Completed", "Evaluated", "Stopped"),
}
"""A job's life, its owner's wishes, or a word on the way to another one that has a row."""


def _endings() -> Iterator[str]:
    """Give every reason with which the launcher refuses to go on, or ends, by name of the call that is told it."""
    for path in sorted((ROOT / "runtime" / "src" / "rljob_runtime").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="RefusedError" | "_refused"), args=[_, ast.Constant(value=str(word)), *_]
                ):
                    yield word
                case ast.Call(func=ast.Name(id="Outcome"), args=[_, ast.Constant(value=str(word)), *_]):
                    yield word
                case ast.Call(func=ast.Name(id="_wait"), args=[_, _, ast.Constant(value=str(word)), *_]):
                    yield word


CHECKS = {check.reason for check in Check}
ENDINGS = {*_endings(), *PLACE_ERRORS.values(), FENCED, DEVICE_OUT_OF_MEMORY}
WORDS = sorted({*Reason, *StartReason, *REASONS, *POD_REASONS, *EVICTIONS, *CHECKS, *ENDINGS} - NO_FAILURE)


def test_the_launcher_has_words_of_its_own() -> None:
    assert {"CheckpointTopology", "UnknownOverride", "WrongPod", "HeadBusy", "StoppedWithoutCheckpoint"} <= set(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_what_can_go_wrong_has_a_row(word: str) -> None:
    assert any(re.search(rf"\b{word}\b", row) for row in ROWS), (
        f"{word}: docs/failure-modes.md does not say what it means and what to do"
    )
