"""The asynchronous jobs of the examples under a real Kueue and a real Volcano, on nodes of their shape.

The control plane, KubeRay, the queues and the operator are real; nodes are virtual, and tests/scale/heads.py simulates
the heads. There are nodes for all three jobs but one: the job that is applied last waits until another is deleted.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.token import TokenKey
from rljob.render import labels
from tests.scale import shapes
from tests.scale.client import Client, Manifest
from tests.scale.heads import Heads
from tests.scale.objects import NAMESPACE, RLJOBS
from tests.scale.plane import ROOT, control_plane, install
from tests.scale.queues import apply, write_accelerators
from tests.scale.run import background
from tests.scale.volcano import start_volcano

pytestmark = [pytest.mark.integration, pytest.mark.queue, pytest.mark.asyncio(loop_scope="module")]

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RECIPES = f"/apis/{API_VERSION}/clusterrlrecipes"
JOBS = (shapes.SEPARATE, shapes.AHEAD)
NODES = sum(shape.nodes for shape in JOBS)
CARDS = NODES * 8
"""Of two dies each."""
PATIENCE_SECONDS = 900.0
SCHEDULINGS: dict[str, Manifest] = {"Kueue": {"queueName": "cards"}, "Volcano": {"gang": "Volcano"}}
QUEUES = {
    "queues": {
        "localQueue": "cards",
        "flavors": {"a3": {"class": "atlas-a3-superpod", "nodeLabels": {"servertype": "Ascend910A3-24"}}},
        "teams": {"reasoning": {"namespaces": [NAMESPACE], "cards": {"a3": CARDS}}},
    }
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """Start all components, with as many nodes as the two jobs need."""
    values = tmp_path_factory.mktemp("queues") / "values.yaml"
    values.write_text(json.dumps(QUEUES))
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        for path, manifest in shapes.surroundings():
            await client.ask("POST", path, manifest)
        await client.create_all("/api/v1/nodes", [*shapes.A3_SUPERPOD.nodes(NODES), *shapes.PLAIN.nodes(len(JOBS))])
        await start_volcano(plane, client)
        await plane.start_kueue()
        await plane.start_kuberay()
        await apply(client, values)
        write_accelerators(values, plane.folder / "accelerators")
        words = ("--recipes-folder", str(ROOT / "charts/rljob-operator/recipes"))
        heads = Heads(TokenKey.from_file(plane.token_key), step_seconds=2)
        async with background(heads.serve(client, NAMESPACE)), background(plane.keep_operator(*words)):
            await _until(client, "the recipes exist", RECIPES, lambda recipes: len(recipes) >= 2)
            yield client


@pytest.mark.parametrize("queue", SCHEDULINGS)
async def test_both_train_on_nodes_of_their_own_and_a_third_waits_without_pods(client: Client, queue: str) -> None:
    for shape in JOBS:
        await _submit(client, shape.manifest, queue)
    await _until(client, "both train", RLJOBS, lambda jobs: [_state(job) for job in jobs] == ["Training"] * 2)
    third = shapes.AHEAD.manifest
    third["metadata"]["name"] = "third"
    await _submit(client, third, queue)
    await _until(client, "the third waits", RLJOBS, lambda jobs: "Queued" in map(_state, jobs))
    pods, _ = await client.list(PODS)
    workers = [pod for pod in pods if pod["metadata"]["labels"][labels.RAY_NODE_TYPE] == "worker"]
    held = [pod for pod in workers if pod["spec"].get("nodeName")]
    groups = Counter(
        (pod["metadata"]["labels"][labels.JOB], pod["metadata"]["labels"][labels.RAY_GROUP]) for pod in held
    )
    separate, ahead = (shape.name for shape in JOBS)
    assert groups == {(separate, "trainer"): 8, (separate, "rollout"): 8, (ahead, "trainer"): 2}
    assert len({pod["spec"]["nodeName"] for pod in held}) == NODES
    await client.ask("DELETE", f"{RLJOBS}/{ahead}")
    await _until(client, "the third trains", RLJOBS, lambda jobs: [_state(job) for job in jobs] == ["Training"] * 2)
    for name in (separate, "third"):
        await client.ask("DELETE", f"{RLJOBS}/{name}")
    await _until(client, "no pod is left", PODS, lambda pods: not pods)


async def _submit(client: Client, job: Manifest, queue: str) -> None:
    job["spec"]["scheduling"] = SCHEDULINGS[queue]
    # Virtual heads save nothing.
    job["spec"]["stop"] = {"mode": "Immediate"}
    await client.ask("POST", RLJOBS, job)


async def _until(client: Client, what: str, path: str, reached: Callable[[list[Manifest]], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not reached(items := (await client.list(path))[0]):
        seen = [f"{item['metadata']['name']}: {item.get('status', {}).get('message')}" for item in items]
        assert asyncio.get_running_loop().time() < deadline, f"{what}: {seen}"
        await asyncio.sleep(0.5)


def _state(job: Manifest) -> str:
    return str(job.get("status", {}).get("state", ""))
