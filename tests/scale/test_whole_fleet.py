"""Two jobs without a queue that each need nearly all nodes: one releases its partial allocation, both finish in turn.

API server, scheduler, KubeRay and the operator are real; nodes are virtual, and tests/scale/heads.py simulates the
heads. With five nodes for two jobs of four nodes, at least one job gets only some of its nodes, whatever the scheduler
does.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.token import TokenKey
from rljob.render import labels
from rljob.render.accelerators import BUILT_IN
from tests.scale import objects
from tests.scale.client import Client, Manifest
from tests.scale.heads import Heads
from tests.scale.plane import control_plane, install
from tests.scale.plays import Play
from tests.scale.run import background

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

JOBS = ("first", "second")
NODES, WORKERS = 5, 4
STEPS, STEP_SECONDS = 15, 2
PARTIAL_SECONDS = 5
"""The operator's setting. The pods of a new cluster are first checked after 10 s."""
NEEDED = f"needs {WORKERS * objects.DEVICES} devices"
"""Message of a job between two tries."""
HELD_SECONDS = 300.0
"""Much longer than releasing takes, and much shorter than deadlines.startSeconds of half an hour."""
PATIENCE_SECONDS = 900.0
LOOK_SECONDS = 0.5
WORKER_PODS = f"/api/v1/namespaces/{objects.NAMESPACE}/pods?labelSelector={labels.RAY_NODE_TYPE}=worker"


@dataclass
class Seen:
    """What was observed until both jobs had finished."""

    jobs: dict[str, Manifest] = field(default_factory=dict)
    reasons: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in JOBS})
    messages: set[str] = field(default_factory=set)
    longest_seconds: float = 0.0
    """The longest time for which both jobs had nodes in every check."""

    @property
    def finished(self) -> bool:
        """Whether both jobs have finished."""
        ended = [job for job in self.jobs.values() if job.get("status", {}).get("finishedTime")]
        return len(ended) == len(JOBS)

    def has_message(self, words: str) -> bool:
        """Return whether a waiting job had a message with these words."""
        return any(words in message for message in self.messages)

    async def look(self, client: Client) -> set[str]:
        """Record the state of the jobs and return those that have nodes."""
        for job in (await client.list(objects.RLJOBS))[0]:
            name, status = job["metadata"]["name"], job.get("status") or {}
            self.jobs[name] = job
            self.reasons[name].add(status.get("reason", ""))
            if status.get("reason") == "WaitingForDevices":
                self.messages.add(status["message"])
        held = Counter(
            pod["metadata"]["labels"][labels.JOB]
            for pod in (await client.list(WORKER_PODS))[0]
            if pod["spec"].get("nodeName")
        )
        return set(held)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen() -> Seen:
    resource, found = BUILT_IN["cpu"].resource, Seen()
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        nodes = (objects.node(f"node-{number}", resource, objects.DEVICES) for number in range(NODES))
        await client.create_all("/api/v1/nodes", nodes)
        await plane.start_kuberay()
        heads = Heads(TokenKey.from_file(plane.token_key), STEP_SECONDS, dict.fromkeys(JOBS, Play(STEPS, STEP_SECONDS)))
        operator = plane.keep_operator("--partial-seconds", str(PARTIAL_SECONDS))
        async with background(heads.serve(client, objects.NAMESPACE)), background(operator):
            # The first run takes longer than the pause before the other job's next try, on any machine.
            heads.freeze()
            await client.create_all(objects.RLJOBS, map(_job, JOBS))
            await _follow(client, found, until=lambda: found.has_message(NEEDED))
            heads.thaw()
            await _follow(client, found, until=lambda: found.finished)
    return found


async def _follow(client: Client, found: Seen, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    alone_at = time.monotonic()
    while not until() and time.monotonic() < deadline:
        if len(await found.look(client)) < len(JOBS):
            alone_at = time.monotonic()
        found.longest_seconds = max(found.longest_seconds, time.monotonic() - alone_at)
        await asyncio.sleep(LOOK_SECONDS)


def _job(name: str) -> Manifest:
    metadata = {"name": name, "namespace": objects.NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": objects.spec(WORKERS)}


async def test_both_finish_one_after_the_other(seen: Seen) -> None:
    states = {name: (job["status"]["state"], job["status"].get("message")) for name, job in seen.jobs.items()}
    assert [state for state, _ in states.values()] == ["Succeeded", "Succeeded"], states
    earlier, later = sorted((job["status"] for job in seen.jobs.values()), key=lambda status: status["finishedTime"])
    assert later["attempts"][0]["submittedTime"] >= earlier["finishedTime"]


async def test_a_job_that_yields_has_no_attempt_restart_or_failure_of_it(seen: Seen) -> None:
    for job in seen.jobs.values():
        status = job["status"]
        assert [entry["outcome"] for entry in status["attempts"]] == ["Succeeded"]
        assert status["restarts"] == 0
        assert not any(status["counters"].values())
        assert not any(status["budget"].values())


async def test_the_one_that_waits_says_for_what_with_numbers(seen: Seen) -> None:
    assert any("WaitingForDevices" in reasons for reasons in seen.reasons.values())
    assert any(f"of {1 + WORKERS} pods" in message and "too little" in message for message in seen.messages), (
        seen.messages
    )
    assert seen.has_message(NEEDED), seen.messages
    assert seen.has_message(f"have {WORKERS * objects.DEVICES};"), seen.messages


async def test_two_jobs_never_keep_nodes_from_each_other_for_long(seen: Seen) -> None:
    assert seen.longest_seconds < HELD_SECONDS
