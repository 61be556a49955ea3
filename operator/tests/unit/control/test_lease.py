"""The Lease: one leader, which knows in time that it no longer leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster, fail_calls

from rljob.cluster.errors import Conflict, Unavailable
from rljob.cluster.kinds import LEASE
from rljob.control import lease as lease_module
from rljob.control.lease import LeaseHolder, LeaseLostError
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
    while clock.monotonic() < 60:  # noqa: ASYNC110 - the clock is frozen, nothing tells
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
