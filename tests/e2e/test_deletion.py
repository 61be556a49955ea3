"""A job that is deleted during its run saves a checkpoint first and leaves no objects."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e import runs
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle]

SAVING = {
    "checkpoint": runs.saving("deleted", 400),
    "stop": {"graceSeconds": 240, "requireCheckpoint": True},
}
KINDS = ("rayclusters", "pods", "jobs", "services", "configmaps", "secrets")


def test_a_deleted_job_saves_and_leaves_nothing(alone: Kube) -> None:
    alone.apply(runs.variant("deleted", trainer__steps=400, **SAVING))

    def job() -> dict[str, Any]:
        return alone.get("rljob", "deleted") or {}

    def training() -> bool:
        status = job().get("status", {})
        assert status.get("state") not in ("Failed", "Succeeded"), status
        return bool(status.get("state") == "Training")

    wait_for("the first step", training, 900, every=3)
    metadata, status = job()["metadata"], job()["status"]
    uid, cluster, seen = metadata["uid"], status["rayCluster"]["name"], status["progress"]["step"]
    assert metadata["finalizers"] == ["rljob.dev/stop"]
    assert "checkpoint" not in status

    def gone() -> bool:
        if job():
            return False
        owned = [item for kind in KINDS for item in alone.find(kind, f"rljob.dev/job-uid={uid}")]
        of_ray = [item for kind in ("pods", "services") for item in alone.find(kind, f"ray.io/cluster={cluster}")]
        return not owned and not of_ray

    with alone.watch("rljob", "deleted", "{.status.checkpoint.step}") as steps:
        begin = time.monotonic()
        # Foreground deletion deletes all pods at the same time, together with the Service of the head.
        alone.run("delete", "rljob", "deleted", "--wait=false", "--cascade=foreground")
        wait_for("all objects of the job are gone", gone, 180)
        print(f"gone after {time.monotonic() - begin:.0f} s")
    assert int(steps[-1]) >= seen


def test_a_worker_that_waits_for_its_head_frees_its_npus_when_it_is_deleted(alone: Kube) -> None:
    nowhere = {"kubernetes.io/hostname": "nowhere"}
    fields = {"trainer__steps": 400, "initializers": [], "head__template__nodeSelector": nowhere, **SAVING}
    alone.apply(runs.variant("headless", **fields))
    worker = "rljob.dev/job=headless,ray.io/node-type=worker"

    def waiting() -> bool:
        found = [
            status for pod in alone.find("pods", worker) for status in pod["status"].get("initContainerStatuses", [])
        ]
        return any(status["name"] == "wait-gcs-ready" and "running" in status["state"] for status in found)

    wait_for("a worker that waits for its head", waiting, 120)
    alone.delete("rljob", "headless")
    wait_for("no worker", lambda: not alone.find("pods", worker), 60)
