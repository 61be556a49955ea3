"""The local cluster starts, survives the loss of its processes, and leaves nothing behind.

These tests end the machine's cluster, so they run alone and are skipped if the cluster has pods of others.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import leaks, lifecycle, processes
from tests.cluster.api import Api
from tests.cluster.nodes import PAUSE_IMAGE
from tests.cluster.paths import REPOSITORY, state
from tests.cluster.shell import run

pytestmark = pytest.mark.cluster

OWN_NAMESPACES = {"kube-system", "kuberay-system"}
UP_DEADLINE_SECONDS = 300

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "lifecycle"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "lifecycle"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "pause",
                "image": PAUSE_IMAGE,
                "imagePullPolicy": "Never",
                "resources": {"limits": {"huawei.com/Ascend910": "2"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "lifecycle"}}],
    },
}


def command(*words: str, seconds: float = UP_DEADLINE_SECONDS) -> str:
    return run([sys.executable, "-m", "tests.cluster", *words], folder=REPOSITORY, timeout_seconds=seconds)


def eventually(check: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def kubectl(*words: str, text: str | None = None) -> str:
    folder = command("path", "kube").split()[-1]
    return run([f"{folder}/kubectl", "--kubeconfig", state().admin_kubeconfig, *words], text=text)


def phase(kind: str) -> str:
    shown: str = json.loads(kubectl("get", kind, "lifecycle", "-o", "json"))["status"].get("phase", "")
    return shown


def start_pod_with_volume() -> None:
    kubectl("apply", "-f", "-", text=json.dumps(CLAIM))
    kubectl("apply", "-f", "-", text=json.dumps(POD))
    assert eventually(lambda: phase("pvc") == "Bound"), "the claim is not bound"
    assert eventually(lambda: phase("pod") == "Running"), kubectl("describe", "pod", "lifecycle")


@pytest.fixture(autouse=True, scope="module")
def cluster_of_our_own() -> Iterator[None]:
    if lifecycle.settings_of(state()) and Api(state()).ready():
        pods = Api(state()).get("/api/v1/pods") or {"items": []}
        foreign = [pod["metadata"] for pod in pods["items"] if pod["metadata"]["namespace"] not in OWN_NAMESPACES]
        if foreign:
            pytest.skip(f"the cluster is in use: {foreign[0]['namespace']}/{foreign[0]['name']}")
    command("down")
    command("up")
    yield
    command("down")


def components() -> dict[str, processes.Process | None]:
    """Return the running components by pid file, without short-lived children of kubelet and containerd."""
    return {path.stem: processes.running(path) for path in state().pids.glob("*.pid")}


def test_a_healthy_cluster_is_left_as_it_is() -> None:
    before = components()
    assert before

    assert "unchanged" in command("up")

    assert components() == before


def test_a_component_that_was_killed_is_started_again_and_pods_stay() -> None:
    start_pod_with_volume()
    uid = kubectl("get", "pod", "lifecycle", "-o", "jsonpath={.metadata.uid}")
    for name in ("kubelet-node-1", "etcd", "containerd-node-1"):
        process = processes.running(state().pids / f"{name}.pid")
        assert process is not None
        process.send(signal.SIGKILL)

    command("up")

    assert eventually(lambda: phase("pod") == "Running")
    assert kubectl("get", "pod", "lifecycle", "-o", "jsonpath={.metadata.uid}") == uid


def test_up_recovers_after_every_process_was_killed() -> None:
    for process in leaks.find_processes(state()):
        process.send(signal.SIGKILL)
    assert leaks.find(state()).lines(), "killing processes alone cannot have cleared mounts and interfaces"

    said = command("up")

    assert "image  " not in said, "images survive, so nothing is imported again"
    start_pod_with_volume()


def test_down_leaves_nothing_behind() -> None:
    command("down")

    assert command("leaks").strip() == "nothing of the cluster is left on this machine"


def test_down_clears_what_a_killed_cluster_left() -> None:
    command("up")
    for process in leaks.find_processes(state()):
        process.send(signal.SIGKILL)

    command("down")

    assert command("leaks").strip() == "nothing of the cluster is left on this machine"


def test_up_that_is_killed_half_way_leaves_no_obstacle() -> None:
    half = subprocess.Popen([sys.executable, "-m", "tests.cluster", "up"], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    time.sleep(3)
    half.kill()
    half.wait()

    assert "ready" in command("up")
    assert lifecycle.status(state())[0]
