"""An NPU becomes unhealthy during a run: the run saves and stops, the job waits with a reason, and later it resumes.

The kubelet and the device plug-in report that a device is unhealthy. A ConfigMap as MindCluster's plug-in writes it
contains the level of the fault. The cluster has one node, so the job cannot move to another one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import runs
from tests.e2e.shared import ROOT
from tests.kube import Kube, Manifest, condition, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.exclusive, pytest.mark.timeout(1200 * runs.SLOWER)]

NAME = "faulty"
NODE = "node-1"
RESOURCE = "huawei.com/Ascend910"
DEVICE_INFO = f"mindx-dl-deviceinfo-{NODE}"
STEP_SECONDS = 2.0
STEPS = 20 if runs.VERL else 60
"""More steps than the run takes until the operator observes the fault of the node."""
SAVE_EVERY = 10


def _device_info(*faults: Manifest) -> Manifest:
    """Return the ConfigMap of Ascend's device plug-in with the fields about faults."""
    devices = {f"{RESOURCE}-Unhealthy": ",".join(fault["npu_name"] for fault in faults)}
    listed = {"DeviceList": {**devices, f"{RESOURCE}-Fault": json.dumps(faults)}, "UpdateTime": 0}
    metadata = {"namespace": "kube-system", "name": DEVICE_INFO, "labels": {"mx-consumer-cim": "true"}}
    data = {"DeviceInfoCfg": json.dumps({"DeviceInfo": listed})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _set_health(health: str, device: str) -> None:
    command = [sys.executable, "-m", "tests.cluster", "npu", health, device]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)


@pytest.fixture
def fail(alone: Kube) -> Iterator[Callable[[str], None]]:
    """Yield a function that makes a device unhealthy; all devices are healthy before and after the test."""
    system, broken = alone.in_namespace("kube-system"), list[str]()
    system.apply(_device_info())

    def break_device(device: str) -> None:
        broken.append(device)
        fault = {"fault_type": "CardUnhealthy", "npu_name": device, "fault_code": "80E01801"}
        _set_health("unhealthy", device)
        system.apply(_device_info({**fault, "fault_level": "SeparateNPU", "fault_handling": "SeparateNPU"}))

    yield break_device
    for device in broken:
        _set_health("healthy", device)
    system.delete("configmap", DEVICE_INFO)


def _status(kube: Kube) -> Manifest:
    found: Manifest = (kube.get("rljob", NAME) or {}).get("status", {})
    return found


def _allocatable(kube: Kube) -> tuple[int, int]:
    state = (kube.get("node", NODE) or {})["status"]
    return int(state["allocatable"][RESOURCE]), int(state["capacity"][RESOURCE])


def test_a_run_leaves_an_unhealthy_device_and_resumes_when_it_is_healthy(
    alone: Kube, fail: Callable[[str], None]
) -> None:
    kube = alone
    job = runs.variant(
        NAME,
        trainer__steps=STEPS,
        **runs.pace(STEP_SECONDS),
        checkpoint=runs.saving(NAME, SAVE_EVERY, keep=2),
        restart={"maxInfrastructureRestarts": 2, "backoffSeconds": 1},
        stop={"graceSeconds": 240},
    )
    kube.apply(job)
    wait_for("the first step", lambda: _status(kube).get("progress", {}).get("step", 0) >= 1, 600, every=2)
    (worker,) = kube.find("pods", f"rljob.dev/job={NAME},ray.io/node-type=worker")
    assert worker["spec"]["nodeName"] == NODE
    device = worker["metadata"]["annotations"]["huawei.com/AscendReal"].split(",")[0]
    _, capacity = _allocatable(kube)
    fail(device)

    # The reason is in the status, the events and the output of kubectl, and the run has saved.
    wait_for("the device is not allocatable", lambda: _allocatable(kube) == (capacity - 1, capacity), 60)
    wait_for("the job waits", lambda: _status(kube).get("reason") == "WaitingForNodes", 300, every=2)
    status = _status(kube)
    (attempt,) = status["attempts"]
    assert (attempt["reason"], attempt["cause"], attempt["node"]) == ("DeviceFault", "Infrastructure", NODE), attempt
    assert device in attempt["message"]
    assert "SeparateNPU" in attempt["message"]
    saved = status["checkpoint"]["step"]
    assert 1 <= saved == attempt["lastStep"] < STEPS, status
    (avoided,) = status["excludedNodes"]
    assert (avoided["name"], avoided["reason"]) == (NODE, "DeviceFault")
    assert device in status["message"], status["message"]
    wide = kube.run("get", "rljob", NAME, "-o", "wide")
    assert "WaitingForNodes" in wide
    assert device in wide
    ready = condition(kube.get("rljob", NAME), "ClusterReady") or {}
    assert (ready["status"], ready["reason"]) == ("False", "WaitingForNodes")
    notes = {event["reason"]: event.get("note", "") for event in kube.events(NAME)}
    assert device in notes["DeviceFault"], notes
    assert device in notes["WaitingForNodes"], notes
    assert device in kube.run("describe", "rljob", NAME)

    # While the job waits, no cluster is created and no budget is used.
    generation, budget = status["intent"]["clusterGeneration"], status["budget"]
    time.sleep(20)
    status = _status(kube)
    assert (status["intent"]["clusterGeneration"], status["budget"]) == (generation, budget)
    assert status["reason"] == "WaitingForNodes"
    assert not kube.find("pods", f"rljob.dev/job={NAME},ray.io/cluster")

    # The device is healthy again, and the job resumes from its checkpoint. The remaining steps show nothing new.
    if not runs.VERL:
        kube.run("patch", "rljob", NAME, "--type=merge", "-p", json.dumps({"spec": runs.pace(runs.SHORT_STEP_SECONDS)}))
    _set_health("healthy", device)
    kube.in_namespace("kube-system").apply(_device_info())
    kube.run("wait", f"rljob/{NAME}", "--for=condition=Finished", "--timeout=600s", seconds=630)
    status = _status(kube)
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert [entry["outcome"] for entry in status["attempts"]] == ["Failed", "Succeeded"]
    assert status["attempts"][1]["resumedFromStep"] == saved
    assert status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert status["counters"]["infrastructureFailures"] == 1
    assert not status.get("excludedNodes")
    kube.delete("rljob", NAME)
