"""Records of attempts in the whole world: kept after the cluster is gone, and written once per attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from doubles.fake import Failure
from property.test_restarting import finish, new_world, submissions, train, wait
from property.world import KEY, World

from rljob.api.status import State
from rljob.cluster.errors import Forbidden
from rljob.cluster.kinds import CONFIG_MAP, EVENT, RAY_CLUSTER
from rljob.core.attempts.evidence import final_of


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.close()


def kept(world: World) -> dict[str, Any]:
    found = world.cluster.find(CONFIG_MAP, KEY.namespace, "sums-00000-attempts")
    return {key: json.loads(text) for key, text in found["data"].items()} if found else {}


def test_every_attempt_is_written_down_once_and_outlives_its_cluster(world: World) -> None:
    train(world, 6, saves=True)
    world.cluster.put(
        {
            "apiVersion": EVENT.api_version,
            "kind": "Event",
            "metadata": {"namespace": KEY.namespace, "name": "e"},
            "type": "Warning",
            "reason": "NodeNotReady",
            "regarding": {"kind": "Pod", "name": "sums-00000-1-head-1"},
        }
    )
    world.lose_head()
    finish(world)
    assert world.cluster.objects(RAY_CLUSTER) == ()
    evidence = kept(world)
    assert [entry["attempt"]["reason"] for entry in evidence.values()] == ["HeadLost", "Ended"]
    first = evidence["attempt-1.json"]
    assert (first["progress"]["step"], first["checkpoint"]["step"]) == (6, 6)
    assert [warning["reason"] for warning in first["warnings"]] == ["NodeNotReady"]
    assert world.words.count("evidence") == 2


def test_an_operator_that_stops_after_writing_it_does_not_write_it_again(world: World) -> None:
    train(world, 6, saves=True)
    world.stops = lambda number: world.words[number - 1] == "evidence" and world.words.count("evidence") == 1
    world.end_driver(1)
    wait(world)
    assert world.crashes == ["evidence"]
    finish(world)
    assert world.words.count("evidence") == 2


def test_an_operator_that_may_not_write_it_goes_on_after_a_minute(world: World) -> None:
    train(world, 6, saves=True)
    refused: list[str] = []

    def refuse(call: Any) -> Any:  # noqa: ANN401 - a fault
        if call.kind == CONFIG_MAP and call.name.endswith("-attempts") and call.is_write:
            refused.append(call.verb)
            return Forbidden("no")
        return None

    world.cluster.faults.insert(0, lambda call: Failure(error) if (error := refuse(call)) else None)
    world.lose_head()
    for _ in range(20):
        wait(world)
    assert refused
    assert kept(world) == {}
    finish(world)


@pytest.mark.parametrize(("code", "state"), [(0, State.SUCCEEDED), (1, State.FAILED)])
def test_a_job_that_had_finished_is_not_begun_again_when_its_status_is_lost(code: int, state: State) -> None:
    world = new_world(restart={"maxRestarts": 0})
    train(world, 40, saves=True)
    world.end_driver(code)
    wait(world, 60)
    before = world.status
    assert before.state is state
    world.wipe_status()
    wait(world, 60)
    after = world.status
    assert (after.state, after.finished_time, after.usage) == (state, before.finished_time, before.usage)
    assert [entry.reason for entry in after.attempts] == [entry.reason for entry in before.attempts]
    assert world.cluster.objects(RAY_CLUSTER) == ()
    assert submissions(world) == ["sums-00000-1-1"]
    world.close()


@pytest.mark.parametrize("final", [None, "Training", 7, ["Succeeded"]])
def test_what_somebody_spoilt_says_nothing_of_the_end(final: object) -> None:
    spoilt = {"data": {"attempt-1.json": json.dumps({"final": final}), "attempt-0.json": "[1]"}}
    assert final_of(spoilt) is None
    assert final_of({"data": {"attempt-1.json": "[1]"}}) is None
    assert final_of({}) is None
