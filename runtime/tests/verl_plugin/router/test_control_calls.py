"""The slowest answer of a replica to a call that costs nothing."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from rljob_runtime.spool.step_metrics import CONTROL_CALL_SECONDS
from rljob_runtime.verl_plugin.router.control_calls import EVERY_SECONDS, ControlCalls


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Replica:
    """Keeps the questions that it was asked."""

    def __init__(self) -> None:
        self.questions: list[Future[Any]] = []

    def ask(self) -> Future[Any]:
        self.questions.append(Future())
        return self.questions[-1]


def started(count: int) -> tuple[Clock, ControlCalls, list[Replica]]:
    clock = Clock()
    return clock, ControlCalls(clock), [Replica() for _ in range(count)]


def test_the_slowest_of_all_answers_is_kept() -> None:
    clock, calls, (one, other) = started(2)
    calls.poll([one.ask, other.ask])
    clock.now += 0.5
    one.questions[0].set_result("address")
    clock.now += 2.5
    other.questions[0].set_result("address")
    clock.now += EVERY_SECONDS
    calls.poll([one.ask, other.ask])
    one.questions[1].set_result("address")
    other.questions[1].set_result("address")
    assert calls.take() == {CONTROL_CALL_SECONDS: 3.0}
    assert calls.take() == {}


def test_a_replica_is_asked_once_in_a_while_and_never_twice_at_a_time() -> None:
    clock, calls, (slow,) = started(1)
    for _ in range(10):
        calls.poll([slow.ask])
        clock.now += EVERY_SECONDS
    assert len(slow.questions) == 1
    slow.questions[0].set_result("address")
    calls.poll([slow.ask])
    slow.questions[1].set_result("address")
    calls.poll([slow.ask])
    assert len(slow.questions) == 2


def test_a_question_that_is_never_answered_counts_as_long_as_it_waits() -> None:
    clock, calls, (stuck,) = started(1)
    calls.poll([stuck.ask])
    clock.now += 11
    assert calls.take() == {CONTROL_CALL_SECONDS: 11.0}
    clock.now += 1
    assert calls.take() == {CONTROL_CALL_SECONDS: 12.0}
    stuck.questions[0].set_result("address")
    assert calls.take() == {CONTROL_CALL_SECONDS: 12.0}


def test_a_replica_that_is_gone_has_no_figure_and_is_asked_again() -> None:
    clock, calls, (gone,) = started(1)
    calls.poll([gone.ask])
    gone.questions[0].set_exception(ConnectionError())
    assert calls.take() == {}
    calls.poll([gone.ask])
    gone.questions[1].cancel()
    gone.questions[1].set_running_or_notify_cancel()
    assert calls.take() == {}
    clock.now += EVERY_SECONDS
    calls.poll([gone.ask])
    assert len(gone.questions) == 3
