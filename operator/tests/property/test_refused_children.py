"""A quota or a policy that rejects a job's own objects, in the whole world."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import merged, saving, small_spec
from doubles.fake import Failure
from property.operators import Request
from property.world import World

from rljob.api.status import State
from rljob.cluster.errors import Forbidden
from rljob.cluster.kinds import EVENT

# The unit tests alone reach every branch.
pytestmark = pytest.mark.no_cover

SPEC = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "restart": {"maxInfrastructureRestarts": 1}})
CHILDREN = {"Secret": {}, "ConfigMap": {}, "RayCluster": {}, "Job": {"initializers": [{"name": "p", "command": ["a"]}]}}


@pytest.fixture(params=CHILDREN)
def child(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(child: str) -> Iterator[World]:
    made = World(small_spec(merged(SPEC, CHILDREN[child])))
    yield made
    made.close()


def refuse(world: World, child: str, seconds: float) -> None:
    """Reject a kind of child, each time with another message."""
    end = world.clock.monotonic() + seconds

    def fault(request: Request) -> Failure | None:
        refused = request.word == f"create {child}" and world.clock.monotonic() < end
        return Failure(Forbidden(f"exceeded quota: used: {request.number}")) if refused else None

    world.request_faults.append(fault)


def live(world: World, seconds: float) -> None:
    """Advance time; failing rounds are waited for."""
    end = world.clock.monotonic() + seconds
    while world.clock.monotonic() < end:
        world.settle()
        world.behave()
        world.pass_time()


def test_a_job_waits_for_the_quota_and_says_so_once(world: World, child: str) -> None:
    refuse(world, child, 1200)
    live(world, 300)
    assert world.status.reason == f"{child}Refused"
    assert "exceeded quota" in str(world.status.message)
    words, tried = list(world.words), world.tried
    live(world, 600)
    assert world.words == words
    assert world.tried > tried
    world.until(lambda w: w.submission is not None)
    assert world.status.reason != f"{child}Refused"
    assert f"{child}Refused" not in {entry.reason for entry in world.status.conditions}
    world.run_driver(40)
    world.end_driver(0)
    world.until(lambda w: w.is_finished)
    assert (world.status.state, world.status.restarts) == (State.SUCCEEDED, 0)
    events = [item["reason"] for item in world.cluster.objects(EVENT)]
    assert (events.count(f"{child}Refused"), events.count("ReconcileError")) == (1, 0)


def test_a_quota_that_stays_used_up_ends_the_job_within_its_budget(world: World, child: str) -> None:
    refuse(world, child, 1e9)
    world.until(lambda w: w.is_finished)
    assert (world.status.state, world.status.reason) == (State.FAILED, "StartDeadlineExceeded")
    assert world.status.restarts == 1
    assert "exceeded quota" in str(world.status.message)
