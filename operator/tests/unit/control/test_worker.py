"""Rounds, failures and backoff: a problem of one job does not affect others."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from doubles.fake import FakeCluster, fail_calls, fail_write
from doubles.fake_ray import FakeHead, FakeRay
from doubles.simulate import CrashError, UnsettledError, live, settle
from machine import KEY, Machine, cluster_of, rljob, submission

from rljob.cluster.errors import ClusterError, Conflict, Forbidden, OutcomeUnknown, RateLimited, Unavailable
from rljob.cluster.kinds import RAY_CLUSTER, RLJOB
from rljob.control.head_poller import PER_NAMESPACE
from rljob.control.reconciler import ROUNDS_IN_A_ROW, Result
from rljob.control.worker import ROUNDS_IN_A_TURN, attempt, hold, work
from rljob.core.plan import CreateObject, Plan
from rljob.core.requirements import NOTHING, Head, Requirements

if TYPE_CHECKING:
    from collections.abc import Callable

    from rljob.core.observed import Observed
    from rljob.core.watched import Watched


def one_cluster(seen: Observed) -> Plan:
    """Decide as a minimal valid core: write the intent, then create the cluster, then report it."""
    status = seen.job.get("status") or {}
    if status.get("state") is None:
        return Plan(status={"state": "Starting"})
    if not seen.clusters:
        return Plan(effects=(CreateObject(cluster_of(seen.job)),))
    if status["state"] == "Starting":
        return Plan(status={"state": "Training"})
    return Plan(requeue_after_seconds=60)


async def test_a_job_comes_to_rest_and_is_looked_at_again_when_asked(machine: Machine) -> None:
    machine.decide = one_cluster
    await machine.start()
    assert await settle(machine.reconciler) <= 6
    assert machine.job()["status"] == {"state": "Training"}
    assert len(machine.cluster.objects(RAY_CLUSTER)) == 1
    assert await live(machine.reconciler, machine.clock, 600) == 10
    assert machine.cluster.writes == 3


async def test_a_plan_that_rests_is_looked_at_again_when_it_says(machine: Machine) -> None:
    def follow(seen: Observed) -> Plan:
        steps = (seen.job.get("status") or {}).get("restarts", 0)
        return Plan(status={"restarts": steps + 1}, requeue_after_seconds=30, rests=True)

    machine.decide = follow
    await machine.start()
    assert await settle(machine.reconciler) == 1
    assert await live(machine.reconciler, machine.clock, 90) == 3
    assert machine.job()["status"] == {"restarts": 4}
    assert machine.reconciler.queue.failures(KEY) == 0


async def test_an_event_comes_before_the_time_for_which_a_plan_rests(machine: Machine) -> None:
    machine.decide = lambda _: Plan(status={"restarts": 1}, requeue_after_seconds=30, rests=True)
    await machine.start()
    await settle(machine.reconciler)
    machine.decide = lambda seen: Plan(status={"restarts": 2}) if seen.job["spec"].get("suspend") else Plan()
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=True))
    await settle(machine.reconciler)
    assert machine.job()["status"] == {"restarts": 2}


ERRORS: list[Callable[[], ClusterError]] = [
    lambda: Unavailable("down"),
    lambda: OutcomeUnknown("lost"),
    lambda: Conflict("changed"),
    lambda: RateLimited("slower", 5),
    lambda: Forbidden("quota"),
]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("error", ERRORS)
async def test_any_write_may_fail_before_or_after_it_is_done(
    machine: Machine, error: Callable[[], ClusterError], number: int, *, committed: bool
) -> None:
    machine.decide = one_cluster
    machine.cluster.faults.append(fail_write(number, error(), committed=committed))
    await machine.start()
    await live(machine.reconciler, machine.clock, 600)
    assert machine.job()["status"] == {"state": "Training"}
    assert len(machine.cluster.objects(RAY_CLUSTER)) == 1


@pytest.mark.parametrize("write", [1, 2, 3])
async def test_a_crash_after_any_write_converges_to_the_same_world(machine: Machine, write: int) -> None:
    machine.decide = one_cluster

    def crash(word: str) -> None:
        machine.written.append(word)
        if len(machine.written) == write:
            raise CrashError

    machine.after_write = crash
    await machine.start()
    with pytest.raises(CrashError):
        await settle(machine.reconciler)
    machine.cluster.unwatch(machine.reconciler.feed)
    machine.build()
    await machine.start()
    await settle(machine.reconciler)
    assert machine.job()["status"] == {"state": "Training"}
    assert len(machine.cluster.objects(RAY_CLUSTER)) == 1


async def test_a_core_that_never_rests_is_put_on_backoff(machine: Machine) -> None:
    machine.decide = lambda seen: Plan(status={"restarts": seen.job.get("status", {}).get("restarts", 0) + 1})
    await machine.start()
    await settle(machine.reconciler)
    assert machine.job()["status"]["restarts"] == ROUNDS_IN_A_ROW
    assert machine.reconciler.queue.failures(KEY) == 1


async def test_a_world_that_does_not_settle_is_said(machine: Machine) -> None:
    machine.decide = lambda seen: Plan(status={"restarts": seen.job.get("status", {}).get("restarts", 0) + 1})
    await machine.start()
    with pytest.raises(UnsettledError):
        await settle(machine.reconciler, limit=5)


async def test_an_edit_during_a_round_leads_to_a_new_round_without_backoff(machine: Machine) -> None:
    def decide(_: Observed) -> Plan:
        if len(machine.seen) == 1:
            machine.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=True))
        return Plan(status={"state": "Pending"})

    machine.decide = decide
    await machine.start()
    await settle(machine.reconciler)
    assert machine.job()["status"] == {"state": "Pending"}
    assert machine.reconciler.queue.failures(KEY) == 0


async def test_the_server_may_ask_for_a_longer_pause(machine: Machine) -> None:
    machine.decide = one_cluster
    machine.cluster.faults.append(fail_calls("patch", RLJOB, RateLimited("slower", 17), times=1))
    await machine.start()
    await settle(machine.reconciler)
    assert machine.reconciler.queue.next_due_seconds() == 17


async def test_trouble_of_the_outside_is_no_event_but_missing_permission_is(machine: Machine) -> None:
    machine.decide = one_cluster
    await machine.start()
    machine.cluster.faults.append(fail_calls("patch", RLJOB, Unavailable("down"), times=1))
    await settle(machine.reconciler)
    assert machine.events() == []
    machine.cluster.faults.append(fail_calls("patch", RLJOB, Forbidden("no"), times=3))
    await live(machine.reconciler, machine.clock, 5)
    assert machine.events() == ["ReconcileError"]


async def test_a_refused_child_is_passed_to_the_core_without_an_event(machine: Machine) -> None:
    machine.decide = one_cluster
    await machine.start()
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, Forbidden("exceeded quota"), times=2))
    await settle(machine.reconciler)
    assert (machine.reconciler.queue.failures(KEY), machine.events()) == (1, [])
    await live(machine.reconciler, machine.clock, 5)
    assert [refusal.why for refusal in machine.seen[-3].refusals] == ["exceeded quota"]
    assert machine.job()["status"] == {"state": "Training"}
    assert machine.seen[-1].refusals == ()


async def test_an_exception_for_one_job_creates_an_event_and_does_not_stop_the_others(machine: Machine) -> None:
    def decide(seen: Observed) -> Plan:
        if seen.job["metadata"]["namespace"] == KEY.namespace:
            raise ZeroDivisionError
        return one_cluster(seen)

    machine.decide = decide
    other = rljob()
    other["metadata"]["namespace"] = "elsewhere"
    machine.cluster.put(other)
    await machine.start()
    await settle(machine.reconciler)
    assert machine.events() == ["ReconcileError"]
    healthy = machine.cluster.find(RLJOB, "elsewhere", KEY.name)
    assert healthy is not None
    assert healthy["status"]["state"] == "Training"


async def test_a_job_that_is_gone_leaves_nothing_behind(machine: Machine) -> None:
    machine.decide = lambda _: Plan(requeue_after_seconds=60)
    await machine.start()
    await settle(machine.reconciler)
    machine.cluster.remove(RLJOB, *KEY)
    assert machine.reconciler.queue.get_nowait() == KEY
    assert await attempt(machine.reconciler, KEY) is Result.GONE
    machine.reconciler.queue.done(KEY)
    assert machine.reconciler.queue.next_due_seconds() is None


async def test_workers_take_keys_until_they_are_cancelled(machine: Machine) -> None:
    machine.decide = one_cluster
    await machine.start()
    working = asyncio.create_task(work(machine.reconciler, workers=3))
    async with asyncio.timeout(10):
        while machine.job().get("status") != {"state": "Training"}:  # noqa: ASYNC110 - the fake has no such event
            await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_user_sees_which_kind_is_missing(machine: Machine) -> None:
    machine.decide = one_cluster
    machine.cluster.unserved.add(RAY_CLUSTER)
    await machine.start()
    await settle(machine.reconciler)
    assert machine.events() == ["ReconcileError"]
    machine.cluster.unserved.clear()
    await live(machine.reconciler, machine.clock, 600)
    assert machine.job()["status"] == {"state": "Training"}


def test_the_fake_satisfies_the_port() -> None:
    assert {"get", "list", "create", "replace", "delete", "apply_status", "set_finalizers"} <= set(dir(FakeCluster))


async def test_a_job_goes_on_in_one_hand_as_long_as_it_writes(machine: Machine) -> None:
    machine.decide = one_cluster
    await machine.start()
    key = machine.reconciler.queue.get_nowait()
    assert key == KEY
    assert await hold(machine.reconciler, key) == 4
    machine.reconciler.queue.done(key)
    assert machine.job()["status"] == {"state": "Training"}
    assert machine.reconciler.queue.get_nowait() is None


async def test_a_job_that_never_stops_writing_leaves_room_for_others(machine: Machine) -> None:
    machine.decide = lambda seen: Plan(status={"restarts": (seen.job.get("status") or {}).get("restarts", 0) + 1})
    await machine.start()
    key = machine.reconciler.queue.get_nowait()
    assert key == KEY
    assert await hold(machine.reconciler, key) == ROUNDS_IN_A_TURN
    machine.reconciler.queue.done(key)
    assert len(machine.reconciler.queue) == 1


class SilentRay(FakeRay):
    """Heads that accept every request and answer none until the test ends."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    async def _reach(self, wanted: Head) -> FakeHead:
        if wanted.job_uid.startswith("silent"):
            await self.ended.wait()
        return await super()._reach(wanted)


