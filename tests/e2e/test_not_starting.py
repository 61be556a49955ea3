"""A job that cannot start reports the reason, and its message names the pod."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e import quickstart, runs
from tests.e2e.conftest import operator_writes
from tests.kube import Kube, Manifest, wait_for

pytestmark = pytest.mark.e2e

CASES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "image": (
        {**quickstart.BARE, "runtime__image": "rljob.local/no-such-image:1"},
        "ImagePullFailed",
        ("pod image-", "no-such-image"),
    ),
    "initializer-image": (
        {"runtime__image": "rljob.local/no-such-image:1", "initializers": [{"name": "prepare", "command": ["true"]}]},
        "ImagePullFailed",
        ("initializer prepare: pod initializer-image-", "no-such-image"),
    ),
    "npus": (
        {**quickstart.BARE, "workerGroups__0__devicesPerNode": 16},
        "PodUnschedulable",
        ("pod npus-", "too little huawei.com/Ascend910 free"),
    ),
}


@pytest.mark.parametrize(("name", "fields", "reason", "parts"), [(k, *v) for k, v in CASES.items()], ids=CASES)
def test_the_reason_names_the_pod(
    kube: Kube, name: str, fields: dict[str, Any], reason: str, parts: tuple[str, ...]
) -> None:
    kube.apply(runs.variant(name, **fields))

    def reported() -> Manifest | None:
        status = (kube.get("rljob", name) or {}).get("status", {})
        return status if status.get("reason") == reason else None

    status = wait_for(f"reason {reason}", reported, 120)
    assert all(part in status["message"] for part in parts), status["message"]
    assert reason in kube.run("get", "rljob", name, "-o", "wide")
    wait_for("a warning event", lambda: any(e.get("reason") == reason for e in kube.events(name)), 30)
    kube.delete("rljob", name)


def test_an_image_without_ray_ends_the_job_with_the_last_lines_of_its_container(kube: Kube) -> None:
    kube.apply(runs.variant("no-ray", **quickstart.BARE, runtime__image="rljob.local/operator:dev"))
    kube.run("wait", "rljob/no-ray", "--for=condition=Finished", "--timeout=300s", seconds=330)
    status = (kube.get("rljob", "no-ray") or {})["status"]
    assert (status["state"], status["reason"]) == ("Failed", "ContainerCannotStart")
    assert "at least 3 times" in status["message"]
    assert "exit code" in status["message"]
    assert "the image lacks a program" in status["message"]
    assert [attempt["cause"] for attempt in status["attempts"]] == ["Configuration"]
    wait_for("the cluster is freed", lambda: not kube.find("rayclusters", "rljob.dev/job=no-ray"), 60)
    kube.delete("rljob", "no-ray")


def test_applying_a_waiting_job_again_writes_nothing(kube: Kube) -> None:
    job = runs.variant("twice", **quickstart.BARE)
    # A reason that does not change with what else runs on the node: the scheduler's message becomes the status.
    job["spec"]["workerGroups"][0]["template"] = {"nodeSelector": {"example.com/no-such-node": "true"}}
    kube.apply(job)
    waits = {"reason": "PodUnschedulable"}
    wait_for(
        "reason PodUnschedulable",
        lambda: waits.items() <= (kube.get("rljob", "twice") or {}).get("status", {}).items(),
        120,
    )
    time.sleep(10)

    def versions() -> tuple[str, int]:
        return (kube.get("rljob", "twice") or {})["metadata"]["resourceVersion"], operator_writes(kube.namespace)

    before = versions()
    kube.apply(job)
    kube.apply(job)
    time.sleep(10)
    assert versions() == before
    kube.delete("rljob", "twice")


def test_the_start_deadline_ends_it(kube: Kube) -> None:
    image = "rljob.local/no-such-image:1"
    kube.apply(runs.variant("late", **quickstart.BARE, runtime__image=image, deadlines={"startSeconds": 45}))
    kube.run("wait", "rljob/late", "--for=condition=Finished", "--timeout=180s", seconds=210)
    status = (kube.get("rljob", "late") or {})["status"]
    assert status["state"] == "Failed"
    assert status["reason"] == "StartDeadlineExceeded"
    assert "no-such-image" in status["message"]
    wait_for("the cluster is freed", lambda: not kube.find("rayclusters", "rljob.dev/job=late"), 60)
    kube.delete("rljob", "late")


def test_a_pod_that_ignores_sigterm_before_its_run_does_not_get_the_grace_of_a_run(kube: Kube) -> None:
    """Process 1 of a container without a handler ignores SIGTERM and holds the NPUs until the kubelet kills it."""
    job = runs.variant("ignores-term", **quickstart.BARE, stop={"graceSeconds": 600})
    command = ["sh", "-c", "trap '' TERM; sleep 3600 & wait; sleep 3600"]
    container = {"name": "ignores-term", "image": job["spec"]["runtime"]["image"], "command": command}
    job["spec"]["workerGroups"][0]["template"] = {"initContainers": [container]}
    kube.apply(job)

    def initializing() -> bool:
        pods = kube.find("pods", "rljob.dev/job=ignores-term,ray.io/node-type=worker")
        return any(
            "running" in status["state"] for pod in pods for status in pod["status"].get("initContainerStatuses", ())
        )

    wait_for("the worker runs its init container", initializing, 120)
    kube.run("patch", "rljob", "ignores-term", "--type", "merge", "-p", '{"spec":{"suspend":true}}')
    kube.run("wait", "rljob/ignores-term", "--for=condition=Suspended", "--timeout=180s", seconds=210)
    assert not kube.find("pods", "rljob.dev/job=ignores-term,ray.io/cluster")
    kube.delete("rljob", "ignores-term")
