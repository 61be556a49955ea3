"""The Lease: one leader, which knows in time that it no longer leads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster, fail_calls

from rljob.cluster.errors import Conflict, Unavailable
from rljob.cluster.kinds import LEASE
from rljob.control import lease as lease_module
from rljob.control.lease import LeaseHolder, LeaseLostError, OwnThread, ThreadedLease
from rljob.core.observed import Manifest
from rljob.telemetry.metrics import Metrics


class World:
    """Processes that compete for one Lease, each with its own clock."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()

    def holder(self, identity: str) -> tuple[LeaseHolder, FrozenClock]:
        clock = FrozenClock()
        return LeaseHolder(self.cluster, clock, Metrics(), "system", "rljob-operator", identity), clock

    def lease(self) -> dict[str, Any]:
        found = self.cluster.find(LEASE, "system", "rljob-operator")
        assert found is not None
        return dict(found["spec"])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[FrozenClock]:
    """Make every sleep of the Lease advance these clocks instead."""
    clocks: list[FrozenClock] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        for clock in clocks:
            clock.advance(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clocks


async def test_a_free_lease_is_taken_at_once(world: World) -> None:
    holder, _ = world.holder("a")
    await holder.acquire()
    assert world.lease()["holderIdentity"] == "a"


async def test_a_lease_that_was_given_back_is_taken_at_once(world: World) -> None:
    first, _ = world.holder("a")
    second, _ = world.holder("b")
    await first.acquire()
    await first.release()
    await second.acquire()
    assert world.lease()["holderIdentity"] == "b"
    assert world.lease()["leaseTransitions"] == 1


async def test_a_standby_waits_until_the_record_has_stood_still(world: World, sleeps: list[FrozenClock]) -> None:
    first, _ = world.holder("a")
    second, clock = world.holder("b")
    sleeps.append(clock)
    await first.acquire()
    await second.acquire()
    assert clock.monotonic() > lease_module.DURATION_SECONDS
    assert world.lease()["holderIdentity"] == "b"


async def test_a_leader_whose_lease_was_taken_stops(world: World, sleeps: list[FrozenClock]) -> None:
    first, clock = world.holder("a")
    second, other = world.holder("b")
    sleeps.append(other)
    await first.acquire()
    await second.acquire()
    sleeps.append(clock)
    with pytest.raises(LeaseLostError, match="held by 'b'"):
        await first.hold()


async def test_a_leader_that_cannot_renew_stops_before_anybody_may_follow(
    world: World, sleeps: list[FrozenClock]
) -> None:
    holder, clock = world.holder("a")
    sleeps.append(clock)
    await holder.acquire()
    world.cluster.faults.append(fail_calls("update", LEASE, Unavailable("down"), times=1000))
    with pytest.raises(LeaseLostError, match="not renewed"):
        await holder.hold()
    assert lease_module.RENEW_DEADLINE_SECONDS <= clock.monotonic() < lease_module.DURATION_SECONDS


async def test_a_renewal_that_fails_now_and_then_is_no_loss(world: World, sleeps: list[FrozenClock]) -> None:
    holder, clock = world.holder("a")
    sleeps.append(clock)
    await holder.acquire()
    world.cluster.faults.append(fail_calls("update", LEASE, Conflict("raced"), times=3))
    holding = asyncio.create_task(holder.hold())
    while clock.monotonic() < lease_module.STUCK_SECONDS:  # noqa: ASYNC110 - the clock is frozen, nothing tells
        await asyncio.sleep(0)
    assert not holding.done()
    holding.cancel()


async def test_a_lease_that_is_not_ours_is_not_given_back(world: World, sleeps: list[FrozenClock]) -> None:
    first, _ = world.holder("a")
    second, clock = world.holder("b")
    sleeps.append(clock)
    await first.acquire()
    await second.acquire()
    await first.release()
    assert world.lease()["holderIdentity"] == "b"


async def test_writes_pass_only_while_the_lease_is_surely_ours(world: World) -> None:
    holder, clock = world.holder("a")
    with pytest.raises(Unavailable, match="not renewed"):
        holder.expect_held()
    await holder.acquire()
    holder.expect_held()
    clock.advance(lease_module.RENEW_DEADLINE_SECONDS - 1)
    holder.expect_held()
    clock.advance(1)
    with pytest.raises(Unavailable, match="not renewed"):
        holder.expect_held()


async def test_a_renewal_lets_writes_pass_again_and_a_release_none(world: World, sleeps: list[FrozenClock]) -> None:
    holder, clock = world.holder("a")
    sleeps.append(clock)
    await holder.acquire()
    holding = asyncio.create_task(holder.hold())
    while clock.monotonic() < 3 * lease_module.RENEW_DEADLINE_SECONDS:  # noqa: ASYNC110 - the clock is frozen
        await asyncio.sleep(0)
    holder.expect_held()
    holding.cancel()
    await holder.release()
    with pytest.raises(Unavailable, match="not renewed"):
        holder.expect_held()


async def test_a_doubt_holds_writes_until_a_renewal_that_began_after_it(
    world: World, sleeps: list[FrozenClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, clock = world.holder("a")
    sleeps.append(clock)
    await holder.acquire()
    holder.doubt()
    with pytest.raises(Unavailable, match="renewed first"):
        holder.expect_held()
    replace, renewals = world.cluster.replace, 0

    async def doubt_in_the_first(manifest: Manifest) -> Manifest:
        nonlocal renewals
        renewals += 1
        if renewals == 1:
            holder.doubt()
        return await replace(manifest)

    monkeypatch.setattr(world.cluster, "replace", doubt_in_the_first)
    holding = asyncio.create_task(holder.hold())
    while renewals < 2:
        with pytest.raises(Unavailable, match="renewed first"):
            holder.expect_held()
        await asyncio.sleep(0)
    for _ in range(9):
        await asyncio.sleep(0)
    holder.expect_held()
    holding.cancel()


async def test_a_leader_that_was_paused_with_its_clock_writes_nothing_after_a_doubt(
    world: World, sleeps: list[FrozenClock]
) -> None:
    paused, _ = world.holder("a")
    successor, clock = world.holder("b")
    sleeps.append(clock)
    await paused.acquire()
    await successor.acquire()
    paused.expect_held()
    paused.doubt()
    with pytest.raises(LeaseLostError, match="held by 'b'"):
        await paused.hold()
    with pytest.raises(Unavailable, match="renewed first"):
        paused.expect_held()


class Renewals:
    """Counts the renewals of a Lease, for a thread that does nothing but wait for them."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self._one = threading.Condition()
        self._replace = world.cluster.replace
        monkeypatch.setattr(world.cluster, "replace", self.replace)

    async def replace(self, manifest: Manifest) -> Manifest:
        found = await self._replace(manifest)
        with self._one:
            self.number += 1
            self._one.notify_all()
        return found

    def wait(self, number: int) -> bool:
        """Block the calling thread, and with it its event loop, until there were so many."""
        with self._one:
            return self._one.wait_for(lambda: self.number >= number, timeout=60)


async def test_a_loop_that_is_busy_keeps_the_lease_until_the_liveness_probe_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, clock = world.holder("a")
    renewals = Renewals(world, monkeypatch)
    begun, asked = threading.Event(), threading.Semaphore(0)
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        """Let each renewal wait for the test, which advances the clock."""
        begun.set()
        while seconds and not asked.acquire(blocking=False):
            await real_sleep(0)
        clock.advance(seconds)

    async with OwnThread() as thread:
        lease = ThreadedLease(holder, thread)
        await lease.acquire()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        holding = asyncio.create_task(lease.hold())
        while not begun.is_set():
            await real_sleep(0)
        # Nothing here awaits, as in a long computation: only the thread can renew.
        within = int(lease_module.STUCK_SECONDS / lease_module.RETRY_SECONDS)
        asked.release(within)
        assert renewals.wait(within)
        holder.expect_held()
        assert world.lease()["holderIdentity"] == "a"
        assert clock.monotonic() > lease_module.DURATION_SECONDS
        # From then on the process counts as stuck, and the Lease passes to another one.
        asked.release(5)
        with pytest.raises(LeaseLostError, match="did not turn for 60 s"):
            await holding
        assert renewals.number == within
        clock.advance(lease_module.RENEW_DEADLINE_SECONDS)
        with pytest.raises(Unavailable, match="not renewed"):
            holder.expect_held()


async def test_a_loop_that_turns_keeps_the_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, clock = world.holder("a")
    monkeypatch.setattr(lease_module, "TURN_SECONDS", 0)
    renewals = Renewals(world, monkeypatch)
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        """Let the clock advance only once the main loop has turned."""
        while seconds and holder._turned < clock.monotonic():
            await real_sleep(0)
        clock.advance(seconds)

    async with OwnThread() as thread:
        lease = ThreadedLease(holder, thread)
        await lease.acquire()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        holding = asyncio.create_task(lease.hold())
        while clock.monotonic() < 3 * lease_module.STUCK_SECONDS:
            await real_sleep(0)
        assert not holding.done()
        holder.expect_held()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        await lease.release()
        number = renewals.number
        await lease.thread.run(real_sleep(0))
    assert renewals.number == number
    assert world.lease()["holderIdentity"] == ""
