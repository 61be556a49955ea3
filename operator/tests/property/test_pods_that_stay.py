"""Pods of an earlier cluster that do not end: what is waited for, what is shortened, and what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from property.test_restarting import finish, new_world, train, wait
from property.world import World

from rljob.api.status import AttemptOutcome, State
from rljob.cluster.kinds import POD, RAY_CLUSTER
from rljob.core import times
from rljob.core.reasons import Reason
from rljob.core.steps.following import DOOMED_SECONDS
from rljob.core.steps.stopping import HURRY_SECONDS, STUCK_SECONDS


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.close()


def test_a_pod_that_does_not_go_is_named_and_holds_the_next_cluster_back(world: World) -> None:
    train(world, 6, saves=True)
    world.cluster.lingering.add(POD)
    world.end_driver(1)
    wait(world, 30)
    train(world, 6)
    world.end_driver(1)
    wait(world, 30)
    made = len(world.invariants.clusters_made)
    assert world.status.reason == "Ended"
    (pod,) = world.cluster.objects(POD)
    gone = times.from_text(pod["metadata"]["deletionTimestamp"])
    while world.clock.now() < gone + timedelta(seconds=STUCK_SECONDS):
        assert world.status.reason == "Ended"
        wait(world, 30)
    wait(world)
    status = world.status
    assert (status.state, status.reason) == (State.RESTARTING, Reason.POD_STUCK)
    assert f"pod {pod['metadata']['name']} on node-1 should have terminated by" in str(status.message)
    words = len(world.words)
    wait(world, 600)
    assert (len(world.invariants.clusters_made), world.words[words:]) == (made, [])
    world.cluster.lingering.clear()
    world.cluster.finish_deletion(POD, "team", pod["metadata"]["name"])
    finish(world)
    assert len(world.invariants.clusters_made) == made + 1


def test_a_head_on_a_node_that_is_off_frees_the_others_a_minute_after_its_grace(world: World) -> None:
    train(world, 6, saves=True)
    world.cluster.lingering.add(POD)
    pod, ends = world.head_pod, world.clock.now() + timedelta(seconds=330)
    assert pod is not None
    place = (POD, "team", pod["metadata"]["name"])
    (address,) = world.ray.heads
    world.ray.stop_head(address)
    world.cluster.edit(*place, lambda made: made["metadata"].update(deletionTimestamp=times.to_text(ends)))
    while world.clock.now() < ends + timedelta(seconds=DOOMED_SECONDS):
        assert world.cluster.objects(RAY_CLUSTER)
        wait(world, 30)
    wait(world, 30)
    assert world.cluster.objects(RAY_CLUSTER) == ()
    (lost,) = world.status.attempts
    assert (lost.outcome, lost.reason) == (AttemptOutcome.LOST, Reason.HEAD_LOST)
    wait(world, 600)
    assert world.status.reason == Reason.POD_STUCK
    world.cluster.lingering.clear()
    world.cluster.finish_deletion(*place)
    finish(world)
    assert [attempt.resumed_from_step for attempt in world.status.attempts] == [0, 6]


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_a_pod_in_which_ray_never_began_is_not_given_its_grace(world: World, state: str) -> None:
    train(world, 6, saves=True)
    world.cluster.lingering.add(POD)
    world.end_driver(1)
    wait(world, 30)
    train(world, 6)
    (pod,) = world.cluster.objects(POD)
    place = (POD, "team", pod["metadata"]["name"])

    def goes(changed: dict[str, Any]) -> None:
        changed["metadata"]["deletionTimestamp"] = times.to_text(world.clock.now() + timedelta(seconds=270))
        changed["metadata"]["deletionGracePeriodSeconds"] = 270
        changed["status"]["containerStatuses"] = [{"name": "ray-head", "state": {state: {}}}]

    world.end_driver(1)
    world.settle()
    world.cluster.edit(*place, goes)
    wait(world, HURRY_SECONDS - 2)
    assert "delete Pod" not in world.words
    wait(world, 4)
    wait(world, 4)
    assert world.words.count("delete Pod") == (state == "waiting")
    assert bool(world.cluster.objects(POD)) == (state == "running")
