"""Deleting a job that must save first, in the whole world; test_chaos covers faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from property.test_suspend import new_world, save_and_stop, settle, start
from property.world import KEY, World

from rljob.api.status import State
from rljob.cluster.kinds import POD, RAY_CLUSTER, RLJOB
from rljob.render.labels import STOP_FINALIZER

HOLDING = {"stop": {"graceSeconds": 120, "requireCheckpoint": True}}
GRACE_SECONDS = 120


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world(**HOLDING)
    yield made
    made.close()


def finalizers(world: World) -> list[str]:
    assert world.job is not None
    return list(world.job["metadata"].get("finalizers") or ())


def set_finalizers(world: World, *names: str) -> None:
    world.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(finalizers=list(names)))


def require(world: World, *, required: bool) -> None:
    world.cluster.edit(RLJOB, *KEY, lambda job: job["spec"]["stop"].update(requireCheckpoint=required))


def test_the_finalizer_is_there_before_the_cluster(world: World) -> None:
    start(world)
    assert finalizers(world) == [STOP_FINALIZER]
    assert world.words.count("finalizers") == 1
    assert world.words.index("finalizers") < world.words.index("create RayCluster")


def test_a_job_that_need_not_save_has_no_finalizer() -> None:
    world = new_world()
    start(world)
    assert finalizers(world) == []
    world.delete_job()
    settle(world)
    assert world.job is None
    assert world.ray.stops == []
    world.close()


def test_a_deleted_job_saves_and_goes(world: World) -> None:
    start(world)
    begun = len(world.words)
    world.delete_job()
    settle(world)
    assert world.words[begun:] == ["status", "stop"]
    assert (world.status.state, world.status.reason) == (State.STOPPING, "Deleted")
    assert world.ray_cluster is not None
    save_and_stop(world)
    assert world.words[begun:] == ["status", "stop", "status", "finalizers"]
    assert world.job is None
    assert world.cluster.objects(RAY_CLUSTER) == world.cluster.objects(POD) == ()
    assert [(run.attempt, run.mode) for run in world.ray.stops] == [(1, "AfterStep")]


def test_the_attempt_of_a_deleted_job_says_why_it_ended(world: World) -> None:
    start(world)
    set_finalizers(world, STOP_FINALIZER, "example.com/archive")
    world.delete_job()
    settle(world)
    save_and_stop(world)
    (attempt,) = world.status.attempts
    assert (attempt.outcome, attempt.reason, attempt.last_step) == ("Stopped", "Deleted", 3)


def test_a_run_that_does_not_stop_holds_its_job_until_the_deadline_only(world: World) -> None:
    start(world)
    world.delete_job()
    settle(world)
    world.clock.advance(GRACE_SECONDS - 20)
    settle(world)
    assert world.job is not None
    world.clock.advance(20)
    settle(world)
    assert world.job is None


def test_the_deadline_outlives_the_operator(world: World) -> None:
    start(world)
    world.delete_job()
    settle(world)
    world.stop_operator()
    world.clock.advance(GRACE_SECONDS)
    settle(world)
    assert world.job is None


def test_a_deletion_while_the_operator_was_away_is_not_missed(world: World) -> None:
    start(world)
    world.stop_operator()
    world.delete_job()
    world.clock.advance(10 * GRACE_SECONDS)
    settle(world)
    assert world.status.state is State.STOPPING
    save_and_stop(world)
    assert world.job is None


def test_the_user_need_not_wait(world: World) -> None:
    start(world)
    world.delete_job()
    settle(world)
    world.force_deletion()
    settle(world)
    assert world.job is None


def test_a_job_whose_deletion_is_forced_beforehand_is_never_held(world: World) -> None:
    world.force_deletion()
    start(world)
    assert finalizers(world) == []
    assert world.status.state is State.TRAINING


def test_whoever_takes_the_requirement_back_need_not_wait(world: World) -> None:
    start(world)
    world.delete_job()
    settle(world)
    require(world, required=False)
    settle(world)
    assert world.job is None


def test_the_requirement_may_change_while_the_job_runs(world: World) -> None:
    start(world)
    require(world, required=False)
    settle(world)
    assert finalizers(world) == []
    require(world, required=True)
    settle(world)
    assert finalizers(world) == [STOP_FINALIZER]


@pytest.mark.parametrize("stage", range(4))
def test_a_job_that_has_not_begun_to_train_goes_at_once(world: World, stage: int) -> None:
    for advance in (world.settle, world.make_pods, world.settle)[:stage]:
        advance()
    world.delete_job()
    settle(world)
    assert world.job is None
    assert world.cluster.objects(RAY_CLUSTER) == ()


def test_a_suspended_job_is_held_by_nobody(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    save_and_stop(world)
    assert finalizers(world) == []
    world.suspend(suspended=False)
    start(world)
    assert finalizers(world) == [STOP_FINALIZER]


def test_a_job_that_is_deleted_while_it_is_suspended_saves_once(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    world.delete_job()
    settle(world)
    save_and_stop(world)
    assert world.job is None
    assert len(world.ray.stops) == 1


@pytest.mark.parametrize("code", [0, 1])
def test_a_finished_job_is_held_by_nobody(world: World, code: int) -> None:
    start(world)
    world.run_driver(steps=37)
    world.end_driver(code)
    world.clock.advance(60)
    settle(world)
    assert world.is_finished
    assert finalizers(world) == []


def test_a_run_that_is_through_when_its_job_is_deleted_has_succeeded(world: World) -> None:
    start(world)
    set_finalizers(world, STOP_FINALIZER, "example.com/archive")
    world.delete_job()
    settle(world)
    world.run_driver(steps=37)
    world.end_driver(0)
    world.clock.advance(10)
    settle(world)
    assert world.status.state is State.SUCCEEDED
    assert finalizers(world) == ["example.com/archive"]


def test_a_head_that_is_lost_on_the_way_ends_the_wait(world: World) -> None:
    start(world)
    world.delete_job()
    settle(world)
    world.delete_cluster()
    settle(world)
    assert world.job is None


def test_a_lost_status_holds_nobody(world: World) -> None:
    start(world)
    world.delete_job()
    world.wipe_status()
    settle(world)
    assert world.job is None


def test_finalizers_of_others_stay(world: World) -> None:
    set_finalizers(world, "example.com/archive")
    start(world)
    assert finalizers(world) == ["example.com/archive", STOP_FINALIZER]
    world.delete_job()
    settle(world)
    save_and_stop(world)
    assert finalizers(world) == ["example.com/archive"]
    words = len(world.words)
    world.clock.advance(1_000_000)
    world.stop_operator()
    settle(world)
    assert world.words[words:] == []
