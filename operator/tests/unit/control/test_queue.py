"""The queue of keys."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest
from doubles.clock import FrozenClock
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rljob.control.queue import (
    BACKOFF_LAST_SECONDS,
    BEGIN_BEHIND_NEW,
    TURNS,
    TURNS_BEHIND_NEW,
    KeyQueue,
    Lane,
    backoff_seconds,
)
from rljob.telemetry.metrics import Metrics


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def queue(clock: FrozenClock) -> KeyQueue[str]:
    return KeyQueue(clock.monotonic, Metrics())


def drain(queue: KeyQueue[str]) -> list[str]:
    taken = []
    while (key := queue.get_nowait()) is not None:
        taken.append(key)
    return taken


def test_a_key_that_waits_is_not_added_again(queue: KeyQueue[str]) -> None:
    for _ in range(1000):
        queue.add("a")
    queue.add("b")
    assert drain(queue) == ["a", "b"]


def test_a_key_that_turns_dirty_at_work_comes_again_after_it_is_done(queue: KeyQueue[str]) -> None:
    queue.add("a")
    assert queue.get_nowait() == "a"
    queue.add("a")
    assert queue.get_nowait() is None
    queue.done("a")
    assert queue.get_nowait() == "a"


def test_a_key_that_stays_clean_at_work_does_not_come_again(queue: KeyQueue[str]) -> None:
    queue.add("a")
    assert queue.get_nowait() == "a"
    queue.done("a")
    assert queue.get_nowait() is None
    assert queue.idle


def test_a_delayed_key_comes_when_it_is_due(queue: KeyQueue[str], clock: FrozenClock) -> None:
    queue.add_after("a", 5)
    clock.advance(4.9)
    assert queue.get_nowait() is None
    assert queue.next_due_seconds() == pytest.approx(0.1)
    clock.advance(0.2)
    assert queue.get_nowait() == "a"


def test_jobs_that_have_begun_wait_for_no_crowd_of_new_ones(clock: FrozenClock) -> None:
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), lambda key: Lane.NEW if key > "m" else Lane.BEGUN)
    for key in ("x", "y", "a", "b", "c"):
        queue.add(key)
    assert len(queue) == 5
    assert drain(queue) == ["a", "b", "c", "x", "y"]


@pytest.mark.parametrize("lane", [Lane.NEW, Lane.TO_BEGIN])
def test_no_job_waits_for_ever_behind_those_that_have_begun(clock: FrozenClock, lane: Lane) -> None:
    queue: KeyQueue[int] = KeyQueue(clock.monotonic, Metrics(), lambda key: lane if key < 0 else Lane.BEGUN)
    turns = TURNS[lane]
    queue.add(-1)
    for key in range(2 * turns):
        queue.add(key)
    assert [queue.get_nowait() for _ in range(turns)] == [*range(turns - 1), -1]


def test_a_look_at_a_new_job_goes_before_the_beginning_of_others(clock: FrozenClock) -> None:
    def lane_of(key: str) -> Lane:
        return {"b": Lane.BEGUN, "n": Lane.NEW, "t": Lane.TO_BEGIN}[key[0]]

    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), lane_of)
    for key in ("t1", "n1", "t2", "n2", "b1"):
        queue.add(key)
    taken = drain(queue)
    assert taken == ["b1", "n1", "n2", "t1", "t2"]
    for key in taken:
        queue.done(key)
    for lane in "tnb":
        for number in range(TURNS_BEHIND_NEW):
            queue.add(f"{lane}{number}")
    lanes = Counter((queue.get_nowait() or "?")[0] for _ in range(TURNS_BEHIND_NEW))
    assert lanes == {"b": 48, "n": 15, "t": 1}


def test_few_jobs_begin_while_others_wait_to_be_looked_at(clock: FrozenClock) -> None:
    def lane_of(key: str) -> Lane:
        return Lane.NEW if key.startswith("n") else Lane.TO_BEGIN

    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), lane_of, at_once={Lane.NEW: 2, Lane.TO_BEGIN: 8})
    waiting = [str(number) for number in range(10)]
    for key in (*waiting, "n1", "n2", "n3"):
        queue.add(key)
    taken = drain(queue)
    assert taken == ["n1", "n2", *waiting[:BEGIN_BEHIND_NEW]]
    for key in taken:
        queue.done(key)
    assert drain(queue) == ["n3", *waiting[BEGIN_BEHIND_NEW:]]


@pytest.mark.parametrize("lane", [Lane.NEW, Lane.TO_BEGIN])
def test_a_lane_holds_no_more_workers_than_it_may(clock: FrozenClock, lane: Lane) -> None:
    queue: KeyQueue[int] = KeyQueue(
        clock.monotonic, Metrics(), lambda key: lane if key < 0 else Lane.BEGUN, at_once={lane: 2}
    )
    for key in (-1, -2, -3):
        queue.add(key)
    assert [queue.get_nowait() for _ in range(3)] == [-1, -2, None]
    queue.add(7)
    assert queue.get_nowait() == 7
    queue.add(-1)  # it is dirty again, and being processed
    queue.done(7)
    assert queue.get_nowait() is None
    queue.done(-1)
    assert [queue.get_nowait() for _ in range(2)] == [-3, None]


def test_groups_come_by_turns_and_a_crowd_holds_up_only_its_own(clock: FrozenClock) -> None:
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), group_of=lambda key: key[0])
    for key in ("a1", "a2", "a3", "a4"):
        queue.add(key)
    assert queue.get_nowait() == "a1"
    for key in ("b1", "c1", "b2"):
        queue.add(key)
    assert drain(queue) == ["a2", "b1", "c1", "a3", "b2", "a4"]


def test_a_group_that_is_held_back_waits_and_others_do_not(clock: FrozenClock) -> None:
    held = {"a"}

    def may_take(lane: Lane, group: str) -> bool:
        return lane is not Lane.TO_BEGIN or group not in held

    queue: KeyQueue[str] = KeyQueue(
        clock.monotonic, Metrics(), lambda _: Lane.TO_BEGIN, group_of=lambda key: key[0], may_take=may_take
    )
    for key in ("a1", "b1", "a2"):
        queue.add(key)
    assert drain(queue) == ["b1"]
    held.clear()
    queue.done("b1")
    assert drain(queue) == ["a1", "a2"]


def test_a_group_keeps_its_turn_when_one_of_its_keys_goes_to_another_lane(clock: FrozenClock) -> None:
    lanes = dict.fromkeys(("a1", "a2", "b1"), Lane.TO_BEGIN)
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), lanes.__getitem__, group_of=lambda key: key[0])
    for key in lanes:
        queue.add(key)
    lanes["a1"] = Lane.NEW
    queue.add("a1")
    assert drain(queue) == ["a1", "a2", "b1"]
    assert queue.idle is False
    assert len(queue) == 0


def test_a_key_that_waits_goes_to_the_lane_that_has_become_its_own(clock: FrozenClock) -> None:
    metrics, lanes = Metrics(), {"a": Lane.TO_BEGIN, "b": Lane.TO_BEGIN, "c": Lane.BEGUN}
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, metrics, lanes.__getitem__)
    for key in ("a", "b"):
        queue.add(key)
    clock.advance(60)
    lanes["b"] = Lane.NEW
    queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    clock.advance(1)
    assert drain(queue) == ["b", "a"]
    # Since it entered this lane, it has waited for a second.
    assert metrics.queue_wait_seconds.labels(Lane.NEW)._sum.get() == 1.0


def test_a_key_in_hand_goes_to_its_new_lane_when_it_is_given_back(clock: FrozenClock) -> None:
    lanes = {"a": Lane.NEW, "b": Lane.TO_BEGIN}
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), lanes.__getitem__)
    for key in ("a", "b"):
        queue.add(key)
    assert queue.get_nowait() == "a"
    lanes["a"] = Lane.TO_BEGIN
    queue.add("a")
    queue.add("a")
    queue.done("a")
    assert drain(queue) == ["b", "a"]


async def test_a_worker_that_waits_takes_a_new_job_when_another_gives_one_back(clock: FrozenClock) -> None:
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, Metrics(), lambda _: Lane.NEW, at_once={Lane.NEW: 1})
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "a"
    waits = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waits.done()
    queue.done("a")
    async with asyncio.timeout(5):
        assert await waits == "b"


def test_the_time_that_keys_waited_is_measured_by_lane(clock: FrozenClock) -> None:
    metrics = Metrics()
    queue: KeyQueue[str] = KeyQueue(clock.monotonic, metrics, lambda _: Lane.NEW)
    queue.add("a")
    clock.advance(3)
    assert drain(queue) == ["a"]
    waited = {lane: metrics.queue_wait_seconds.labels(lane)._sum.get() for lane in Lane}
    assert waited == {"new": 3.0, "begun": 0.0, "to_begin": 0.0}


def test_of_two_delays_the_earlier_wins_and_the_key_comes_once(queue: KeyQueue[str], clock: FrozenClock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 30)
    clock.advance(2)
    assert queue.get_nowait() == "a"
    queue.done("a")
    clock.advance(100)
    assert queue.get_nowait() is None


def test_long_delays_end_together_and_short_ones_when_they_should(queue: KeyQueue[str], clock: FrozenClock) -> None:
    clock.advance(0.25)
    for key, seconds in (("a", 10.0), ("b", 10.125), ("c", 10.25), ("d", 10.375), ("e", 9.875)):
        queue.add_after(key, seconds)
    clock.advance(9.9375)
    assert drain(queue) == ["e"]
    clock.advance(0.25)
    assert drain(queue) == []
    clock.advance(0.0625)
    assert drain(queue) == ["a", "b", "c"]
    clock.advance(0.5)
    assert drain(queue) == ["d"]


def test_an_event_makes_a_delayed_key_due_at_once(queue: KeyQueue[str], clock: FrozenClock) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    assert drain(queue) == ["a"]
    queue.done("a")
    clock.advance(100)
    assert queue.get_nowait() is None


def test_backoff_doubles_from_half_a_second_to_five_minutes_and_is_repeatable() -> None:
    delays = [backoff_seconds("team/sums", attempt) for attempt in range(40)]
    assert 0.5 <= delays[0] <= 0.6
    assert delays == [backoff_seconds("team/sums", attempt) for attempt in range(40)]
    assert all(delay <= BACKOFF_LAST_SECONDS for delay in delays)
    assert delays[-1] > BACKOFF_LAST_SECONDS / 1.25
    assert delays != [backoff_seconds("team/other", attempt) for attempt in range(40)]


def test_a_forgotten_failure_starts_the_backoff_anew(queue: KeyQueue[str]) -> None:
    first = queue.add_failed("a")
    assert queue.add_failed("a") > first
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_failed("a") == first


def test_a_failed_key_waits_at_least_as_long_as_the_server_wishes(queue: KeyQueue[str]) -> None:
    assert queue.add_failed("a", at_least_seconds=17) == 17


async def test_a_waiting_worker_is_woken_by_an_add(queue: KeyQueue[str]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    async with asyncio.timeout(10):
        assert await waiting == "a"


async def test_waiting_workers_share_the_keys(queue: KeyQueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in "abc":
        queue.add(key)
    async with asyncio.timeout(10):
        assert sorted(await asyncio.gather(*waiting)) == ["a", "b", "c"]


async def test_a_key_rouses_one_of_the_workers_that_wait(queue: KeyQueue[str], monkeypatch: pytest.MonkeyPatch) -> None:
    look, looks = queue.get_nowait, 0

    def counted() -> str | None:
        nonlocal looks
        looks += 1
        return look()

    monkeypatch.setattr(queue, "get_nowait", counted)
    waiting = [asyncio.create_task(queue.get()) for _ in range(16)]
    await asyncio.sleep(0)
    assert looks == 1
    queue.add("a")
    done, others = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == ["a"]
    await asyncio.sleep(0)
    # One that took the key, and the next one, which waits now.
    assert looks == 3
    for task in others:
        task.cancel()
    assert len(await asyncio.gather(*others, return_exceptions=True)) == 15


async def test_a_worker_that_is_ended_while_it_waits_leaves_its_turn_to_the_next(queue: KeyQueue[str]) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    queue.add("a")
    async with asyncio.timeout(10):
        assert await second == "a"


async def test_a_waiting_worker_gets_a_delayed_key() -> None:
    loop = asyncio.get_running_loop()
    queue: KeyQueue[str] = KeyQueue(loop.time, Metrics())
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("c", 60)
    queue.add_after("a", 0.01)
    queue.add_after("b", 0.02)
    async with asyncio.timeout(10):
        assert await waiting == "a"
        assert await queue.get() == "b"


KEYS = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    """Any mix of adds, delays, failures, takes and time: no request is lost and no key is processed concurrently."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FrozenClock()
        self.lanes = dict.fromkeys("abcd", Lane.BEGUN)
        self.queue: KeyQueue[str] = KeyQueue(
            self.clock.monotonic, Metrics(), self.lanes.__getitem__, group_of=lambda key: str(key < "c")
        )
        self.wanted: set[str] = set()
        """Keys with an immediate request that no take has answered."""
        self.due: dict[str, float] = {}
        self.held: set[str] = set()

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.wanted.add(key)
        self.due.pop(key, None)

    @rule(key=KEYS, lane=st.sampled_from(Lane))
    def become(self, key: str, lane: Lane) -> None:
        self.lanes[key] = lane

    @rule(key=KEYS, seconds=st.integers(1, 50))
    def add_after(self, key: str, seconds: int) -> None:
        self.queue.add_after(key, seconds)
        if key not in self.wanted:
            self.due[key] = min(self.due.get(key, float("inf")), self._end(seconds))

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        delay = self.queue.add_failed(key)
        if key not in self.wanted:
            self.due[key] = min(self.due.get(key, float("inf")), self._end(delay))

    @rule(seconds=st.integers(1, 60))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def take(self) -> None:
        self._mature()
        key = self.queue.get_nowait()
        ready = self.wanted - self.held
        assert (key in ready) if ready else (key is None)
        if key is not None:
            self.wanted.discard(key)
            self.held.add(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self.held.discard(key)
        self.queue.done(key)

    @invariant()
    def the_next_delay_is_the_earliest_wish(self) -> None:
        expected = min(self.due.values(), default=None)
        seen = self.queue.next_due_seconds()
        assert (seen is None) == (expected is None)
        if expected is not None:
            assert seen == pytest.approx(max(0.0, expected - self.clock.monotonic()))

    def _end(self, seconds: float) -> float:
        exact = self.clock.monotonic() + seconds
        return exact if seconds < 10 else math.ceil(2 * exact) / 2

    def _mature(self) -> None:
        for key in [key for key, due in self.due.items() if due <= self.clock.monotonic()]:
            del self.due[key]
            self.wanted.add(key)

    def teardown(self) -> None:
        self.clock.advance(10_000)
        self._mature()
        for key in sorted(self.held):
            self.queue.done(key)
        left = drain(self.queue)
        assert sorted(left) == sorted(self.wanted)


TestQueueMachine = QueueMachine.TestCase


@given(st.text(), st.integers(0, 10_000))
def test_every_backoff_is_positive_and_bounded(key: str, attempt: int) -> None:
    assert 0.5 <= backoff_seconds(key, attempt) <= BACKOFF_LAST_SECONDS


def test_a_key_that_is_held_goes_on_where_it_is_dirty_and_does_not_come_twice(queue: KeyQueue[str]) -> None:
    queue.add("a")
    assert queue.get_nowait() == "a"
    assert not queue.again("a")
    queue.add("a")
    assert queue.again("a")
    queue.done("a")
    assert queue.get_nowait() is None
