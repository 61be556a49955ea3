"""An image that contains the runtime (`runtime.injection: Never`): nothing is copied, and all helpers run from it."""

from __future__ import annotations

import json

import pytest

from tests.e2e import recorded_run, runs
from tests.e2e.recorded_run import Record
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(600)]

NAME = "own-runtime"
IMAGE = "rljob.local/runtime:own"
STEPS = 3


@pytest.mark.skipif(runs.VERL, reason="the image is the contract driver's")
def test_a_job_runs_with_the_runtime_of_its_image(alone: Kube) -> None:
    job = runs.variant(NAME, runtime={"image": IMAGE, "injection": "Never"}, trainer__steps=STEPS)
    alone.apply(job)
    record, images = Record(NAME), set[str]()

    def ended() -> bool:
        state = recorded_run.observe(alone, record)
        for pod in alone.find("pods", f"rljob.dev/job={NAME},ray.io/cluster"):
            spec = pod["spec"]
            images.update(each["image"] for each in (*spec["containers"], *spec.get("initContainers", ())))
        return state in recorded_run.ENDED

    wait_for("the end of the run", ended, 200)
    assert record.status["state"] == "Succeeded", json.dumps(record.status, indent=1)
    assert record.status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert images == {IMAGE}
