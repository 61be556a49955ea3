"""Our operator with a real Volcano: a job of some nodes, and one of two groups that needs all. The other holds nothing.

The control plane, KubeRay, Volcano and the operator are real; nodes are virtual, and tests/scale/heads.py simulates the
heads. Pods of both jobs must never be on nodes at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.token import TokenKey
from rljob.render.labels import JOB
from rljob.render.podgroup import TASK
from tests.scale import objects
from tests.scale.client import Client, Manifest
from tests.scale.heads import Heads
from tests.scale.plane import control_plane, install
from tests.scale.volcano import start_volcano

pytestmark = [pytest.mark.integration, pytest.mark.queue, pytest.mark.asyncio(loop_scope="module")]

POD_GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{objects.NAMESPACE}/podgroups"
PODS = f"/api/v1/namespaces/{objects.NAMESPACE}/pods"
NODES, DEVICES, STEP_SECONDS, PATIENCE_SECONDS = 3, 8, 2, 900.0
START_SECONDS = 60
"""deadlines.startSeconds of every job, which is less than the wait of one of them."""


@dataclass
class Scene:
    """A control plane with Volcano, and the observed state."""

    client: Client
    jobs: dict[str, Manifest] = field(default_factory=dict)
    groups: dict[str, Manifest] = field(default_factory=dict)
    """By job."""
    bound: dict[str, int] = field(default_factory=dict)
    """Number of pods on nodes, by job."""
    tasks: dict[str, int] = field(default_factory=dict)
    """Number of pods of the second job on nodes, by task of Volcano."""
    both_held: bool = False

    async def look(self) -> None:
        """Read the current state."""
        pods, _ = await self.client.list(PODS)
        self.jobs = {job["metadata"]["name"]: job for job in (await self.client.list(objects.RLJOBS))[0]}
        groups, _ = await self.client.list(POD_GROUPS)
        self.groups = {group["metadata"]["labels"][JOB]: group for group in groups}
        held = [pod for pod in pods if pod["spec"].get("nodeName")]
        self.bound = dict.fromkeys(self.jobs, 0) | Counter(pod["metadata"]["labels"][JOB] for pod in held)
        mine = [pod["metadata"] for pod in held if pod["metadata"]["labels"][JOB] == "two"]
        self.tasks = Counter(metadata["annotations"][TASK] for metadata in mine)
        self.both_held |= sum(count > 0 for count in self.bound.values()) > 1

    async def until(self, what: str, reached: Callable[[Scene], bool]) -> None:
        """Wait until the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        await self.look()
        while not reached(self):
            states = {name: job.get("status", {}).get("message") for name, job in self.jobs.items()}
            groups = {name: group.get("status") for name, group in self.groups.items()}
            assert time.monotonic() < deadline, f"{what}: {states} {self.bound} {groups}"
            await asyncio.sleep(0.5)
            await self.look()

    def state(self, name: str) -> str:
        """Return the state of an RLJob."""
        return str(self.jobs.get(name, {}).get("status", {}).get("state", ""))

    def condition(self, name: str, kind: str) -> Manifest:
        """Return a condition of an RLJob."""
        conditions: list[Manifest] = self.jobs[name]["status"]["conditions"]
        return next(entry for entry in conditions if entry["type"] == kind)

    async def submit(self, name: str, scheduling: Manifest, trainers: int, rollouts: int) -> None:
        """Create a job of so many workers; those that only generate are a group of their own."""
        spec = objects.spec(trainers) | {
            "accelerator": {"class": "atlas-a2"},
            "scheduling": scheduling,
            "deadlines": {"startSeconds": START_SECONDS},
            # Virtual heads save nothing.
            "stop": {"mode": "Immediate"},
        }
        spec["workerGroups"][0]["devicesPerNode"] = DEVICES
        spec["workerGroups"][0]["template"]["cpu"] = "64"
        spec["trainer"]["globalBatchSize"] = 8 * DEVICES * NODES
        if rollouts:
            spec = objects.apart(spec, trainers, rollouts)
        metadata = {"name": name, "namespace": objects.NAMESPACE}
        job = {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": spec}
        await self.client.ask("POST", objects.RLJOBS, job)


def a2_node(number: int) -> Manifest:
    """Return a node with eight NPUs."""
    made = objects.node(f"a2-{number}", "huawei.com/Ascend910", DEVICES)
    made["metadata"]["labels"]["servertype"] = "Ascend910B-20"
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    """Start all components, with a fleet that the larger job fills."""
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        await client.create_all("/api/v1/nodes", map(a2_node, range(NODES)))
        await start_volcano(plane, client)
        await plane.start_kuberay()
        heads = Heads(TokenKey.from_file(plane.token_key), STEP_SECONDS)
        serving = asyncio.create_task(heads.serve(client, objects.NAMESPACE))
        await plane.start_operator()
        yield Scene(client)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def test_one_of_two_runs_and_the_other_holds_nothing_and_says_why(scene: Scene) -> None:
    topology = {"level": "2", "mode": "Preferred"}
    await scene.submit("one", {}, NODES - 1, 0)
    await scene.until("one trains", lambda seen: seen.state("one") == "Training")
    await scene.submit("two", {"gang": "Volcano", "topology": topology}, NODES - 1, 1)
    await scene.until("two waits", lambda seen: seen.state("two") == "Queued")
    assert scene.bound == {"one": NODES, "two": 0}, "the node that is left would hold the workers that generate"
    admitted = scene.condition("two", "Admitted")
    assert admitted["status"] == "False"
    assert admitted["message"].startswith("queue default of Volcano: ")
    assert scene.condition("one", "Admitted")["status"] == "True"
    decided = {d["name"]: d["value"] for d in scene.jobs["one"]["status"]["resolved"]["decisions"]}
    assert decided["scheduling.gang"] == "Volcano"
    wanted = scene.groups["two"]["spec"]
    assert (wanted["minMember"], wanted["minResources"]["huawei.com/Ascend910"]) == (NODES + 1, str(NODES * DEVICES))
    assert wanted["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}


async def test_the_wait_costs_no_time_to_start_and_ends_when_the_other_does(scene: Scene) -> None:
    waited = time.monotonic() + START_SECONDS + 10
    await scene.until("longer than a start may take", lambda _: time.monotonic() > waited)
    assert (scene.state("one"), scene.state("two"), scene.bound["two"]) == ("Training", "Queued", 0)
    await scene.client.ask("DELETE", f"{objects.RLJOBS}/one")
    await scene.until("two trains", lambda seen: seen.state("two") == "Training")
    assert scene.bound["two"] == NODES + 1
    assert scene.tasks == {"head": 1, "workers-train": NODES - 1, "workers-generate": 1}
    assert not scene.jobs["two"]["status"].get("restarts")
    assert not scene.both_held


async def test_a_suspended_job_leaves_no_group_behind(scene: Scene) -> None:
    patch = '{"spec": {"suspend": true}}'
    await scene.client.ask("PATCH", f"{objects.RLJOBS}/two", patch, "merge-patch+json")
    await scene.until("two is suspended", lambda seen: seen.state("two") == "Suspended" and not seen.groups)
    assert scene.bound["two"] == 0
