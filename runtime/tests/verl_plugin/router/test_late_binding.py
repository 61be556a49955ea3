"""Late binding: no request is lost, none starves, no replica gets more than it takes, and the longest go first."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rljob_runtime.verl_plugin.router import late_binding
from rljob_runtime.verl_plugin.router.late_binding import LateBinding, Limits


class World:
    """Replicas that run what they are given. The group of a request is its name without the number."""

    def __init__(self, replicas: str, limits: Limits) -> None:
        self.now = 100.0
        self.binding = LateBinding(replicas, limits, lambda: self.now)
        self.names: dict[int, str] = {}
        self.where: dict[str, str | None] = {}
        self.order: list[str] = []

    def arrive(self, *names: str, settled: bool = True) -> None:
        for name in names:
            self.names[self.binding.arrive(name, name.rstrip("0123456789") or None)] = name
            self.look()
        if settled:
            self.later(late_binding.SETTLE_SECONDS)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    def finish(self, name: str, tokens: int | None = 1) -> None:
        replica = self.where.pop(name)
        assert replica is not None
        assert self.binding.finish(replica, name, tokens)
        self.look()

    def look(self) -> None:
        for placed in self.binding.placed():
            name = self.names.pop(placed.ticket)
            self.where[name] = placed.replica
            self.order.append(name)

    def run(self, lengths: dict[str, int]) -> None:
        """Let everything end, in the order of placing."""
        while self.where:
            name = next(name for name in self.order if name in self.where)
            self.finish(name, lengths[name.rstrip("0123456789")])


def serial() -> World:
    """Return a world in which one request runs, and with more than one that waits two more are spare."""
    return World("a", Limits(sequences=1, engines=1, requests=1_000))


def test_requests_wait_until_a_replica_has_room() -> None:
    world = World("ab", Limits(sequences=2, engines=1, requests=100))
    world.arrive(*(f"x{number}" for number in range(5)))
    assert (world.binding.load, world.binding.waiting) == ({"a": 2, "b": 2}, 1)
    world.finish("x1")
    assert (world.binding.load, world.binding.waiting) == ({"a": 2, "b": 2}, 0)
    world.finish("x0")
    assert sum(world.binding.load.values()) == 3


def test_spare_requests_are_given_while_others_wait_behind_them() -> None:
    world = World("ab", Limits(sequences=128, engines=2, requests=10_000))
    world.arrive(*(f"x{number}" for number in range(1_200)))
    assert world.binding.load == {"a": 260, "b": 260}, "two for each engine"
    for name in list(world.where)[:400]:
        world.later(1.0)
        world.finish(name)
    assert world.binding.load == {"a": 256, "b": 256}, "the last ones are shared out evenly"


def test_more_are_spare_where_responses_end_at_once() -> None:
    world = World("a", Limits(sequences=8, engines=1, requests=100))
    world.arrive(*(f"x{number}" for number in range(60)))
    assert world.binding.load == {"a": 10}
    for _ in range(3):
        world.later(1.0)
        for name in list(world.where)[:8]:
            world.finish(name)
    assert world.binding.load == {"a": 16}, "at most as many as it runs"
    for name in list(world.where):
        world.later(1.0)
        world.finish(name)
    assert world.binding.load["a"] < 16


def test_one_request_of_each_prompt_goes_first_although_they_arrive_one_prompt_after_the_other() -> None:
    world = World("a", Limits(sequences=4, engines=1, requests=100))
    world.arrive(*(f"{group}{number}" for group in "xyz" for number in range(3)), "x3", settled=False)
    assert world.order == ["x0", "y0", "z0"]
    assert 0 < world.binding.settles_in <= late_binding.SETTLE_SECONDS
    world.later(late_binding.SETTLE_SECONDS)
    assert world.order[3:] == ["x1", "y1", "z1"], "and two that are spare, one of each prompt"


def test_requests_that_keep_arriving_hold_the_others_back_for_a_bounded_time() -> None:
    world = World("a", Limits(sequences=2, engines=1, requests=100))
    waited = 0.0
    for number in itertools.count():
        world.arrive(f"x{number}", settled=False)
        if "x1" in world.where:
            break
        world.later(late_binding.SETTLE_SECONDS / 2)
        waited += late_binding.SETTLE_SECONDS / 2
    assert waited == pytest.approx(late_binding.ARRIVAL_SECONDS)


def test_the_longest_group_goes_first_when_the_first_response_of_each_is_known() -> None:
    world = serial()
    world.arrive("s0", "s1", "l0", "l1", "m0", "m1")
    world.run({"s": 10, "l": 1_000, "m": 100})
    assert world.order == ["s0", "l0", "m0", "l1", "m1", "s1"]


def test_a_group_whose_first_request_still_runs_is_preferred_to_a_known_one() -> None:
    world = World("a", Limits(sequences=3, engines=1, requests=100))
    world.arrive("x0", "x1", "x2", "y0", "y1", "y2")
    assert world.order == ["x0", "y0", "x1"]
    world.finish("x0", 5_000)
    assert world.order[-1] == "y1"


def test_what_still_runs_counts_for_its_group() -> None:
    world = World("a", Limits(sequences=3, engines=1, requests=100))
    world.arrive(*(f"x{number}" for number in range(4)), *(f"y{number}" for number in range(9)))
    assert sorted(world.order) == ["x0", "x1", "x2", "y0", "y1"]
    world.now += 10
    world.finish("x0", 100)
    assert world.order[-1] == "y2"
    world.finish("y0", 110)
    assert world.order[-1] == "x3", "the only response of y was longer, but two of x have run as long"


def test_the_lengths_of_an_earlier_step_are_known_in_the_next() -> None:
    world = serial()
    world.arrive("s0", "s1", "l0", "l1")
    world.run({"s": 10, "l": 1_000})
    world.order.clear()
    world.arrive("s2", "s3", "l2", "l3", "new0")
    world.run({"s": 10, "l": 1_000, "new": 1})
    assert world.order[0] == "new0"
    assert world.order[1:] == ["l2", "l3", "s2", "s3"]


def test_the_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_binding, "HISTORY_MAX", 1)
    world = serial()
    for name in ("old0", "newer0"):
        world.arrive(name)
        world.finish(name, 7)
    world.order.clear()
    world.arrive("newer1", "old1", settled=False)
    assert world.order == ["old1"], "of which nothing is known any more"


def test_the_oldest_request_goes_first_when_as_many_as_a_step_has_were_preferred_to_it() -> None:
    world = World("a", Limits(sequences=1, engines=1, requests=10))
    world.arrive("s0", "l0")
    world.run({"s": 1, "l": 1_000})
    world.order.clear()
    world.arrive("l1", "s1")
    for number in itertools.count(2):
        world.arrive(f"l{number}")
        world.finish(next(iter(world.where)), 1_000)
        if "s1" in world.order:
            break
    assert 10 <= world.order.index("s1") <= 12


def test_a_later_turn_goes_to_its_replica_whether_that_has_room_or_not() -> None:
    world = World("ab", Limits(sequences=1, engines=1, requests=100))
    world.arrive("x0", "y0", "z0", "z1")
    first = world.where["x0"]
    world.finish("x0", 10)
    assert world.binding.load == {"a": 1, "b": 1}, "its room was given to another"
    world.arrive("x0", settled=False)
    assert world.where["x0"] == first
    assert max(world.binding.load.values()) == 2
    world.finish("x0", 10)
    world.binding.remove([str(first)])
    world.arrive("x0")
    assert "x0" not in world.where, "it waits for another replica"
    for name in [name for name, replica in world.where.items() if replica != first]:
        world.finish(name)
    assert world.where.get("x0", first) != first or world.binding.waiting


def test_sessions_are_bounded_and_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_binding, "SESSIONS_MAX", 2)
    world = World("ab", Limits(sequences=8, engines=1, requests=2))
    world.arrive("x0", "x1", "x2")
    for name in ("x0", "x1", "x2"):
        world.finish(name)
    assert world.binding.forget_sessions() == 2
    assert world.binding.forget_sessions() == 0


def test_what_was_not_given_cannot_be_returned() -> None:
    world = World("ab", Limits(sequences=1, engines=1, requests=100))
    world.arrive("x0")
    (replica,) = world.where.values()
    other = ({"a", "b"} - {replica}).pop()
    assert not world.binding.finish(other, "x0", 1)
    assert not world.binding.finish(str(replica), "unknown", 1)
    assert world.binding.finish(str(replica), "x0", None)
    assert not world.binding.finish(str(replica), "x0", 1)
    assert set(world.binding.load.values()) == {0}


def test_requests_without_a_group_go_in_the_order_of_arrival() -> None:
    world = serial()
    world.arrive(*"0123456")
    for number in range(7):
        world.finish(str(number), tokens=7 - number)
    assert world.order == list("0123456")


def test_an_abandoned_rollout_ends_what_waits_and_what_comes_late() -> None:
    world = World("a", Limits(sequences=1, engines=1, requests=100))
    world.arrive("x0", "x1", "x2", "x3", "x4", "y0")
    assert (len(world.where), world.binding.waiting) == (3, 3)
    assert world.binding.close() == 3
    world.look()
    world.arrive("late0")
    assert [name for name, replica in world.where.items() if replica is None] == [*world.order[3:6], "late0"]
    assert world.binding.closed
    world.binding.open()
    for name in [name for name, replica in world.where.items() if replica is not None]:
        world.finish(name)
    world.arrive("next0")
    assert world.where["next0"] == "a"
    assert (world.binding.load, world.binding.waiting) == ({"a": 1}, 0)


def test_a_replica_that_goes_takes_its_requests_along_and_a_new_one_takes_those_that_wait() -> None:
    world = World("ab", Limits(sequences=1, engines=1, requests=100))
    world.arrive("x0", "x1", "y0")
    world.binding.remove(["a", "never seen"])
    assert world.binding.load == {"b": 1}
    world.binding.add(["c", "b"])
    world.look()
    assert (world.binding.load, world.binding.waiting) == ({"b": 1, "c": 1}, 0)
    lost = next(name for name, replica in world.where.items() if replica == "a")
    assert not world.binding.finish("a", lost, None)
    world.binding.remove(["b", "c"])
    world.arrive("z0")
    assert world.where["z0"] is None


def test_without_replicas_nothing_waits() -> None:
    world = World("a", Limits(sequences=1, engines=1, requests=100))
    world.arrive("x0", "x1", "x2", "x3", "x4")
    world.binding.remove(["a"])
    world.look()
    assert [world.where[name] for name in ("x3", "x4")] == [None, None]


def test_more_requests_than_the_trainer_sends_do_not_wait() -> None:
    world = World("ab", Limits(sequences=1, engines=1, requests=4))
    world.arrive(*(f"x{number}" for number in range(20)))
    assert world.binding.waiting == 4
    assert sum(world.binding.load.values()) == 16


def test_outdated_entries_of_the_order_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_binding, "RANKS_SPARE", 0)
    world = World("a", Limits(sequences=4, engines=1, requests=1_000))
    world.arrive(*(f"{group}{number}" for group in "uvwxyz" for number in range(40)))
    while world.binding.waiting > 20:
        world.finish(next(iter(world.where)), len(world.order))
        assert len(world.binding._ranks) <= 2 * world.binding.waiting + 8


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("finish"), st.integers(0, 99), st.integers(0, 2_000)),
        st.tuples(st.just("wait"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("add"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("close"), st.just(0), st.just(0)),
        st.tuples(st.just("open"), st.just(0), st.just(0)),
    ),
    max_size=150,
)


class Ledger:
    """Counts what becomes of every request."""

    def __init__(self, limits: Limits) -> None:
        self.now = 0.0
        self.limits = limits
        self.binding = LateBinding("ab", limits, lambda: self.now)
        self.unanswered: dict[int, str] = {}
        self.running: list[tuple[str, str]] = []
        self.sent = 0

    def act(self, action: str, first: int, second: int) -> None:
        """Do one thing."""
        binding = self.binding
        if action == "arrive":
            for _ in range(second + 1):
                self.sent += 1
                name = f"request-{self.sent}"
                self.unanswered[binding.arrive(name, str(first) if first else None)] = name
        elif action == "finish" and self.running:
            replica, name = self.running.pop(first % len(self.running))
            assert binding.finish(replica, name, second or None)
        elif action == "wait":
            self.now += first / 1_000
        elif action == "add":
            binding.add("abcd"[first])
        elif action == "remove":
            binding.remove("abcd"[first])
            self.running = [(replica, name) for replica, name in self.running if replica != "abcd"[first]]
        else:
            {"close": binding.close, "open": binding.open}.get(action, bool)()

    def look(self) -> None:
        """Check what is placed."""
        full = self.binding.waiting > self.limits.requests
        for placed in self.binding.placed():
            name = self.unanswered.pop(placed.ticket)  # fails if it was answered before
            if placed.replica is not None:
                self.running.append((placed.replica, name))
        loads = Counter(replica for replica, _ in self.running)
        assert self.binding.load == {name: loads[name] for name in self.binding.load}
        assert full or max(loads.values(), default=0) <= max(self.limits.running + self.limits.spare, self.most), (
            "a replica has more than it takes"
        )
        self.most = max(loads.values(), default=0)
        assert self.binding.waiting == len(self.unanswered)

    most = 0
    """Requests of the replica that had the most before; more than it takes if too many came."""


@settings(max_examples=300, deadline=None)
@given(actions=ACTIONS, sequences=st.integers(1, 3), requests=st.integers(3, 40))
def test_every_request_is_answered_once_and_no_replica_has_more_than_it_takes(
    actions: list[tuple[str, int, int]], sequences: int, requests: int
) -> None:
    ledger = Ledger(Limits(sequences, 1, requests))
    for action in actions:
        ledger.act(*action)
        ledger.look()
    for action in (("open", 0, 0), ("add", 0, 0), ("wait", 2_000, 0), *[("finish", 0, 5)] * 5_000):
        ledger.act(*action)
        ledger.look()
        if not ledger.unanswered and not ledger.running:
            break
    assert not ledger.unanswered, "a request is lost"
    assert not ledger.binding._groups, "of requests that have ended only the history is kept"
    assert not ledger.binding._running


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), requests=st.integers(5, 60))
def test_none_starves(seed: int, requests: int) -> None:
    """No request waits for more others than a step has and those that came before it."""
    draw = random.Random(seed)  # noqa: S311 - a test
    world = World("ab", Limits(2, 1, requests))
    came: dict[str, int] = {}
    seen = 0
    for number in range(400):
        name = f"{draw.choice('xyz')}{number}"
        came[name] = len(world.order)
        world.arrive(name)
        while len(world.where) > 2 and draw.random() < 0.7:
            ended = draw.choice(list(world.where))
            world.finish(ended, {"x": 1, "y": 50, "z": 900}[ended[0]])
        for placed in world.order[seen:]:
            del came[placed]
        seen = len(world.order)
        # The first that came has waited for most others.
        assert seen - next(iter(came.values()), seen) <= 2 * requests