@pytest.mark.parametrize("writes", [False, True], ids=["that are polled", "that are sent a submission"])
async def test_silent_heads_of_one_namespace_never_hold_all_workers(*, writes: bool) -> None:
    """With as many silent heads as there are workers, or with many more, another job gets its rounds."""
    machine, workers = Machine(), 8
    machine.ray = SilentRay()
    machine.build()
    for number in range(10 * workers):
        metadata = {"namespace": "silent", "name": f"job-{number}"}
        begun = {"metadata": metadata, "status": {"intent": {"clusterName": "c1"}}}
        machine.cluster.put(rljob() | begun, uid=f"silent-{number}")
    rounds: Counter[str] = Counter()

    def required(watched: Watched) -> Requirements:
        head = Head("10.0.0.1", "p1", watched.job.uid, "c1")
        return Requirements(head=head, progress=True) if watched.job.namespace == "silent" and not writes else NOTHING

    def decide(seen: Observed) -> Plan:
        rounds[seen.job["metadata"]["namespace"]] += 1
        if seen.job["metadata"]["namespace"] == "silent":
            return Plan(effects=(submission(seen.job),))
        return Plan(status={"message": str(rounds[KEY.namespace])})

    machine.required, machine.decide = required, decide
    reconciler = machine.build(workers=workers)
    await machine.start()
    working = asyncio.create_task(work(reconciler, workers))
    async with asyncio.timeout(20):
        # No time passes, so none of the silent requests ends; every round of the other job is one beside them.
        while rounds[KEY.namespace] < ROUNDS_IN_A_ROW - 1:
            await asyncio.sleep(0)
            assert len(reconciler.observer.heads) <= PER_NAMESPACE
    held = reconciler.metrics.registry.get_sample_value("rljob_operator_active_workers")
    assert held is not None
    assert held <= 1 + (workers // 4 if writes else 0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    machine.ray.ended.set()
    await reconciler.observer.heads.close()
