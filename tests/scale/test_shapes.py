"""Shapes of Ascend clusters with real operator, KubeRay, API server and scheduler, on virtual nodes of these shapes.

All jobs of the examples are applied together, on exactly as many nodes as they need. The state is recorded when each
job trains; then the jobs are deleted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.token import TokenKey
from rljob.render import labels
from rljob.render.ports import BLOCK_SIZE
from tests.scale import shapes
from tests.scale.client import Client, Manifest
from tests.scale.heads import Heads
from tests.scale.objects import NAMESPACE, RAYCLUSTERS, RLJOBS
from tests.scale.plane import ROOT, control_plane, install
from tests.scale.run import background
from tests.scale.shapes import HARDWARE, PLAIN, SHAPES, Shape

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

PATIENCE_SECONDS = 900.0
LOOK_SECONDS = 0.5
FIRST_PORT = 28_416
"""Outside the port blocks of a cluster on this machine."""
OPERATOR_WORDS = (
    *("--recipes-folder", str(ROOT / "charts/rljob-operator/recipes")),
    *("--host-ports-first", str(FIRST_PORT), "--host-ports-blocks", "4"),
    # The sweep of deleted jobs' objects runs in every resync.
    *("--resync-seconds", "10"),
)
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BLOCKS = f"/api/v1/namespaces/{NAMESPACE}/configmaps?fieldSelector=metadata.name=rljob-operator-ports"
RECIPES = f"/apis/{API_VERSION}/clusterrlrecipes"


@dataclass
class Seen:
    """The state when every job trained, and what was left when all were deleted."""

    nodes: dict[str, Manifest]
    jobs: dict[str, Manifest] = field(default_factory=dict)
    clusters: dict[str, Manifest] = field(default_factory=dict)
    """By job."""
    pods: dict[str, list[Manifest]] = field(default_factory=dict)
    """By job."""
    blocks: dict[str, str] = field(default_factory=dict)
    blocks_left: dict[str, str] = field(default_factory=dict)
    pods_left: list[str] = field(default_factory=list)
    refused: int = 0

    def workers(self, shape: Shape) -> list[Manifest]:
        """Return the worker pods of a job."""
        return [pod for pod in self.pods[shape.name] if pod["metadata"]["labels"].get(labels.RAY_NODE_TYPE) == "worker"]

    def node_of(self, pod: Manifest) -> Manifest:
        """Return the node that a pod is bound to."""
        return self.nodes[pod["spec"]["nodeName"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen() -> Seen:
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        for path, manifest in shapes.surroundings():
            await client.ask("POST", path, manifest)
        made = list(shapes.nodes())
        await client.create_all("/api/v1/nodes", made)
        await plane.start_kuberay()
        heads = Heads(TokenKey.from_file(plane.token_key), step_seconds=5)
        found = Seen({node["metadata"]["name"]: node for node in made})
        async with background(heads.serve(client, NAMESPACE)), background(plane.keep_operator(*OPERATOR_WORDS)):
            # The operator creates them when it becomes the leader.
            await _until("recipes", client, RECIPES, lambda recipes: len(recipes) >= 2)
            await client.create_all(RLJOBS, [shape.manifest for shape in SHAPES])
            jobs = await _until("all jobs train", client, RLJOBS, lambda jobs: all(map(_trains, jobs)))
            found.jobs = {job["metadata"]["name"]: job for job in jobs}
            await _take_down(client, found)
            for shape in SHAPES:
                await client.ask("DELETE", f"{RLJOBS}/{shape.name}")
            await _until("no job", client, RLJOBS, lambda jobs: not jobs)
            left = await _until("no pod", client, PODS, lambda pods: not pods)
            found.pods_left = [pod["metadata"]["name"] for pod in left]
            (blocks,) = await _until("no block", client, BLOCKS, lambda maps: not maps[0].get("data"))
            found.blocks_left = blocks.get("data") or {}
            found.refused = heads.refused
        return found


async def _until(
    what: str, client: Client, path: str, reached: Callable[[list[Manifest]], bool], seconds: float = PATIENCE_SECONDS
) -> list[Manifest]:
    """Return all objects of a kind once the condition holds, or at the deadline for the tests to report."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        items, _ = await client.list(path)
        if reached(items):
            return items
        if loop.time() > deadline:
            print(f"not within {seconds:.0f} s: {what}; {[_summary(item) for item in items]}")
            return items
        await asyncio.sleep(LOOK_SECONDS)


