"""Our operator with a real Kueue: teams of the chart, borrowing, priorities and a preemption, on fake nodes.

The control plane, KubeRay, Kueue and the operator are real; nodes are virtual, and tests/scale/heads.py simulates the
heads. Usage must never exceed the quota. tests/chaos/test_queue.py covers whole training runs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from rljob.api.v1alpha1 import API_VERSION
from rljob.cli.verbs.quota import Job, Kueue, Share, read_jobs, read_shares
from rljob.cluster.token import TokenKey
from tests.chart.helm import VALUES
from tests.scale import objects
from tests.scale.client import Client, Manifest
from tests.scale.heads import Heads
from tests.scale.plane import control_plane, install
from tests.scale.queues import GROUP, KINDS, apply
from tests.scale.run import background
from tests.scale.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.queue, pytest.mark.asyncio(loop_scope="module")]

WORKERS, STEP_SECONDS, PATIENCE_SECONDS = 2, 2, 900.0
CARDS = WORKERS * objects.DEVICES
"""Per job, and guaranteed to each of two teams; one team may borrow those of the other."""
TEAMS = {
    "queues": {
        "flavors": {"npu": {"class": "cpu"}},
        "teams": {
            "busy": {"namespaces": [objects.NAMESPACE], "cards": {"npu": CARDS}, "borrow": {"npu": CARDS}},
            "idle": {"namespaces": ["idle"], "cards": {"npu": CARDS}},
        },
        "priorities": {"low": 100, "high": 1000},
    }
}


@dataclass
class Scene:
    """A control plane with Kueue, and the observed state."""

    client: Client
    most_used: float = 0.0
    shares: dict[str, Share] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    rljobs: dict[str, Manifest] = field(default_factory=dict)

    async def look(self) -> None:
        """Read the current state."""
        parts = [(await self.client.list(f"{GROUP}/{plural}"))[0] for plural in ("clusterqueues", "localqueues")]
        parts += [(await self.client.list(f"{GROUP}/{plural}"))[0] for plural in ("resourceflavors", "workloads")]
        seen = Kueue(*parts)
        self.shares = {share.team: share for share in read_shares(seen)}
        self.jobs = {job.name: job for job in read_jobs(seen)}
        self.rljobs = {job["metadata"]["name"]: job for job in (await self.client.list(objects.RLJOBS))[0]}
        self.most_used = max(self.most_used, sum(share.used for share in self.shares.values()))

    async def until(self, what: str, reached: Callable[[Scene], bool]) -> None:
        """Wait until the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        await self.look()
        while not reached(self):
            states = {name: job.get("status", {}).get("message") for name, job in self.rljobs.items()}
            assert time.monotonic() < deadline, f"{what}: {states} {self.jobs}"
            await asyncio.sleep(0.5)
            await self.look()

    def state(self, name: str) -> str:
        """Return the state of an RLJob."""
        return str(self.rljobs.get(name, {}).get("status", {}).get("state", ""))

    def admitted(self, name: str) -> Manifest:
        """Return the condition Admitted of an RLJob."""
        conditions: list[Manifest] = self.rljobs[name]["status"]["conditions"]
        return next(entry for entry in conditions if entry["type"] == "Admitted")

    async def submit(self, name: str, priority: str, workers: int = WORKERS, rollouts: int = 0) -> None:
        """Create a job of the team `busy`; workers that only generate are a group of their own."""
        wanted = objects.spec(workers)
        spec = (objects.apart(wanted, workers, rollouts) if rollouts else wanted) | {
            "scheduling": {"queueName": "cards", "workloadPriorityClassName": priority},
        }
        metadata = {"name": name, "namespace": objects.NAMESPACE}
        job = {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": spec}
        await self.client.ask("POST", objects.RLJOBS, job)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Start all components and create the teams."""
    values = tmp_path_factory.mktemp("queues") / "values.yaml"
    values.write_text(json.dumps(TEAMS))
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        await client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "idle"}})
        await client.create_all("/api/v1/nodes", objects.nodes(Settings(jobs=4, workers=WORKERS)))
        await plane.start_kueue()
        await plane.start_kuberay()
        await apply(client, values)
        heads = Heads(TokenKey.from_file(plane.token_key), STEP_SECONDS)
        async with background(heads.serve(client, objects.NAMESPACE)), background(plane.keep_operator()):
            yield Scene(client)


async def test_kueue_takes_every_object_that_the_chart_makes(scene: Scene) -> None:
    made = await apply(scene.client, VALUES / "queues.yaml", "&dryRun=All")
    assert {item["kind"] for item in made} == set(KINDS)


async def test_a_team_borrows_what_the_other_leaves_and_waits_for_more(scene: Scene) -> None:
    for name in ("one", "two", "three"):
        await scene.submit(name, "low")
    await scene.until("two train", lambda seen: [seen.state(n) for n in ("one", "two", "three")].count("Training") == 2)
    await scene.until("one waits", lambda seen: [seen.state(n) for n in ("one", "two", "three")].count("Queued") == 1)
    busy = scene.shares["busy"]
    assert (busy.used, busy.guaranteed, busy.borrowed, busy.waiting) == (2 * CARDS, CARDS, CARDS, 1)
    (waits,) = (name for name in ("one", "two", "three") if scene.state(name) == "Queued")
    assert scene.jobs[waits].state == "Waits 1."
    admitted = scene.admitted(waits)
    assert (admitted["status"], admitted["reason"]) == ("False", "Pending")
    assert f"{CARDS} more needed" in admitted["message"]
    assert scene.rljobs[waits]["status"]["message"] == admitted["message"]


async def test_a_more_urgent_job_takes_the_place_of_one_and_gives_it_back(scene: Scene) -> None:
    await scene.submit("urgent", "high")
    await scene.until("the urgent one trains", lambda seen: seen.state("urgent") == "Training")
    names = ("one", "two", "three")
    await scene.until("two wait", lambda seen: [seen.state(name) for name in names].count("Queued") == 2)
    (victim,) = (job for job in scene.rljobs.values() if (job["status"].get("counters") or {}).get("preemptions"))
    (attempt,) = victim["status"]["attempts"]
    assert (attempt["outcome"], attempt["reason"], attempt["cause"]) == ("Preempted", "Preempted", "Preemption")
    assert "Preempted to accommodate" in attempt["message"]
    await scene.client.ask("DELETE", f"{objects.RLJOBS}/urgent")
    await scene.until("two train", lambda seen: [seen.state(name) for name in names].count("Training") == 2)
    assert sum(job["status"]["counters"]["userFailures"] for job in scene.rljobs.values()) == 0


async def test_a_priority_that_does_not_exist_is_reported(scene: Scene) -> None:
    await scene.submit("lost", "none-such")
    await scene.until(
        "its reason is shown", lambda seen: seen.state("lost") == "Queued" and _reason(seen) == "NoWorkload"
    )
    assert "WorkloadPriorityClass none-such" in scene.admitted("lost")["message"]


def _reason(seen: Scene) -> str:
    return str(seen.admitted("lost")["reason"])


async def test_workers_of_two_groups_are_admitted_together_or_not_at_all(scene: Scene) -> None:
    for name in tuple(scene.rljobs):
        await scene.client.ask("DELETE", f"{objects.RLJOBS}/{name}")
    await scene.until("nothing is used", lambda seen: not seen.jobs and seen.shares["busy"].used == 0)
    await scene.submit("wide", "low", workers=2 * WORKERS - 1)
    await scene.until("the wide one trains", lambda seen: seen.state("wide") == "Training")
    await scene.submit("pair", "low", workers=1, rollouts=1)
    await scene.until("the pair waits", lambda seen: seen.state("pair") == "Queued" and "pair" in seen.jobs)
    assert scene.shares["busy"].used == 2 * CARDS - objects.DEVICES, "quota for either group is left, and not taken"
    assert await _admitted_sets(scene) == {}
    await scene.client.ask("DELETE", f"{objects.RLJOBS}/wide")
    await scene.until("the pair trains", lambda seen: seen.state("pair") == "Training")
    assert scene.shares["busy"].used == 2 * objects.DEVICES
    assert await _admitted_sets(scene) == {"head": 1, "train": 1, "generate": 1}


async def _admitted_sets(scene: Scene) -> dict[str, int]:
    """Return the pods that Kueue has admitted of the job `pair`, by PodSet."""
    workloads, _ = await scene.client.list(f"{GROUP}/workloads")
    admissions = [
        (workload.get("status") or {}).get("admission") or {}
        for workload in workloads
        if any(owner["name"].startswith("pair-") for owner in workload["metadata"].get("ownerReferences") or ())
    ]
    assert len(admissions) == 1
    return {each["name"]: each["count"] for each in admissions[0].get("podSetAssignments") or ()}


async def test_quota_is_free_again_when_the_jobs_are_gone_and_was_never_exceeded(scene: Scene) -> None:
    for name in tuple(scene.rljobs):
        await scene.client.ask("DELETE", f"{objects.RLJOBS}/{name}")
    await scene.until("nothing is used", lambda seen: not seen.jobs and seen.shares["busy"].used == 0)
    assert scene.most_used == 2 * CARDS
