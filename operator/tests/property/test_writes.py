"""The cost of a job for the API server: every write, including events. An additional write needs a reason here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import small_spec
from property.test_life import live
from property.world import World

from rljob.cluster.kinds import EVENT

UNTIL_IT_TRAINS = [
    "status",  # the intent: names, numbers, the start deadline
    "create Secret",
    "create ConfigMap",  # the snapshot, which outlives the generation, with its job.json and the rendered cluster
    "create RayCluster",
    "status",  # its UID, so that its absence counts as a loss from now on, and the intended submission
    "submit",  # to the head pod, not to the API server
    "status",  # it is recorded, so it is never sent again
    "status",  # the first step
]
"""7 writes of objects, 5 of them until it is ready. A RayJob of InteractiveMode costs KubeRay 5 and its event."""
AT_THE_END = ["status", "evidence", "delete RayCluster"]


@pytest.fixture
def world() -> Iterator[World]:
    made = World(small_spec())
    yield made
    made.close()


def events(world: World) -> list[str]:
    return [item["reason"] for item in world.cluster.objects(EVENT)]


def test_a_job_costs_seven_writes_until_it_trains_and_three_more_to_its_end(world: World) -> None:
    live(world)
    assert world.words == [*UNTIL_IT_TRAINS, *AT_THE_END]


def test_a_job_without_trouble_has_two_events(world: World) -> None:
    live(world)
    assert sorted(events(world)) == ["Ended", "Submitted"]


def test_pods_that_are_slow_to_start_cost_one_write(world: World) -> None:
    world.settle()
    before = len(world.words)
    for _ in range(12):
        world.pass_time()
        world.settle()
    assert world.words[before:] == ["status"]
    assert world.status.reason == "NoPods"