def _summary(item: Manifest) -> str:
    status = item.get("status") or {}
    return f"{item['metadata']['name']}: {status.get('state') or status.get('phase')} {status.get('message', '')}"


def _trains(job: Manifest) -> bool:
    return (job.get("status") or {}).get("state") == "Training"


async def _take_down(client: Client, found: Seen) -> None:
    for cluster in (await client.list(RAYCLUSTERS))[0]:
        found.clusters[cluster["metadata"]["labels"][labels.JOB]] = cluster
    for pod in (await client.list(PODS))[0]:
        found.pods.setdefault(pod["metadata"]["labels"][labels.JOB], []).append(pod)
    for blocks in (await client.list(BLOCKS))[0]:
        found.blocks = blocks.get("data") or {}


EACH = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.what)


@EACH
async def test_a_job_trains_on_a_cluster_that_kuberay_calls_ready(seen: Seen, shape: Shape) -> None:
    assert _trains(seen.jobs[shape.name]), seen.jobs[shape.name].get("status")
    status = seen.clusters[shape.name]["status"]
    assert status["state"] == "ready"
    assert status["availableWorkerReplicas"] == shape.nodes
    conditions = {entry["type"]: entry["status"] for entry in seen.jobs[shape.name]["status"]["conditions"]}
    assert (conditions["Validated"], conditions["ClusterReady"]) == ("True", "True")


@EACH
async def test_the_cluster_has_the_hardware_that_the_class_names(seen: Seen, shape: Shape) -> None:
    (validated,) = (c for c in seen.jobs[shape.name]["status"]["conditions"] if c["type"] == "Validated")
    assert "spec.accelerator.class" not in validated.get("message", "")


@EACH
async def test_each_worker_has_a_node_of_its_kind_whole(seen: Seen, shape: Shape) -> None:
    workers = seen.workers(shape)
    kinds = {seen.node_of(pod)["metadata"]["labels"][HARDWARE] for pod in workers}
    # A SuperPoD's node is also an A3 node.
    assert kinds <= {shape.hardware.name} | ({"a3-superpod"} if shape.hardware is shapes.A3 else set())
    assert len({pod["spec"]["nodeName"] for pod in workers}) == shape.nodes
    for pod in workers:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits[shape.hardware.resource] == seen.node_of(pod)["status"]["allocatable"][shape.hardware.resource]
        assert limits[shape.hardware.resource] == str(shape.hardware.devices)


@EACH
async def test_the_api_server_calls_the_workers_guaranteed(seen: Seen, shape: Shape) -> None:
    assert [pod["status"]["qosClass"] for pod in seen.workers(shape)] == ["Guaranteed"] * shape.nodes


async def test_no_node_holds_two_workers_and_heads_leave_them_alone(seen: Seen) -> None:
    held = Counter(pod["spec"]["nodeName"] for shape in SHAPES for pod in seen.workers(shape))
    assert set(held.values()) == {1}
    heads = [
        pod
        for pods in seen.pods.values()
        for pod in pods
        if pod["metadata"]["labels"].get(labels.RAY_NODE_TYPE) == "head"
    ]
    assert len(heads) == len(SHAPES)
    assert {seen.node_of(pod)["metadata"]["labels"][HARDWARE] for pod in heads} == {PLAIN.name}


@EACH
async def test_only_a_job_on_the_nodes_network_has_ports_of_its_own(seen: Seen, shape: Shape) -> None:
    job = seen.jobs[shape.name]
    network = job["status"].get("network")
    assert (network is not None) == shape.on_host
    assert all(pod["spec"].get("hostNetwork", False) == shape.on_host for pod in seen.pods[shape.name])
    if network is None:
        return
    first = network["portBlock"]
    assert {key: text.split()[0] for key, text in seen.blocks.items()} == {str(first): job["metadata"]["uid"]}
    for pod in seen.pods[shape.name]:
        listed = [port["hostPort"] for port in _ports(pod)]
        assert listed
        assert set(listed) <= set(range(first, first + BLOCK_SIZE))


def _ports(pod: Manifest) -> list[dict[str, Any]]:
    containers = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    return [port for container in containers for port in container.get("ports", ())]


async def test_what_is_deleted_leaves_no_pod_and_no_port(seen: Seen) -> None:
    assert seen.pods_left == []
    assert seen.blocks
    assert seen.blocks_left == {}


async def test_the_operator_asks_heads_for_nothing_that_they_refuse(seen: Seen) -> None:
    assert seen.refused == 0
