"""Nodes that share an address: a task finds its own. One that dies: Ray tells it apart from the one that follows."""

from __future__ import annotations

import importlib.util
import socket
import tempfile
import time

import pytest

from rljob_runtime import ray_cluster

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="verl is not installed here; the target `make test-image` runs it"
)
SECONDS = 90.0
WORKER = {"num_cpus": 1, "resources": {"NPU": 2.0}}


def test_a_killed_node_is_lost_although_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.cluster_utils import Cluster

    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    # Ray's sockets need a short path, and every file of this cluster a folder of its own.
    with tempfile.TemporaryDirectory(prefix="rln-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            worker = cluster.add_node(**WORKER)
            ray.init(address=cluster.address)
            nodes = ray_cluster.device_nodes()
            assert list(nodes) == [worker.node_id]
            (address,) = nodes.values()
            # The head has the same one, as with network.mode Host.
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
        finally:
            ray.shutdown()
            cluster.shutdown()
