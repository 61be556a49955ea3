"""A worker that dies: Ray tells of it soon, and tells it apart from the one that takes its place."""

from __future__ import annotations

import importlib.util
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

    # Ray's sockets need a short path, and every file of this cluster a folder of its own.
    with tempfile.TemporaryDirectory(prefix="rln-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            worker = cluster.add_node(**WORKER)
            ray.init(address=cluster.address)
            nodes = ray_cluster.device_nodes()
            assert list(nodes) == [worker.node_id]
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
