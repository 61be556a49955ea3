"""An operator that is restarted during a run writes what the run did meanwhile, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import saving, small_spec
from property.operators import RESYNC_SECONDS
from property.world import World

from rljob.api.status import ConditionType, State
from rljob.cluster.kinds import EVENT

LONG_STEP_SECONDS = 3600.0


@pytest.fixture
def world() -> Iterator[World]:
    """Return a run in the middle of a long step, whose state is completely written."""
    made = World(small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}})))
    made.settle()
    made.make_ready()
    made.settle()
    made.run_driver(5, saves=True)
    for _ in range(4):
        made.pass_time()
        made.settle()
    assert made.status.state is State.TRAINING
    assert made.status.checkpoint is not None
    made.clock.advance(LONG_STEP_SECONDS)
    made.settle()
    yield made
    made.close()


def written(world: World) -> tuple[list[str], int]:
    return list(world.words), len(world.cluster.objects(EVENT))


def live(world: World, seconds: float) -> None:
    end = world.clock.monotonic() + seconds
    while world.clock.monotonic() < end:
        world.pass_time()
        world.settle()


def restart(world: World, away_seconds: float = 10.0) -> None:
    world.stop_operator()
    world.clock.advance(away_seconds)
    world.settle()


def test_nothing_is_written(world: World) -> None:
    before = written(world)
    restart(world)
    live(world, 2 * RESYNC_SECONDS)
    assert written(world) == before


def test_heads_that_do_not_answer_at_first_are_no_news(world: World) -> None:
    before = written(world)
    world.heads_silent_until = world.clock.monotonic() + 40.0
    restart(world)
    live(world, RESYNC_SECONDS)
    assert world.condition(ConditionType.PROGRESSING) == "True"
    assert written(world) == before


def test_a_question_in_vain_in_a_long_step_is_no_news_without_a_restart_either(world: World) -> None:
    before = written(world)
    world.heads_silent_until = world.clock.monotonic() + 40.0
    live(world, RESYNC_SECONDS)
    assert written(world) == before


def test_a_step_that_was_made_meanwhile_is_one_write(world: World) -> None:
    words, events = written(world)
    world.stop_operator()
    world.run_driver(1)
    restart(world, 40.0)
    live(world, RESYNC_SECONDS)
    assert written(world) == ([*words, "status"], events)
    assert world.status.progress is not None
    assert world.status.progress.step == 6


def test_a_silent_head_is_reported_five_minutes_after_the_restart(world: World) -> None:
    world.ray.exporter_silent = True
    restart(world)
    live(world, 250)
    assert world.condition(ConditionType.PROGRESSING) == "True"
    live(world, 100)
    assert world.condition(ConditionType.PROGRESSING) == "Unknown"
    world.ray.exporter_silent = False
    live(world, 60)
    assert world.condition(ConditionType.PROGRESSING) == "True"
