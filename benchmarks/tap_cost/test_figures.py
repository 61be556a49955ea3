"""From steps to the cost: pairs are complete, a drift cancels out, and the spread is reported."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.tap_cost.figures import WARM_UP_PAIRS, Step, bootstrap, cost, is_on, pairs
from benchmarks.tap_cost.shared import Holder, Shared
from benchmarks.tap_cost.switch import Stopwatch, process_seconds, processor_seconds

COUNT = 80


def step(index: int, seconds: float = 2.0, within: float = 0.0, processor: float = 3.0, holders: float = 0.5) -> Step:
    on = is_on(index)
    share = within / 3 if on else 0.0
    parts = {"hooks": share, "stop_requests": share, "router": share}
    return Step(index, on, seconds, **parts, samples=0.0, requests=256, processor=processor, holders=holders)


def test_pairs_begin_with_the_one_and_with_the_other_arm() -> None:
    assert [is_on(index) for index in range(8)] == [True, False, False, True, True, False, False, True]


def test_every_pair_has_a_step_with_and_one_without_taps() -> None:
    found = pairs([step(index) for index in range(COUNT)])
    assert len(found) == COUNT // 2 - WARM_UP_PAIRS
    assert all(on.on and not off.on and on.index // 2 == off.index // 2 for on, off in found)


def test_a_pair_that_lacks_a_step_is_left_out() -> None:
    found = pairs([step(index) for index in range(COUNT) if index not in (9, COUNT - 1)])
    assert len(found) == COUNT // 2 - WARM_UP_PAIRS - 2
    assert pairs([]) == []


def test_the_share_within_our_code_is_of_the_step_with_taps() -> None:
    found = cost(pairs([step(index, within=0.02) for index in range(COUNT)]))
    assert found.within.mean == pytest.approx(0.01)
    assert found.within_seconds == pytest.approx(0.02)
    assert sum(found.parts.values()) == pytest.approx(0.02)


def test_a_difference_is_found_with_its_sign() -> None:
    slower = [step(index, seconds=2.1 if is_on(index) else 2.0) for index in range(COUNT)]
    assert cost(pairs(slower)).difference.mean == pytest.approx(0.05)


def test_processor_time_is_compared_for_itself() -> None:
    found = cost(pairs([step(index, processor=3.03 if is_on(index) else 3.0) for index in range(COUNT)]))
    assert found.processor.mean == pytest.approx(0.01)
    assert found.difference.mean == pytest.approx(0)


def test_the_processes_of_the_taps_are_compared_for_themselves_with_the_step() -> None:
    found = cost(pairs([step(index, holders=0.51 if is_on(index) else 0.5) for index in range(COUNT)]))
    assert found.holders.mean == pytest.approx(0.005)
    assert found.holders_seconds == pytest.approx(0.5)
    assert found.processor.mean == pytest.approx(0)


def test_a_machine_of_changing_pace_does_not_hide_what_the_taps_cost() -> None:
    """Every step's CPU time is scaled; at the mean pace of 1.2, the taps take 24 ms of steps of 2 s."""
    stretched = []
    for index in range(COUNT):
        pace = 1 + (index % 5) / 10
        held = 0.52 if is_on(index) else 0.5
        stretched.append(step(index, processor=pace * (2.5 + held), holders=pace * held))
    found = cost(pairs(stretched))
    assert found.paced.mean == pytest.approx(0.012, abs=1e-4)
    assert found.paced.high - found.paced.low < 0.001
    assert found.holders.high - found.holders.low > 0.01


def test_the_clock_of_a_process_is_its_processor_time() -> None:
    before, sum_of_squares, after = (
        time.process_time(),
        sum(n * n for n in range(100_000)),
        process_seconds(os.getpid()),
    )
    assert sum_of_squares
    assert before < after <= time.process_time()


def test_a_process_that_reported_nothing_holds_no_tap(tmp_path: Path) -> None:
    Shared.create(tmp_path)
    one, other = Shared(tmp_path), Shared(tmp_path)
    assert other.holders == frozenset()
    one.hold(Holder.EXPORTER, 7)
    one.hold(Holder.ROUTER, 5)
    assert other.holders == {5, 7}
    assert (other.on, other.router) == (False, (0.0, 0))


def test_both_versions_of_cgroups_are_read(tmp_path: Path) -> None:
    unified, older = tmp_path / "cpu.stat", tmp_path / "cpuacct.usage"
    unified.write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert processor_seconds(unified, older) == pytest.approx(2.5)
    older.write_text("1500000000\n")
    assert processor_seconds(unified, older) == pytest.approx(1.5)


def test_a_run_that_gets_slower_is_no_cost_of_the_taps() -> None:
    drifting = [step(index, seconds=2 + index / 100) for index in range(COUNT)]
    assert cost(pairs(drifting)).difference.mean == pytest.approx(0, abs=1e-12)


def test_the_interval_holds_the_mean_and_grows_with_the_noise() -> None:
    calm, wild = (bootstrap([1 + noise * (-1) ** n * (n % 7) for n in range(40)]) for noise in (0.01, 0.1))
    assert calm.low < calm.mean < calm.high
    assert wild.high - wild.low > 5 * (calm.high - calm.low)


def test_a_stopwatch_counts_a_call_without_the_timed_calls_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 4.0, 6.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    inner = watch.timed(lambda: None, "verl")
    watch.timed(inner, "hooks")()
    assert watch.seconds == {"verl": 3.0, "hooks": 3.0}


def test_what_one_process_writes_the_other_reads(tmp_path: Path) -> None:
    Shared.create(tmp_path)
    one, other = Shared(tmp_path), Shared(tmp_path)
    assert (other.on, other.router) == (False, (0.0, 0))
    one.switch(on=True)
    one.router = (0.5, 7)
    assert (other.on, other.router) == (True, (0.5, 7))
