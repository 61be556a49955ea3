"""The parts of the demo that compute: a status to a line, a job to the pod that reads its records."""

from __future__ import annotations

from scripts.demo.follow import describe
from scripts.demo.records import reader_pod


def test_the_line_tells_the_state_before_the_first_step_and_figures_after() -> None:
    assert (
        describe({"state": "Starting", "message": "waits for the head"}, 65) == " 1:05  Starting     waits for the head"
    )
    progress = {"step": 20, "totalSteps": 40, "reward": "0.8", "clusterIdleRatio": "0.1"}
    told = describe({"state": "Training", "progress": progress}, 5)
    assert told == " 0:05  Training     [###############...............] 20/40  reward 0.8  idle 0.1"


def test_records_are_read_with_the_volumes_of_the_job() -> None:
    template = {"volumes": [{"name": "data"}], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    job = {
        "metadata": {"namespace": "default"},
        "spec": {"runtime": {"image": "i"}, "workerGroups": [{"template": template}]},
    }
    spec = reader_pod(job, "reader", "/data/steps.jsonl")["spec"]
    assert spec["volumes"] == template["volumes"]
    assert spec["containers"][0]["command"] == ["cat", "/data/steps.jsonl"]
