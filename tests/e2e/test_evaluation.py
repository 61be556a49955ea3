"""Checkpoints are evaluated beside the run, also if the conversion and the evaluation are killed.

tests/e2e/test_training.py evaluates the last checkpoint of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e import quickstart
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training]

NAME = "evaluated"


def evaluations(kube: Kube) -> list[dict[str, Any]]:
    """Return the evaluations in the status; fail if the run or one of them has failed."""
    status = (kube.get("rljob", NAME) or {}).get("status") or {}
    assert status.get("state") != "Failed", status
    steps: list[dict[str, Any]] = (status.get("evaluation") or {}).get("steps") or []
    assert all(entry["state"] != "Failed" for entry in steps), steps
    return steps


def running(kube: Kube, selector: str) -> Callable[[], str | None]:
    """Return a function that finds a running pod."""

    def found() -> str | None:
        pods = kube.find("pods", selector)
        return next((pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"), None)

    return found


def test_killed_evaluations_end_with_a_score_beside_the_run(alone: Kube) -> None:
    fields: dict[str, Any] = {
        "trainer__steps": 9,
        "checkpoint": {"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": 3, "keep": 3},
        "evaluation": {"every": 2, "devicesPerNode": 1},
    }
    alone.apply(quickstart.variant(NAME, **fields))
    (first,) = wait_for("an evaluation", lambda: evaluations(alone) or None, 900, every=1)
    # Of steps 3 and 6, the second; by the time of the look the last one may be saved.
    assert first["step"] in (6, 9)
    ours = f"rljob.dev/job={first['name']}"
    conversion = wait_for("the conversion runs", running(alone, f"{ours},rljob.dev/initializer"), 240, every=0.2)
    alone.run("delete", "pod", conversion, "--grace-period=0", "--force")
    head = wait_for("the evaluation runs", running(alone, f"{ours},ray.io/node-type=head"), 600, every=1)
    alone.delete("pod", head, wait=False)

    def scored() -> bool:
        return bool(evaluations(alone)[0]["state"] == "Succeeded")

    wait_for("the evaluation has a score", scored, 900, every=2)
    child = (alone.get("rljob", first["name"]) or {})["status"]
    assert float(evaluations(alone)[0]["score"]) >= 0
    assert child["state"] == "Succeeded"

    def last_scored() -> bool:
        last = evaluations(alone)[-1]
        return bool((last["step"], last["state"]) == (9, "Succeeded"))

    wait_for("the last checkpoint is evaluated", last_scored, 900, every=1)
    status = (alone.get("rljob", NAME) or {})["status"]
    assert (status["restarts"], len(status["attempts"])) == (0, 1)
    alone.run("patch", "rljob", NAME, "--type=merge", "-p", '{"spec": {"cleanup": {"jobAfterSeconds": 1}}}')
    wait_for("cleanup.jobAfterSeconds has passed", lambda: alone.get("rljob", NAME) is None, 120)
    wait_for("the evaluations are gone", lambda: alone.find("rljobs", f"rljob.dev/job={NAME}") == [], 120)
