"""A run that is restarted on request and continues, is stopped for good and stays so, with every step saved."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.e2e import recorded_run, runs
from tests.kube import Kube, condition, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1600 * runs.SLOWER)]

NAME = "asked"
SAVE_EVERY = 400
"""More steps than the run makes: what is saved was saved because somebody asked."""
FIELDS = {
    "trainer__steps": SAVE_EVERY,
    "checkpoint": runs.saving(NAME, SAVE_EVERY),
    "stop": {"graceSeconds": 240},
    "restart": {"maxRestarts": 0, "maxInfrastructureRestarts": 0},
}
RESTART = "rljob.dev/restart"


def test_a_restart_goes_on_in_a_new_cluster_and_a_stop_is_the_end(alone: Kube) -> None:
    alone.apply(runs.variant(NAME, **FIELDS))

    def status() -> dict[str, Any]:
        found: dict[str, Any] = (alone.get("rljob", NAME) or {}).get("status", {})
        return found

    def clusters() -> list[str]:
        return [found["metadata"]["name"] for found in alone.find("rayclusters", f"rljob.dev/job={NAME}")]

    def trains_beyond(step: int) -> bool:
        state = status().get("state")
        assert state not in ("Failed", "Succeeded", "Stopped"), status()
        return state == "Training" and status()["progress"]["step"] > step

    wait_for("the first steps", lambda: trains_beyond(2), 900, every=3)
    _assert_stages_in_order(status())
    (first,) = clusters()
    alone.run("annotate", "rljob", NAME, f"{RESTART}=once")
    wait_for("another cluster", lambda: status()["intent"]["clusterGeneration"] == 2, 300)
    restarted = status()
    saved = restarted["checkpoint"]["step"]
    wait_for("a step of the new cluster", lambda: trains_beyond(saved), 900, every=3)
    found = status()
    assert first not in clusters()
    assert [a["reason"] for a in found["attempts"][:-1]] == ["RestartRequested"]
    assert found["attempts"][-1]["resumedFromStep"] == saved
    assert (found.get("restarts", 0), found["restartRequest"]) == (0, "once")

    alone.run("patch", "rljob", NAME, "--type=merge", "-p", json.dumps({"spec": {"stop": {"requested": True}}}))
    wait_for("its end", lambda: bool(condition(alone.get("rljob", NAME), "Finished")), 300)
    ended = status()
    finished = condition(alone.get("rljob", NAME), "Finished")
    assert finished is not None
    assert (ended["state"], finished["reason"]) == ("Stopped", "Stopped"), ended
    last = ended["attempts"][-1]
    assert (last["outcome"], last["reason"]) == ("Stopped", "StopRequested")
    assert ended["checkpoint"]["step"] == last["lastStep"] > saved
    folder = recorded_run.volume(alone) / "checkpoints" / NAME / f"global_step_{last['lastStep']}"
    assert any(folder.iterdir()), "the checkpoint is not on the volume"
    assert ended["usage"]["deviceSeconds"] == sum(attempt["deviceSeconds"] for attempt in ended["attempts"])
    wait_for("no cluster", lambda: not clusters(), 120)

    alone.run("patch", "rljob", NAME, "--type=merge", "-p", json.dumps({"spec": {"stop": {"requested": False}}}))
    wait_for("the warning", lambda: any("has no effect" in event["note"] for event in alone.events(NAME)), 60)
    assert (status()["state"], clusters()) == ("Stopped", [])


def test_a_job_is_not_created_to_be_stopped(alone: Kube) -> None:
    alone.apply(runs.variant("copied", **FIELDS | {"stop": {"requested": True}}))
    refused = wait_for("a refusal", lambda: condition(alone.get("rljob", "copied"), "Validated"), 60)
    assert refused["reason"] == "InvalidSpec"
    assert "spec.stop.requested: is true in a job that is created" in refused["message"]


def _assert_stages_in_order(status: dict[str, Any]) -> None:
    """Check that the start is recorded from its pods to the first step."""
    stages = status["start"]["stages"]
    print([(stage["name"], stage["since"]) for stage in stages])
    names, times = [stage["name"] for stage in stages], [datetime.fromisoformat(stage["since"]) for stage in stages]
    assert (names[0], names[-1]) == ("Pods", "Training")
    # The contract driver may have made its first step before it is asked what it does.
    assert "Submitting" in names
    assert times == sorted(times)
    assert (status["start"]["stage"], status["start"]["since"]) == ("Training", stages[-1]["since"])
