"""Suspend and resume on a real cluster: the run saves, the NPUs are free, and a later generation goes on from there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import quickstart
from tests.kube import Kube, wait_for

pytestmark = pytest.mark.e2e

NAME = "paused"


def status(kube: Kube) -> dict[str, Any]:
    found: dict[str, Any] = (kube.get("rljob", NAME) or {}).get("status", {})
    assert found.get("state") not in ("Failed", "Invalid"), found.get("message")
    return found


def condition(kube: Kube, kind: str) -> str:
    return next((c["status"] for c in status(kube).get("conditions", ()) if c["type"] == kind), "")


def suspend(kube: Kube, word: str) -> None:
    kube.run("patch", "rljob", NAME, "--type", "merge", "-p", f'{{"spec":{{"suspend":{word}}}}}')


def test_a_suspended_run_saves_frees_its_npus_and_goes_on_from_there(alone: Kube) -> None:
    folder = {"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": 60}
    alone.apply(quickstart.variant(NAME, trainer__steps=60, checkpoint=folder, stop={"graceSeconds": 240}))
    wait_for("two steps", lambda: status(alone).get("progress", {}).get("step", 0) >= 2, 900, every=3)
    first = status(alone)["rayCluster"]["name"]

    suspend(alone, "true")
    wait_for("the NPUs are free", lambda: condition(alone, "Suspended") == "True", 300, every=2)
    paused = status(alone)
    assert alone.find("pods", f"ray.io/cluster={first}") == []
    assert alone.find("rayclusters") == []
    (attempt,) = paused["attempts"]
    assert (attempt["outcome"], attempt["reason"]) == ("Stopped", "Suspended")
    saved = paused["checkpoint"]["step"]
    assert saved >= attempt["lastStep"] >= 2

    suspend(alone, "false")
    wait_for("a further step", lambda: status(alone)["progress"]["step"] > saved, 900, every=3)
    resumed = status(alone)
    assert [attempt["number"] for attempt in resumed["attempts"]] == [1, 2]
    assert resumed["rayCluster"]["name"] == f"{first.rpartition('-')[0]}-2"
    assert resumed["resolved"]["snapshotName"] == paused["resolved"]["snapshotName"]
    # A run that began at step 0 would have needed all these steps once more.
    assert resumed["progress"]["step"] <= saved + 10
