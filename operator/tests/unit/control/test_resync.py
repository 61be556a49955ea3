"""Resync: it finds what a watch has lost, and kinds are added and removed."""

from __future__ import annotations

import asyncio

import pytest
from doubles.fake import fail_calls
from doubles.simulate import settle
from machine import KEY, Machine, cluster_of, rljob

from rljob.cluster.errors import Forbidden, Unavailable
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, RAY_CLUSTER, RECIPES, RLJOB, WATCHED, WORKLOAD, Kind
from rljob.cluster.port import Listing
from rljob.control import resync as resync_module
from rljob.control.resync import SPREAD_SECONDS, Resync


@pytest.fixture
async def resync(machine: Machine) -> Resync:
    await machine.start()
    resync = Resync(machine.reconciler, 300, "me", settle_seconds=0)
    await resync.prime()
    await settle(machine.reconciler)
    return resync


def metric(machine: Machine, line: str) -> bool:
    return f"rljob_operator_{line}" in machine.reconciler.metrics.exposition().decode()


async def test_every_lost_event_is_found_and_counted(machine: Machine, resync: Resync) -> None:
    machine.cluster.put(cluster_of(machine.job()))
    machine.cluster.hold_events()
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=True))
    machine.cluster.remove(RAY_CLUSTER, KEY.namespace, "c1")
    machine.cluster.release_events(lambda _: [])
    assert await resync.once()
    assert machine.reconciler.store.job(KEY) == machine.job()
    assert machine.reconciler.store.children(RAY_CLUSTER, KEY) == ()
    assert metric(machine, 'resync_drift_total{drift="missed_update",kind="rljobs.rljob.dev"} 1.0')
    assert metric(machine, 'resync_drift_total{drift="missed_delete",kind="rayclusters.ray.io"} 1.0')


async def test_a_store_that_is_right_has_no_drift(machine: Machine, resync: Resync) -> None:
    assert await resync.once()
    assert not metric(machine, "resync_drift_total{")


async def test_every_job_is_looked_at_once_within_half_a_minute(machine: Machine, resync: Resync) -> None:
    rounds = len(machine.seen)
    await resync.once()
    machine.clock.advance(SPREAD_SECONDS)
    await settle(machine.reconciler)
    assert len(machine.seen) == rounds + 1


async def test_a_list_that_fails_changes_nothing_and_is_no_success(machine: Machine, resync: Resync) -> None:
    machine.cluster.put(cluster_of(machine.job()))
    machine.clock.advance(300)
    machine.cluster.faults.append(fail_calls("list", RAY_CLUSTER, Unavailable("down"), times=1))
    assert not await resync.once()
    assert resync.age_seconds() == 300
    assert len(machine.reconciler.store.children(RAY_CLUSTER, KEY)) == 1
    assert RAY_CLUSTER in machine.reconciler.store.served
    assert await resync.once()
    assert resync.age_seconds() == 0


async def test_a_kind_that_appears_restarts_the_watches(machine: Machine) -> None:
    machine.cluster.unserved.add(RAY_CLUSTER)
    await machine.start()
    resync = Resync(machine.reconciler, 300, "me", settle_seconds=0)
    await resync.prime()
    assert machine.reconciler.store.served == {watch.kind for watch in WATCHED} - {RAY_CLUSTER}
    assert metric(machine, 'kind_served{kind="rayclusters.ray.io"} 0.0')
    machine.cluster.unserved.clear()
    await resync.once()
    assert resync.served_changed.is_set()
    assert machine.reconciler.store.served == {watch.kind for watch in WATCHED}
    assert metric(machine, 'kind_served{kind="rayclusters.ray.io"} 1.0')


async def test_a_kind_that_is_not_served_for_a_moment_loses_no_cluster(machine: Machine, resync: Resync) -> None:
    machine.cluster.put(cluster_of(machine.job()))
    machine.cluster.unserved.add(RAY_CLUSTER)
    await resync.once()
    assert len(machine.reconciler.store.children(RAY_CLUSTER, KEY)) == 1


