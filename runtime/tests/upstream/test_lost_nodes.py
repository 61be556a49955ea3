"""Nodes that share an address: a task runs on its own node. Ray distinguishes a lost node from its successor."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rljob_runtime import ray_cluster
from rljob_runtime.contract import ExitCode
from rljob_runtime.launch import blame_lost_nodes
from rljob_runtime.outcomes import NodeLostError, from_error

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="verl is not installed here; the target `make test-image` runs it"
)
SECONDS = 90.0
WORKER = {"num_cpus": 1, "resources": {"NPU": 2.0}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a head without devices. The test adds nodes."""
    import ray
    from ray.cluster_utils import Cluster

    # Ray's sockets need a short path, and all files of this cluster their own folder.
    with tempfile.TemporaryDirectory(prefix="rln-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            ray.init(address=cluster.address)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def test_a_killed_node_is_lost_although_another_takes_its_place(cluster: Cluster) -> None:
    import ray

    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    worker = cluster.add_node(**WORKER)
    nodes = ray_cluster.device_nodes()
    assert list(nodes) == [worker.node_id]
    (address,) = nodes.values()
    # The head has the same address, as with network.mode Host.
    assert ray_cluster.on_device_nodes(where, SECONDS) == {address: worker.node_id}
    assert ray_cluster.host_names() == {address: socket.gethostname()}
    assert ray_cluster.lost_nodes(nodes) == []
    cluster.remove_node(worker, allow_graceful=False)
    cluster.add_node(**WORKER)
    deadline = time.monotonic() + SECONDS
    while not (lost := ray_cluster.lost_nodes(nodes)):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert lost == list(nodes.values())
    assert ray_cluster.silent_nodes(nodes) == lost


def test_a_call_fails_before_ray_knows_that_the_node_is_dead_and_the_node_is_asked_itself(cluster: Cluster) -> None:
    import ray

    class Slow:
        def work(self, seconds: float) -> None:
            time.sleep(seconds)

    def kill() -> None:
        for pid in with_children(worker.all_processes["raylet"][0].process.pid):
            os.kill(pid, signal.SIGKILL)

    worker = cluster.add_node(**WORKER)
    nodes = ray_cluster.device_nodes()
    assert ray_cluster.silent_nodes(nodes) == []
    actor = ray.remote(resources={"NPU": 1.0})(Slow).remote()
    ray.get(actor.work.remote(0.0))
    killer = threading.Timer(1.0, kill)
    killer.start()
    with pytest.raises(ray.exceptions.RayError) as caught:
        ray.get(actor.work.remote(SECONDS), timeout=SECONDS)
    killer.join()
    # The address of the ended node is checked before Ray has counted five failures.
    assert ray_cluster.silent_nodes(nodes) == list(nodes.values())
    with pytest.raises(NodeLostError, match=r"lost the worker at .*; then the run raised \w+Error: ") as blamed:
        blame_lost_nodes(nodes, dict.fromkeys(nodes.values(), "node-7"), caught.value)
    assert blamed.value.suspect == "node-7"
    assert from_error(caught.value).exit_code == ExitCode.ENVIRONMENT


def with_children(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += with_children(int(folder.name))
    return found
