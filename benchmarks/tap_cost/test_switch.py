"""The switch in the trainer's process.

Disabled taps do nothing, every step is recorded, and verl's own time is excluded.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.tap_cost import switch
from benchmarks.tap_cost.figures import Step, is_on
from benchmarks.tap_cost.shared import STEPS_FILE, Shared
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.step_metrics import RolloutWindow
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.router.replica_times import ReplicaTimes

STEPS = 8


class Base:
    """verl's part of the trainer."""

    clock: Clock

    def on_step_begin(self) -> None:
        self.clock.now += 1

    def on_step_end(self) -> None:
        self.clock.now += 10

    def _compute_metrics(self) -> None:
        self.clock.now += 100


class Clock:
    """Time that only the fakes advance."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def trainer_of(clock: Clock, run: Any, asked: list[int]) -> type:  # noqa: ANN401 - stands in for a TrainingAttempt
    class SyncTrainer(Base):
        """Our trainer: each hook takes a thousandth of a second in addition to verl's time."""

        def __init__(self) -> None:
            self.clock = clock
            self.step = 0

        def on_step_begin(self) -> None:
            super().on_step_begin()
            run.step_began()
            self.step += 1
            self._take_window()

        def on_step_end(self) -> None:
            clock.now += 0.001
            super().on_step_end()

        def _compute_metrics(self) -> None:
            super()._compute_metrics()
            clock.now += 0.002
            run.own_metrics({}, RolloutWindow())
            run.record(self.step, {})

        def _take_window(self) -> RolloutWindow:
            asked.append(self.step)
            return RolloutWindow()

    return SyncTrainer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the benchmark's folder; what the switch replaces is restored afterwards."""
    for owner, names in (
        (TrainingAttempt, ("own_metrics", "record", "stop_mode", "step_began")),
        (ReplicaTimes, ("acquired", "released")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    for name in switch.HOOKS:
        monkeypatch.setattr(Base, name, getattr(Base, name))
    Shared.create(tmp_path)
    return tmp_path


@pytest.fixture
def steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Step], list[int], list[int]]:
    """Train for some steps; return the records and the steps in which the router was asked and records were written."""
    clock, asked, recorded = Clock(), list[int](), list[int]()
    monkeypatch.setattr(TrainingAttempt, "own_metrics", lambda *_: {"figure": 1.0})
    monkeypatch.setattr(TrainingAttempt, "record", lambda _, step, __: recorded.append(step))
    monkeypatch.setattr(TrainingAttempt, "step_began", lambda *_, **__: None)
    monkeypatch.setattr("time.perf_counter", clock)
    switch.install(folder)
    run = TrainingAttempt.__new__(TrainingAttempt)
    module = ModuleType(switch.TRAINER_MODULE)
    kind = trainer_of(clock, run, asked)
    module.SyncTrainer = kind  # type: ignore[attr-defined] # stands in for a module that needs verl
    monkeypatch.setitem(sys.modules, switch.TRAINER_MODULE, module)
    samples = ModuleType(switch.SAMPLES_MODULE)
    samples.Sampler = type("Sampler", (), {"after_step": lambda _: None})  # type: ignore[attr-defined] # the same
    monkeypatch.setitem(sys.modules, switch.SAMPLES_MODULE, samples)
    trainer = kind()
    for _ in range(STEPS + 1):
        trainer.on_step_begin()
        trainer.on_step_end()
        trainer._compute_metrics()
    found = [Step.read(json.loads(line)) for line in (folder / STEPS_FILE).read_text().splitlines()]
    return found, asked, recorded


def test_every_step_is_recorded_with_its_arm_and_its_whole_time(steps: tuple[list[Step], list[int], list[int]]) -> None:
    found, _, _ = steps
    assert [step.index for step in found] == list(range(STEPS))
    assert [step.on for step in found] == [is_on(index) for index in range(STEPS)]
    assert {round(step.seconds, 6) for step in found} == {111.003}


def test_the_processor_time_of_the_trainers_process_is_recorded(steps: tuple[list[Step], list[int], list[int]]) -> None:
    found, _, _ = steps
    assert all(0 < step.holders < 10 for step in found)


def test_the_time_of_verls_own_methods_is_not_ours(steps: tuple[list[Step], list[int], list[int]]) -> None:
    found, _, _ = steps
    # In the first step the trainer has only just been found.
    assert {round(step.hooks, 6) for step in found[1:]} == {0.003}


def test_with_the_taps_off_no_router_is_asked_and_nothing_is_recorded(
    steps: tuple[list[Step], list[int], list[int]],
) -> None:
    _, asked, recorded = steps
    on = [index + 1 for index in range(STEPS + 1) if is_on(index)]
    assert recorded == asked == on


def test_the_routers_clock_counts_its_own_time_and_stands_still_when_off(folder: Path) -> None:
    switch.install(folder)
    shared, times = Shared(folder), ReplicaTimes(lambda: 5.0)
    times.acquired("a")
    assert shared.router == (0.0, 0)
    assert not shared.holders
    shared.switch(on=True)
    times.acquired("a")
    times.released("a")
    seconds, calls = shared.router
    assert calls == 2
    assert seconds > 0
    assert shared.holders == {os.getpid()}


def test_a_run_whose_taps_are_off_hears_a_stop_all_the_same(folder: Path) -> None:
    switch.install(folder)
    run = TrainingAttempt.__new__(TrainingAttempt)
    run.spool, run.attempt, run.called, run.reported = Spool(folder), 1, None, None
    assert run.stop_mode() is None
