"""KubeRay away for longer than a start may take, and a cluster that it refuses: nothing is spent, and nothing waits.

By hand, `make chaos-cluster`: every other test of the local cluster needs KubeRay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.addons import KUBERAY, KUBERAY_NAMESPACE
from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

START_SECONDS = 90


@pytest.fixture
def kuberay(admin: Kube) -> Iterator[Kube]:
    """Give kubectl for KubeRay's namespace; it runs again afterwards."""
    there = admin.in_namespace(KUBERAY_NAMESPACE)
    yield there
    scale(there, 1)


def scale(kuberay: Kube, replicas: int) -> None:
    """Start or stop KubeRay."""
    kuberay.run("scale", "deployment", KUBERAY, f"--replicas={replicas}")
    wanted = f"--for=jsonpath={{.status.availableReplicas}}={replicas}" if replicas else "--for=delete"
    what = ("deployment", KUBERAY) if replicas else ("pods", "-l", "app.kubernetes.io/component=kuberay-operator")
    kuberay.run("wait", *what, wanted, "--timeout=120s", seconds=150)


def status(kube: Kube, name: str) -> Manifest:
    """Give a job's status."""
    found: Manifest = (kube.get("rljob", name) or {}).get("status", {})
    return found


def test_a_job_waits_for_a_kuberay_that_is_away_and_spends_nothing(kube: Kube, kuberay: Kube) -> None:
    scale(kuberay, 0)
    kube.apply(runs.variant("orphan", **quickstart.BARE, deadlines={"startSeconds": START_SECONDS}))
    waits = "KubeRay has not looked at the RayCluster"
    wait_for("the deadline", lambda: waits in str(status(kube, "orphan").get("message")), START_SECONDS + 60)
    before = (kube.get("rljob", "orphan") or {})["metadata"]["resourceVersion"]
    time.sleep(START_SECONDS)
    assert (kube.get("rljob", "orphan") or {})["metadata"]["resourceVersion"] == before
    scale(kuberay, 1)
    wait_for("the submission", lambda: status(kube, "orphan").get("attempts"), 240)
    told = status(kube, "orphan")
    assert [attempt["number"] for attempt in told["attempts"]] == [1]
    assert (told.get("restarts", 0), told["counters"]["infrastructureFailures"]) == (0, 0)
    kube.delete("rljob", "orphan")


def test_a_cluster_that_kuberay_refuses_ends_with_its_words(kube: Kube) -> None:
    """KubeRay reads this variable, and refuses it where nothing is to be scaled."""
    template = {"env": [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]}
    fields = quickstart.BARE | {"head": {"template": template}}
    kube.apply(runs.variant("refused", **fields, deadlines={"startSeconds": START_SECONDS}))
    kube.run("wait", "rljob/refused", "--for=condition=Finished", "--timeout=240s", seconds=270)
    told = status(kube, "refused")
    assert (told["state"], told["reason"]) == ("Failed", "InvalidManifest")
    assert "KubeRay: The RayCluster spec is invalid" in told["message"]
    assert "RAY_enable_autoscaler_v2" in told["message"]
    kube.delete("rljob", "refused")
