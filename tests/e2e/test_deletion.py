"""Deleting a job in the middle of its run leaves nothing of it."""

from __future__ import annotations

import time

import pytest

from tests.e2e import quickstart
from tests.kube import Kube, wait_for

pytestmark = pytest.mark.e2e

KINDS = ("rayclusters", "pods", "jobs", "services", "configmaps", "secrets")


def test_nothing_is_left_a_minute_after_deletion(alone: Kube) -> None:
    alone.apply(quickstart.variant("doomed", trainer__steps=400))

    def training() -> bool:
        status = (alone.get("rljob", "doomed") or {}).get("status", {})
        assert status.get("state") not in ("Failed", "Succeeded"), status
        return bool(status.get("state") == "Training")

    wait_for("the first step", training, 900, every=3)
    uid = (alone.get("rljob", "doomed") or {})["metadata"]["uid"]
    cluster = (alone.get("rljob", "doomed") or {})["status"]["rayCluster"]["name"]
    begin = time.monotonic()
    alone.run("delete", "rljob", "doomed", "--wait=false")

    def gone() -> bool:
        if alone.get("rljob", "doomed") is not None:
            return False
        ours = [item for kind in KINDS for item in alone.find(kind, f"rljob.dev/job-uid={uid}")]
        rays = [item for kind in ("pods", "services") for item in alone.find(kind, f"ray.io/cluster={cluster}")]
        return not ours and not rays

    wait_for("everything of the job is gone", gone, 60)
    print(f"gone after {time.monotonic() - begin:.0f} s")
