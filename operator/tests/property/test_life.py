"""The life of one job in the whole world, write by write; test_chaos covers faults."""

from collections.abc import Iterator

import pytest
from builders import small_spec
from property.world import World

PLAIN_LIFE = [
    "status",  # the intent
    "create ConfigMap",  # the snapshot
    "create Job",  # the initializer
    "status",  # it runs
    "status",  # it is complete
    "create Secret",
    "create ConfigMap",  # job.json and the rendered cluster
    "create RayCluster",
    "status",  # its uid, and the intended submission
    "submit",
    "status",  # it is recorded
    "status",  # the first step
    "status",  # the end
    "evidence",  # the record of the attempt
    "delete RayCluster",
]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def settle(world: World) -> None:
    """Run the operator until it rests, and once more for what a fault delayed."""
    world.settle()
    world.clock.advance(5)
    world.settle()


def live(world: World) -> None:
    """Run from creation to success and cleanup."""
    settle(world)
    world.end_initializers()
    settle(world)
    world.make_ready()
    settle(world)
    world.run_driver(steps=1)
    world.clock.advance(10)
    settle(world)
    world.run_driver(steps=39)
    world.end_driver(0)
    world.clock.advance(60)
    settle(world)


def test_a_job_lives_from_creation_to_success_by_exactly_these_writes(world: World) -> None:
    live(world)
    assert world.words == PLAIN_LIFE
    assert world.is_finished
    assert world.status.progress is not None
    assert world.status.progress.summary == "40/40"


def test_a_start_that_takes_its_time_costs_one_write_for_its_stage(world: World) -> None:
    settle(world)
    world.end_initializers()
    settle(world)
    world.make_ready()
    settle(world)
    before = len(world.words)
    world.run_driver()
    for _ in range(60):
        world.clock.advance(10)
        settle(world)
    assert world.words[before:] == ["status"]
    assert str(world.status.message).startswith("loading the model: 1 of 2 ranks are done (")


def test_the_same_manifest_again_is_no_write(world: World) -> None:
    settle(world)
    before = list(world.words)
    world.edit_spec(small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]}))
    settle(world)
    assert world.words == before
