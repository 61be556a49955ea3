"""KubeRay is unavailable: what waits for it, at what cost, and how much time is left when it returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from property.test_restarting import finish, new_world
from property.world import KEY, World

from rljob.api.status import State
from rljob.cluster.kinds import RAY_CLUSTER


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.close()


def test_a_kuberay_that_is_away_for_hours_costs_no_attempt(world: World) -> None:
    world.kuberay_is_up = False
    world.until(lambda w: w.status.reason == "WaitingForKubeRay")
    before = list(world.words)
    end = world.clock.monotonic() + 3 * 3600
    world.until(lambda w: w.clock.monotonic() > end)
    assert (world.words, world.status.state) == (before, State.STARTING)
    world.kuberay_is_up = True
    finish(world)
    status = world.status
    assert (status.restarts, status.counters.infrastructure_failures, len(status.attempts)) == (0, 0, 1)
    assert world.invariants.clusters_made == ["sums-00000-1"]


def test_a_kuberay_that_comes_back_and_makes_no_pods_has_the_usual_time(world: World) -> None:
    world.kuberay_is_up = False
    world.until(lambda w: w.status.reason == "WaitingForKubeRay")
    owner = world.ray_cluster
    assert owner is not None
    looked = {"state": "", "observedGeneration": 1}
    world.cluster.edit(RAY_CLUSTER, KEY.namespace, owner["metadata"]["name"], lambda found: found.update(status=looked))
    begun = world.clock.monotonic()
    world.until(lambda w: w.status.restarts == 1)
    assert 600 <= world.clock.monotonic() - begun <= 660
    assert "NoPods: no pod exists yet" in str(world.status.message)