async def test_recipes_that_may_not_be_read_are_no_failure(machine: Machine, resync: Resync) -> None:
    machine.cluster.faults.append(fail_calls("list", CLUSTER_RL_RECIPE, Forbidden("no"), times=2))
    store = machine.reconciler.store
    assert await resync.once()
    assert CLUSTER_RL_RECIPE not in store.served
    assert store.forbidden == {CLUSTER_RL_RECIPE}
    await machine.reconciler.prime()
    assert store.forbidden == {CLUSTER_RL_RECIPE}
    assert await resync.once()
    assert CLUSTER_RL_RECIPE in store.served
    assert store.forbidden == frozenset()


async def test_jobs_that_may_not_be_read_are_a_failure(machine: Machine, resync: Resync) -> None:
    machine.cluster.faults.append(fail_calls("list", RLJOB, Forbidden("no"), times=2))
    assert not await resync.once()
    with pytest.raises(Forbidden):
        await machine.reconciler.prime()


async def test_at_the_start_all_kinds_but_recipes_are_listed_side_by_side(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = set(RECIPES.values())
    together = asyncio.Barrier(sum(watch.kind not in recipes for watch in WATCHED))
    listed: list[Kind] = []
    listing = machine.cluster.list

    async def meet(kind: Kind, namespace: str | None = None, label_selector: str = "") -> Listing:
        if kind not in recipes:
            assert recipes <= set(listed)
            await together.wait()
        found = await listing(kind, namespace, label_selector)
        listed.append(kind)
        return found

    monkeypatch.setattr(machine.cluster, "list", meet)
    async with asyncio.timeout(5):
        await machine.reconciler.prime()
    assert set(listed) == {watch.kind for watch in WATCHED}


async def test_an_outage_at_the_start_is_waited_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync_module, "FIRST_RETRY_SECONDS", 0.0)
    machine.cluster.put(rljob())
    machine.cluster.faults.append(fail_calls("list", RLJOB, Unavailable("down"), times=3))
    await Resync(machine.reconciler, 300, "me").prime()
    assert machine.reconciler.store.job(KEY) is not None


class DoneError(Exception):
    """The test has seen enough."""


async def test_a_resync_that_fails_is_tried_again_with_growing_pauses(
    machine: Machine, resync: Resync, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    yielding = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
            machine.clock.advance(seconds)
        if len(pauses) == 10:
            raise DoneError
        await yielding(0)

    monkeypatch.setattr("rljob.control.resync.asyncio.sleep", sleep)
    machine.cluster.faults.append(fail_calls("list", RAY_CLUSTER, Unavailable("down"), times=7))
    with pytest.raises(DoneError):
        await resync.run()
    first, *retries, last = pauses
    assert [first, last] == pytest.approx([300, 300], rel=0.1)
    expected = [8, 16, 32, 64, 128, 250, 250]
    assert retries[:7] == pytest.approx([seconds * 1.1 for seconds in expected], rel=0.1)
    assert retries[7] == pytest.approx(300, rel=0.1)


async def test_jobs_that_may_not_be_read_end_the_start(machine: Machine) -> None:
    machine.cluster.faults.append(fail_calls("list", RLJOB, Forbidden("no"), times=1))
    with pytest.raises(Forbidden):
        await Resync(machine.reconciler, 300, "me").prime()


async def test_a_kueue_that_does_not_answer_holds_up_neither_the_start_nor_a_resync(machine: Machine) -> None:
    machine.cluster.put(rljob())
    machine.cluster.faults.append(fail_calls("list", WORKLOAD, Unavailable("conversion webhook"), times=2))
    resync, store = Resync(machine.reconciler, 300, "me", settle_seconds=0), machine.reconciler.store
    await resync.prime()
    assert store.job(KEY) is not None
    assert await resync.once()
    assert WORKLOAD not in store.served
    assert await resync.once()
    assert WORKLOAD in store.served


async def test_workloads_of_a_kueue_that_falls_silent_are_where_they_were(machine: Machine, resync: Resync) -> None:
    machine.cluster.faults.append(fail_calls("list", WORKLOAD, Unavailable("conversion webhook"), times=1))
    machine.clock.advance(300)
    assert await resync.once()
    assert WORKLOAD in machine.reconciler.store.served
    assert resync.age_seconds() == 0
