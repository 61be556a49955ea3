"""A service that all pods of a job share: there before the cluster, reached by its pods, gone at the end.

The job requests more NPUs than the node has, so that only the head pod runs.
"""

from __future__ import annotations

import pytest

from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, condition, wait_for

pytestmark = pytest.mark.e2e

NAME = "sharing"
KINDS = ("deployments", "services", "networkpolicies")
SERVER = {
    "name": "sandbox",
    "image": runs.IMAGE,
    "command": ["python", "-m", "http.server", "9000"],
    "port": 9000,
    "placement": "Shared",
    "replicas": 2,
}
ASK = "import os, urllib.request as r; print(r.urlopen(os.environ['RLJOB_SERVICE_SANDBOX_URL'], timeout=30).status)"


def left(kube: Kube) -> list[str]:
    """Return the objects and pods of the job's services."""
    selector = f"rljob.dev/job={NAME},rljob.dev/service"
    return [item["metadata"]["name"] for kind in (*KINDS, "pods") for item in kube.find(kind, selector)]


def running_head(kube: Kube) -> str:
    def head() -> str | None:
        pods = kube.find("pods", f"rljob.dev/job={NAME},ray.io/node-type=head")
        return pods[0]["metadata"]["name"] if pods and pods[0]["status"]["phase"] == "Running" else None

    return wait_for("the head runs", head, 180)


def starting(kube: Kube) -> Manifest:
    return condition(kube.get("rljob", NAME), "ClusterReady") or {}


def test_a_pod_of_the_job_reaches_the_service_and_it_is_gone_after_the_end(kube: Kube) -> None:
    broken = SERVER | {"command": ["python", "-c", "raise SystemExit('no model')"]}
    kube.apply(runs.variant(NAME, **quickstart.WAITING, services=[broken]))

    def waits() -> bool:
        found = starting(kube)
        return found.get("reason") == "WaitingForServices" and "no model" in found.get("message", "")

    wait_for("the job says what its service waits for", waits, 180)
    assert "service sandbox: 0 of 2 pods are available" in starting(kube)["message"]
    assert kube.find("rayclusters", f"rljob.dev/job={NAME}") == []
    kube.delete("rljob", NAME)
    wait_for("nothing is left of the services", lambda: not left(kube), 120)

    kube.apply(runs.variant(NAME, **quickstart.WAITING, services=[SERVER]))
    pod = running_head(kube)
    assert kube.run("exec", pod, "-c", "ray-head", "--", "python", "-c", ASK).strip() == "200"
    assert len(kube.find("deployments", f"rljob.dev/job={NAME}")) == 1

    kube.run("patch", "rljob", NAME, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for("a suspended job has no services", lambda: not left(kube), 180)
    kube.run("patch", "rljob", NAME, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    pod = running_head(kube)
    assert kube.run("exec", pod, "-c", "ray-head", "--", "python", "-c", ASK).strip() == "200"

    kube.run("patch", "rljob", NAME, "--type=merge", "-p", '{"spec":{"stop":{"requested":true}}}')
    wait_for("a stopped job has no services", lambda: not left(kube), 180)
    assert (kube.get("rljob", NAME) or {})["status"]["state"] == "Stopped"
    kube.delete("rljob", NAME)
