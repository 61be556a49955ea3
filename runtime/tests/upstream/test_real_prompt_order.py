"""Two epochs of real steps with responses of given lengths, in verl's order and ordered by length, on CPUs."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rljob.planner.rollout.policies import Placement, Policy
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.simulation import simulate
from rljob.planner.rollout.step_time import LinearStepTime, Origin
from rljob.planner.rollout.traces import RolloutRequest, Trace

HERE = Path(__file__).parent
SAVED = 12
"""The step in the middle of the second epoch after which a run is resumed."""
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Run:
    """What one run did, step by step."""

    folder: Path
    seconds: list[float]
    """Of each rollout."""
    rows: list[list[int]]
    """Prompts of each step, once for each response."""
    tokens: list[list[int]]

    @property
    def longest(self) -> list[int]:
        """The tokens of the longest response of each step."""
        return [max(lengths) for lengths in self.tokens]


def trace() -> Any:
    """Return the module with the given lengths, which imports verl."""
    return importlib.import_module("length_trace")


Train = Callable[..., Run]


@pytest.fixture
def train(real_training: Any) -> Train:
    """Return a function that trains and returns what was seen."""

    def run(folder: Path, name: str, steps: int, **wish: Any) -> Run:
        length_trace = trace()
        record = folder / f"{name}.jsonl"
        wish["overrides"] = length_trace.overrides(folder) | wish.get("overrides", {})
        told = real_training(folder, name, HERE, environment={length_trace.RECORD: str(record)}, steps=steps, **wish)
        assert told["notes"] == []
        seconds = [float(step["metrics"]["timing_s/gen"]) for step in told["steps"]]
        responses = [json.loads(line) for line in record.read_text().splitlines()]
        size = length_trace.BATCH * length_trace.SAMPLES
        batches = [responses[start : start + size] for start in range(0, len(responses), size)]
        assert len(batches) == len(seconds)
        rows, tokens = ([[pair[place] for pair in batch] for batch in batches] for place in (0, 1))
        return Run(folder / name, seconds, rows, tokens)

    return run


def predicted(known: Run, run: Run) -> list[float]:
    """Return the seconds that the simulator gives a run's rollouts, by what those of another cost.

    A rollout costs a fixed part, one for each step of the engine and one for each row of a step. The first rollout of a
    run warms up and is left out.
    """
    import numpy as np

    costs = np.array([[1.0, 1e-3 * max(tokens), 1e-3 * sum(tokens)] for tokens in known.tokens])
    (fixed, step, row), *_ = np.linalg.lstsq(costs[1:], np.array(known.seconds[1:]), rcond=None)
    sequences = len(known.tokens[0])
    engine = Engine(1, sequences, LinearStepTime(float(step), float(row), 0.0, "the rollouts of the run"))
    # Without graphs, a step has as many rows as responses.
    policy = Policy("on CPUs", Placement.ADJACENT, tuple(range(1, sequences + 1)))

    def seconds(rows: list[int], tokens: list[int]) -> float:
        # Responses to one prompt are adjacent in a trace.
        requests = tuple(RolloutRequest(*pair) for pair in sorted(zip(rows, tokens, strict=True)))
        trace = Trace("a step", requests, Origin.MEASURED, "the run")
        return float(fixed) + simulate(trace, engine, policy).totals.seconds

    return [seconds(rows, tokens) for rows, tokens in zip(run.rows, run.tokens, strict=True)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder for the inputs and the runs of a test."""
    monkeypatch.syspath_prepend(HERE)
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_the_second_epoch_beside_verls_order_and_a_resume_within_it(folder: Path, train: Train) -> None:
    length_trace = trace()
    epoch = length_trace.STEPS_OF_AN_EPOCH
    ordered: dict[str, Any] = {"optimizations": {"length_aware_order": True}}
    plain = train(folder, "plain", 2 * epoch)
    ours = train(folder, "ordered", 2 * epoch, overrides={"trainer.save_freq": SAVED}, **ordered)
    for run in (plain, ours):
        for steps in (run.rows[:epoch], run.rows[epoch:]):
            drawn = [row for rows in steps for row in set(rows)]
            assert sorted(drawn) == list(range(length_trace.PROMPTS))
    assert [set(rows) for rows in ours.rows[:epoch]] == [set(rows) for rows in plain.rows[:epoch]]
    assert sum(map(sum, ours.tokens)) == sum(map(sum, plain.tokens))
    for name, run in (("verl's order", plain), ("by length", ours)):
        expected = predicted(plain, run)
        for number, part in enumerate((slice(epoch), slice(epoch, None)), 1):
            seconds, longest = sum(run.seconds[part]), sum(run.longest[part])
            print(f"{name}: epoch {number}: {seconds:.2f} s of rollouts, {longest} tokens of the longest responses")
            print(f"  predicted: {sum(expected[part]):.2f} s")
    # Seconds are figures; the work that they follow from is the verdict.
    assert sum(ours.longest[epoch:]) < 0.8 * sum(plain.longest[epoch:])

    resumed = train(
        folder, "resumed", 2 * epoch, resume=str(ours.folder / f"checkpoints/global_step_{SAVED}"), **ordered
    )
    assert [set(rows) for rows in resumed.rows] == [set(rows) for rows in ours.rows[SAVED:]]
