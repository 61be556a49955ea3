"""Suspending and resuming in the whole world; test_chaos covers faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from builders import saving, small_spec
from property.world import World

from rljob.api.status import AttemptOutcome, State
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, CONFIG_MAP, POD, RAY_CLUSTER
from rljob_runtime.contract import Phase

SAVING = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 120}})
ON_RECIPE = {"recipeRef": {"name": "base"}, "trainer": {"learningRate": None}}


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.close()


def new_world(**change: Any) -> World:  # noqa: ANN401 - JSON
    made = World(small_spec(SAVING | ON_RECIPE | change))
    made.cluster.put(recipe("1e-5"))
    return made


def recipe(rate: str) -> dict[str, Any]:
    spec = {"template": {"trainer": {"learningRate": rate}}}
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "ClusterRLRecipe", "metadata": {"name": "base"}, "spec": spec}


def settle(world: World) -> None:
    """Run the operator until it rests, and once more for what a fault delayed."""
    world.settle()
    world.clock.advance(5)
    world.settle()


def start(world: World) -> None:
    """Advance to the first steps of an attempt."""
    settle(world)
    world.make_ready()
    settle(world)
    world.run_driver(steps=3)
    world.clock.advance(10)
    settle(world)


def save_and_stop(world: World) -> None:
    """Let the driver stop as requested."""
    world.end_driver(66)
    world.clock.advance(5)
    settle(world)
    settle(world)


def config(world: World) -> str:
    intent = world.status.intent
    assert intent is not None
    found = world.cluster.find(CONFIG_MAP, "team", intent.cluster_name)
    assert found is not None
    return str(found["data"]["job.json"])


def snapshots(world: World) -> list[str]:
    return [item["metadata"]["name"] for item in world.cluster.objects(CONFIG_MAP) if "spec.json" in item["data"]]


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {entry.type: (entry.status.value, entry.reason) for entry in world.status.conditions}


def test_a_running_job_saves_stops_and_frees_its_npus(world: World) -> None:
    start(world)
    begun = len(world.words)
    world.suspend()
    settle(world)
    assert world.words[begun:] == ["status", "stop"]
    assert world.status.state is State.STOPPING
    assert [(run.attempt, run.mode) for run in world.ray.stops] == [(1, "AfterStep")]
    save_and_stop(world)
    assert world.words[begun:] == ["status", "stop", "status", "evidence", "delete RayCluster", "status"]
    assert world.cluster.objects(RAY_CLUSTER) == world.cluster.objects(POD) == ()
    assert conditions(world)["Suspended"] == ("True", "Suspended")
    (attempt,) = world.status.attempts
    assert (attempt.outcome, attempt.reason, attempt.last_step) == (AttemptOutcome.STOPPED, "Suspended", 3)
    assert world.status.stop is None
    words = len(world.words)
    world.stop_operator()
    world.clock.advance(1_000_000)
    settle(world)
    assert world.words[words:] == []


def test_a_resumed_job_goes_on_as_the_next_generation_from_the_same_snapshot(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    save_and_stop(world)
    world.cluster.edit(CLUSTER_RL_RECIPE, "", "base", lambda r: r.update(spec=recipe("1e-3")["spec"]))
    world.suspend(suspended=False)
    start(world)
    assert world.invariants.clusters_made == ["sums-00000-1", "sums-00000-2"]
    assert [submitted.submission_id for submitted in world.ray.submissions] == ["sums-00000-1-1", "sums-00000-2-2"]
    assert [attempt.number for attempt in world.status.attempts] == [1, 2]
    assert dict(world.ray.submissions[-1].environment)["RLJOB_ATTEMPT"] == "2"
    assert snapshots(world) == ["sums-00000-1"]
    assert '"actor_rollout_ref.actor.optim.lr":1e-05' in config(world)
    assert conditions(world)["Suspended"] == ("False", "Resumed")
    assert conditions(world)["RecipeDrift"] == ("True", "RecipeChanged")
    world.run_driver(steps=40)
    world.end_driver(0)
    world.clock.advance(60)
    settle(world)
    assert world.status.state is State.SUCCEEDED


def test_an_edit_is_taken_by_the_next_generation_over_the_recipes_as_they_were(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    save_and_stop(world)
    world.cluster.edit(CLUSTER_RL_RECIPE, "", "base", lambda r: r.update(spec=recipe("1e-3")["spec"]))
    world.edit_spec(small_spec(SAVING | ON_RECIPE | {"trainer": {"steps": 50, "learningRate": None}}))
    start(world)
    assert snapshots(world) == ["sums-00000-1", "sums-00000-2"]
    assert '"totalSteps":50' in config(world)
    assert '"actor_rollout_ref.actor.optim.lr":1e-05' in config(world)
    assert conditions(world)["PendingChanges"] == ("False", "UpToDate")
    assert conditions(world)["RecipeDrift"] == ("True", "RecipeChanged")


def test_recipes_are_read_anew_when_the_user_asks(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    save_and_stop(world)
    world.cluster.edit(CLUSTER_RL_RECIPE, "", "base", lambda r: r.update(spec=recipe("1e-3")["spec"]))
    world.refresh("once")
    settle(world)
    assert conditions(world)["PendingChanges"] == ("True", "SpecChanged")
    world.suspend(suspended=False)
    start(world)
    assert '"actor_rollout_ref.actor.optim.lr":0.001' in config(world)
    assert conditions(world)["RecipeDrift"] == conditions(world)["PendingChanges"] == ("False", "UpToDate")
    resolved = world.status.resolved
    assert resolved is not None
    assert [taken.generation for taken in resolved.recipes] == [2]
    words = len(world.words)
    world.stop_operator()
    settle(world)
    assert world.words[words:] == []


def test_a_broken_edit_holds_the_next_generation_until_it_is_mended(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    save_and_stop(world)
    world.edit_spec(small_spec(SAVING | ON_RECIPE | {"trainer": {"steps": 6, "learningRate": None}}))
    settle(world)
    assert world.status.state is State.INVALID
    assert "it may only grow" in str(world.status.message)
    world.edit_spec(small_spec(SAVING | ON_RECIPE))
    start(world)
    assert conditions(world)["Validated"] == ("True", "Valid")
    assert world.invariants.clusters_made == ["sums-00000-1", "sums-00000-2"]


def test_a_job_that_is_created_suspended_makes_nothing_until_it_may() -> None:
    world = new_world(suspend=True)
    settle(world)
    assert world.words == ["status"]
    assert conditions(world)["Suspended"] == ("True", "Suspended")
    world.suspend(suspended=False)
    start(world)
    assert world.invariants.clusters_made == ["sums-00000-1"]
    world.close()


@pytest.mark.parametrize("stage", range(3))
def test_a_job_that_has_not_begun_to_train_is_suspended_at_once(world: World, stage: int) -> None:
    for advance in (world.settle, world.make_ready, world.settle)[:stage]:
        advance()
    world.suspend()
    settle(world)
    settle(world)
    assert conditions(world)["Suspended"] == ("True", "Suspended")
    assert world.cluster.objects(RAY_CLUSTER) == ()
    assert world.ray.stops == []
    world.suspend(suspended=False)
    start(world)
    assert world.status.state is State.TRAINING


def test_a_run_that_does_not_stop_in_time_is_stopped(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    for _ in range(3):
        world.run_driver(steps=1)
        world.clock.advance(30)
        settle(world)
    assert world.ray_cluster is not None
    world.clock.advance(30)
    settle(world)
    settle(world)
    assert conditions(world)["Suspended"] == ("True", "Suspended")
    assert world.status.attempts[0].outcome is AttemptOutcome.STOPPED


def test_a_run_that_keeps_no_checkpoints_is_not_waited_for() -> None:
    world = new_world(checkpoint=None)
    start(world)
    world.suspend()
    settle(world)
    settle(world)
    assert conditions(world)["Suspended"] == ("True", "Suspended")
    assert world.ray.stops == []
    world.close()


def test_a_run_that_is_through_when_it_is_asked_to_stop_has_succeeded(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    world.run_driver(steps=37)
    world.end_driver(0)
    world.clock.advance(10)
    settle(world)
    assert world.status.state is State.SUCCEEDED
    assert world.status.stop is None


def test_a_run_that_fails_while_it_saves_is_suspended_with_a_failed_attempt(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    world.end_driver(1)
    world.clock.advance(10)
    settle(world)
    settle(world)
    assert conditions(world)["Suspended"] == ("True", "Suspended")
    assert world.status.attempts[0].outcome is AttemptOutcome.FAILED


def test_a_stop_completes_although_it_is_taken_back(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    world.suspend(suspended=False)
    settle(world)
    assert world.status.state is State.STOPPING
    save_and_stop(world)
    start(world)
    assert world.invariants.clusters_made == ["sums-00000-1", "sums-00000-2"]


def test_the_next_cluster_waits_until_the_last_pod_is_gone(world: World) -> None:
    start(world)
    world.cluster.lingering.add(POD)
    world.suspend()
    settle(world)
    save_and_stop(world)
    assert world.cluster.objects(RAY_CLUSTER) == ()
    assert conditions(world)["Suspended"] == ("False", "Suspending")
    world.suspend(suspended=False)
    settle(world)
    assert len(world.invariants.clusters_made) == 1
    for pod in world.cluster.objects(POD):
        world.cluster.finish_deletion(POD, "team", pod["metadata"]["name"])
    world.cluster.lingering.clear()
    start(world)
    assert len(world.invariants.clusters_made) == 2


def test_a_lost_status_of_a_suspended_job_uses_no_name_twice(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    save_and_stop(world)
    world.wipe_status()
    settle(world)
    assert conditions(world) == {"Suspended": ("True", "Suspended")}
    world.suspend(suspended=False)
    start(world)
    assert world.invariants.clusters_made == ["sums-00000-1", "sums-00000-2"]
    assert world.ray.submissions[-1].submission_id == "sums-00000-2-2"
    assert snapshots(world) == ["sums-00000-1"]


def test_the_head_says_that_it_is_stopping(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    assert world.head is not None
    assert world.head.progress is not None
    assert world.head.progress.phase is Phase.STOPPING


def test_a_status_that_is_lost_while_the_run_stops_leaves_no_cluster_behind(world: World) -> None:
    start(world)
    world.suspend()
    settle(world)
    world.wipe_status()
    settle(world)
    assert world.cluster.objects(RAY_CLUSTER) == ()
    assert conditions(world)["Suspended"] == ("True", "Suspended")
