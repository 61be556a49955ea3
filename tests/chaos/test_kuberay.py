"""KubeRay is down for longer than the start deadline, or rejects a cluster: the job waits at no cost, or fails.

Part of `make chaos-cluster`, which is run manually: every other test on the local cluster needs KubeRay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.kuberay import scale
from tests.cluster.addons import KUBERAY_NAMESPACE
from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

START_SECONDS = 90


@pytest.fixture
def kuberay(admin: Kube) -> Iterator[Kube]:
    """Yield kubectl for KubeRay's namespace; KubeRay runs again after the test."""
    namespace = admin.in_namespace(KUBERAY_NAMESPACE)
    yield namespace
    scale(namespace, 1)


def status(kube: Kube, name: str) -> Manifest:
    """Return a job's status."""
    found: Manifest = (kube.get("rljob", name) or {}).get("status", {})
    return found


def test_a_job_waits_for_kuberay_without_using_its_restart_budget(kube: Kube, kuberay: Kube) -> None:
    scale(kuberay, 0)
    kube.apply(runs.variant("no-kuberay", **quickstart.BARE, deadlines={"startSeconds": START_SECONDS}))
    waits = "KubeRay has not looked at the RayCluster"
    wait_for(
        "the message about KubeRay", lambda: waits in str(status(kube, "no-kuberay").get("message")), START_SECONDS + 60
    )
    before = (kube.get("rljob", "no-kuberay") or {})["metadata"]["resourceVersion"]
    time.sleep(START_SECONDS)
    assert (kube.get("rljob", "no-kuberay") or {})["metadata"]["resourceVersion"] == before
    scale(kuberay, 1)
    wait_for("the submission", lambda: status(kube, "no-kuberay").get("attempts"), 240)
    found = status(kube, "no-kuberay")
    assert [attempt["number"] for attempt in found["attempts"]] == [1]
    assert (found.get("restarts", 0), found["counters"]["infrastructureFailures"]) == (0, 0)
    kube.delete("rljob", "no-kuberay")


def test_a_cluster_that_kuberay_rejects_fails_with_its_message(kube: Kube) -> None:
    """KubeRay rejects this variable in a cluster without autoscaling."""
    template = {"env": [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]}
    fields = quickstart.BARE | {"head": {"template": template}}
    kube.apply(runs.variant("rejected", **fields, deadlines={"startSeconds": START_SECONDS}))
    kube.run("wait", "rljob/rejected", "--for=condition=Finished", "--timeout=240s", seconds=270)
    found = status(kube, "rejected")
    assert (found["state"], found["reason"]) == ("Failed", "InvalidManifest")
    assert "KubeRay: The RayCluster spec is invalid" in found["message"]
    assert "RAY_enable_autoscaler_v2" in found["message"]
    kube.delete("rljob", "rejected")
