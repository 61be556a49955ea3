"""The router that holds requests back, and replicas of verl: how requests end.

The router's scenes need only a Ray and actors that answer on command. One process with a pair of replicas of vLLM on
CPUs answers what needs an engine, in minutes (replicas_process.py).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.verl_plugin.platform import cpu_defaults

REQUESTS = 1_200
UPSTREAM_LIMIT = 1_000
"""Of calls to a replica (verl 0.9.1, workers/rollout/replica.py:257-260)."""
SECONDS = 1_200.0
REPETITIONS = 5
FOLDER = Path(__file__).parent


def seen(program: str, *words: str, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the lines that a program of this folder printed."""
    with tempfile.TemporaryDirectory(prefix="rlb-", dir="/tmp") as folder:
        command = [sys.executable, str(FOLDER / program), *words, folder]
        environment = {**os.environ, **cpu_defaults.ENVIRONMENT}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def scenes() -> dict[str, Any]:
    """Return what the router did in each scene."""
    (found,) = seen("router_scenes.py", "few")
    return found


@pytest.fixture(scope="module")
def crowds() -> dict[str, Any]:
    """Return what it did with thousands of requests."""
    (found,) = seen("router_scenes.py", "many")
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Return what the process with real replicas saw."""
    return {name: part for line in seen("replicas_process.py", str(REQUESTS)) for name, part in line.items()}


@pytest.mark.long
def test_ten_thousand_requests_that_wait_do_not_block_the_actor(crowds: dict[str, Any]) -> None:
    scene = crowds["many"]
    assert scene["answered"] == 10_000
    # Of a replica for eight: those that run, and those that replace them. How many meet depends on the machine.
    assert 8 <= scene["most"] <= 16


@pytest.mark.long
def test_more_than_may_wait_do_not_block_it_either(crowds: dict[str, Any]) -> None:
    assert crowds["too many"]["answered"] == 3_000


def test_an_abandoned_rollout_ends_at_once_what_waits_and_what_comes_late(scenes: dict[str, Any]) -> None:
    scene = scenes["abandoned"]
    assert (scene["ended"], scene["completed"]) == (3, 6)
    assert scene["early"] == [["aborted", 0]] * 3
    assert (scene["late"], scene["next"]) == ("aborted", "completed")


def test_a_replica_that_dies_takes_only_its_own_requests_along(scenes: dict[str, Any]) -> None:
    scene = scenes["lost"]
    assert (scene["given"], scene["failed"], scene["completed"], scene["left"]) == (3, 3, 17, ["b"])


def test_requests_that_fail_or_are_cancelled_leave_their_room(scenes: dict[str, Any]) -> None:
    assert scenes["failed and cancelled"] == {"cancelled": 2, "failed": 1, "completed": 9}


@pytest.mark.long
def test_responses_of_real_replicas_come_back_whole(found: dict[str, Any]) -> None:
    """The program compares the length of each response, and the number of requests that were timed."""
    assert found["late"]["passes"] > 0


@pytest.mark.long
def test_every_request_reaches_the_engine_and_ends_at_an_abort(found: dict[str, Any]) -> None:
    replica = found["replica"]
    # verl's own replica holds a thousand of them, and answers the abort when each of these has a token.
    assert replica["peak"] == REQUESTS > UPSTREAM_LIMIT
    assert (replica["aborted"], replica["completed"]) == (REQUESTS, 0)
    # It was asked for its address while it held them, and its engine counted what it computed; CPUs have no graphs.
    assert replica["control_seconds"] is not None
    assert replica["tokens_of_steps"]["computed NONE"] > REQUESTS
    assert replica["tokens_of_steps"]["padding NONE"] == 0


@pytest.mark.long
def test_verls_own_replica() -> None:
    ((theirs,), (ours,)) = (seen("replica_process.py", str(REQUESTS), whose) for whose in ("verl", "ours"))
    print(f"verl's replica: {theirs}\nours: {ours}")  # for docs/benchmarks.md
    assert theirs["peak"] == UPSTREAM_LIMIT
    assert theirs["completed"] > REQUESTS / 2
    assert ours["completed"] == 0


@pytest.mark.long
@pytest.mark.parametrize(("shape", "arms"), [("skewed", "least,late,second-epoch,oracle"), ("uniform", "least,late")])
def test_passes_with_verls_router_and_with_ours(shape: str, arms: str) -> None:
    steps = seen("late_binding_process.py", arms, shape, "0", str(REPETITIONS), "3600", seconds=3600.0)
    for figure in ("passes", "seconds", "idle"):
        medians = {arm: statistics.median(step[arm][figure] for step in steps) for arm in arms.split(",")}
        print(f"{shape}, {figure}: {medians}")  # for docs/benchmarks.md
    assert len(steps) == REPETITIONS
