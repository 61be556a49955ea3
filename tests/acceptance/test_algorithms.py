"""PPO with a critic on two worker pods, from a recipe, ended by a stop rule, with a checkpoint at its end.

All tests share one run, because a run takes minutes to start and seconds per step. The manifests are those of
examples/algorithms, shortened.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import quickstart
from tests.e2e.recorded_run import volume
from tests.e2e.shared import ROOT
from tests.kube import Kube, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(1200)]

NAME = "ppo-two-workers"
RUN_SECONDS = 900
STOP_AFTER = 2
CHECKPOINTS = f"{quickstart.MOUNT}/checkpoints"


@dataclass
class Run:
    """What was observed of the run, and its records."""

    job: Manifest = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    """Names of all worker pods."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """Contents of steps.jsonl."""
    volume: Path = Path()
    """Folder of the claim on this machine."""


def example(name: str) -> Manifest:
    loaded: Manifest = yaml.safe_load((ROOT / "examples/algorithms" / f"{name}.yaml").read_text())
    return loaded


def manifest() -> Manifest:
    """Return the PPO example with the pods of the two-workers example, a stop rule and checkpoints."""
    job = example("ppo")
    job["metadata"]["name"] = NAME
    job["spec"]["workerGroups"] = example("two-workers")["spec"]["workerGroups"]
    job["spec"].setdefault("trainer", {})["steps"] = 40
    job["spec"]["stopRules"] = [
        {
            "name": "enough",
            "metric": "training/global_step",
            "condition": "Above",
            "threshold": str(STOP_AFTER - 1),
            "result": "Succeeded",
        }
    ]
    job["spec"]["checkpoint"] = {"path": CHECKPOINTS, "everySteps": 40}
    return job


@pytest.fixture(scope="module")
def run(kube: Kube) -> Iterator[Run]:
    record = Run()
    kube.apply(example("recipe"), manifest())
    begin = time.monotonic()
    while True:
        record.job = kube.get("rljob", NAME) or {}
        pods = kube.find("pods", f"rljob.dev/job={NAME},ray.io/node-type=worker")
        record.workers |= {pod["metadata"]["name"] for pod in pods}
        if record.job.get("status", {}).get("state") in ("Succeeded", "Failed", "Invalid"):
            break
        assert time.monotonic() - begin < RUN_SECONDS, json.dumps(record.job.get("status"), indent=1)
        time.sleep(2)
    record.volume = volume(kube)
    cluster = record.job.get("status", {}).get("rayCluster", {}).get("name", "")
    steps = record.volume / "logs" / cluster / "attempt-1" / "steps.jsonl"
    record.lines = [json.loads(line) for line in steps.read_text().splitlines()] if steps.exists() else []
    yield record
    kube.delete("rljob", NAME)
    wait_for("no Ray pod", lambda: not kube.find("pods", f"rljob.dev/job={NAME},ray.io/cluster"), 60)


def test_its_stop_rule_ends_it_as_succeeded(run: Run) -> None:
    status = run.job["status"]
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert status["reason"] == "StopRuleMatched"
    assert "stop rule enough: training/global_step 2 is above 1 at step 2" in status["message"]
    assert [line["step"] for line in run.lines] == list(range(1, STOP_AFTER + 1))


def test_a_critic_was_trained(run: Run) -> None:
    assert run.lines
    for line in run.lines:
        assert math.isfinite(line["metrics"]["critic/vf_loss"])
        assert line["metrics"]["timing_s/update_critic"] > 0


def test_two_pods_shared_the_work(run: Run) -> None:
    assert len(run.workers) == 2
    for line in run.lines:
        assert {line["metrics"][f"rljob/replica/{index}/requests"] for index in (0, 1)} != {0.0}


def test_actor_and_critic_are_saved_by_both_ranks(run: Run) -> None:
    saved = run.volume / "checkpoints" / f"global_step_{STOP_AFTER}"
    for role in ("actor", "critic"):
        ranks = {path.name for path in (saved / role).glob("model_world_size_*")}
        assert ranks == {f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)}
    assert (run.volume / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == str(STOP_AFTER)
