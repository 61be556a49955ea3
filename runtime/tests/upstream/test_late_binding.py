"""The router that holds requests back, with Ray's actors, verl's client and real replicas of vLLM on CPUs."""

from __future__ import annotations

import functools
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.launcher_overrides import LATE_ROUTER_CONFIG
from rljob_runtime.verl_plugin import cpu_defaults

FOLDER = Path(__file__).parent
SECONDS = 300.0
REPETITIONS = 5


def seen(program: str, *words: str, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the lines that a program of this folder printed."""
    with tempfile.TemporaryDirectory(prefix="rlb-", dir="/tmp") as folder:
        command = [sys.executable, str(FOLDER / program), *words, folder]
        environment = {**os.environ, **cpu_defaults.ENVIRONMENT}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_verl_creates_the_actor_that_was_registered() -> None:
    import ray
    from verl.workers.rollout import router

    from rljob_runtime.verl_plugin import late_router
    from rljob_runtime.verl_plugin.late_binding import Limits

    late_router.register(Limits(8, 1, 9_000))
    made = router._resolve_router_class(router._load_router_yaml(str(LATE_ROUTER_CONFIG))["router_class"])
    assert isinstance(made, ray.actor.ActorClass)
    assert made._default_options["max_concurrency"] == 9_000 + late_router.OTHER_CALLS
    assert "cls if isinstance(cls, ray.actor.ActorClass)" in inspect.getsource(router._create_plugin_extension)
    protocol = {name for name in vars(router.RequestLoadBalancer) if not name.startswith("_")}
    ours, theirs = late_router.LateBindingRouter, router.GlobalRequestLoadBalancer
    assert protocol
    for name in protocol:
        wanted = list(inspect.signature(getattr(theirs, name)).parameters)
        assert list(inspect.signature(getattr(ours, name)).parameters)[: len(wanted)] == wanted


def test_our_client_overrides_what_verls_calls() -> None:
    from verl.workers.rollout.llm_server import LLMServerClient

    from rljob_runtime.verl_plugin.late_client import MEDIA, LengthClient, group_of

    source = inspect.getsource(LLMServerClient.generate)
    assert "self._acquire_server(\n            request_id,\n            prompt_ids=prompt_ids," in source
    assert all(f"{name}={name}," in source for name in MEDIA)
    assert "self._release_server(" in source
    assert {"generate", "_acquire_server", "_release_server"} <= set(vars(LengthClient))
    assert group_of({"prompt_ids": [1, 2]}) == group_of({"prompt_ids": [1, 2], "image_data": None})
    assert group_of({"prompt_ids": [1, 2]}) != group_of({"prompt_ids": [12]})
    assert group_of({"prompt_ids": [1, 2], "image_data": ["an image"]}) is None


@functools.cache
def endings() -> dict[str, Any]:
    """Return how requests ended in a real actor."""
    (found,) = seen("late_router_process.py")
    return found


def test_ten_thousand_requests_that_wait_do_not_block_the_actor() -> None:
    assert endings()["many"] == {"answered": 10_000, "most": 16}


def test_more_than_may_wait_do_not_block_it_either() -> None:
    assert endings()["too many"]["answered"] == 3_000


def test_an_abandoned_rollout_ends_at_once_what_waits_and_what_comes_late() -> None:
    found = endings()["abandoned"]
    assert (found["ended"], found["completed"]) == (3, 6)
    assert found["early"] == [["aborted", 0]] * 3
    assert (found["late"], found["next"]) == ("aborted", "completed")


def test_a_replica_that_dies_takes_only_its_own_requests_along() -> None:
    found = endings()["lost"]
    assert (found["given"], found["failed"], found["completed"], found["left"]) == (3, 3, 17, ["b"])


def test_requests_that_fail_or_are_cancelled_leave_their_room() -> None:
    assert endings()["failed and cancelled"] == {"cancelled": 2, "failed": 1, "completed": 9}


def test_responses_of_real_replicas_come_back_whole() -> None:
    """The program compares the length of each response, and the number of requests that were timed."""
    (found,) = seen("late_binding_process.py", "late", "skewed", "0", "1", "3600")
    assert found["late"]["passes"] > 0


@pytest.mark.skipif(not os.environ.get("RLJOB_COMPARE"), reason="RLJOB_COMPARE asks for the comparison with verl's own")
@pytest.mark.parametrize(("shape", "arms"), [("skewed", "least,late,second-epoch,oracle"), ("uniform", "least,late")])
def test_gain_over_verls_router_for_comparison(shape: str, arms: str) -> None:
    words = (arms, shape, "0", str(REPETITIONS), "3600")
    steps = seen("late_binding_process.py", *words, seconds=3600.0)
    for figure in ("passes", "seconds", "idle"):
        medians = {arm: statistics.median(step[arm][figure] for step in steps) for arm in arms.split(",")}
        print(f"{shape}, {figure}: {medians}")  # for docs/benchmarks.md
    assert len(steps) == REPETITIONS
