"""One run of a fleet: control plane, the chart's queues, arriving jobs, faults and watches.

API server, scheduler, KubeRay, Kueue and the operator are real; nodes are virtual and runs are virtual (plays.py). The
operator reads the accelerator classes that the chart writes for these queues.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.token import TokenKey
from rljob.render import labels
from tests.scale import queues
from tests.scale.client import Client, Manifest
from tests.scale.figures import Usage, usage
from tests.scale.fleet.faults import strike
from tests.scale.fleet.history import Bounds, Fact, Kind, State, read
from tests.scale.fleet.mix import TEAMS, Fault, Fleet, FleetJob
from tests.scale.heads import Heads
from tests.scale.plane import KUBERAY, KUEUE, OPERATOR, Plane, control_plane, install
from tests.scale.run import background
from tests.scale.shapes import SUPER_POD

LOOK_SECONDS = 0.5
RESYNC_SECONDS = 10
WATCHED = {
    Kind.POD: f"/api/v1/pods?labelSelector={labels.JOB_UID}",
    Kind.CLUSTER: "/apis/ray.io/v1/rayclusters",
    Kind.WORKLOAD: f"{queues.GROUP}/workloads",
    Kind.JOB: f"/apis/{API_VERSION}/rljobs",
}
MESSAGE_SHOWN = 120


@dataclass
class Scene:
    """A running fleet, and what was observed so far."""

    fleet: Fleet
    client: Client
    plane: Plane
    jobs: dict[str, FleetJob]
    """By name; names are unique among teams."""
    heads: Heads
    began: float = field(default_factory=time.monotonic)
    facts: list[Fact] = field(default_factory=list)
    now: dict[Kind, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in Kind})
    """The latest version of each object, by kind and name."""
    struck: dict[str, str] = field(default_factory=dict)
    """Injected faults with their time, by job."""

    @property
    def seconds(self) -> float:
        """Seconds since the first job."""
        return time.monotonic() - self.began

    async def follow(self, kind: Kind) -> None:
        """Watch a kind until cancelled."""
        async for event, item in self.client.watch(WATCHED[kind]):
            meta = item["metadata"]
            name = f"{meta['namespace']}/{meta['name']}"
            thing = None if event == "DELETED" else read(kind, item)
            if thing is None and name not in self.now[kind]:
                continue
            if thing is None:
                del self.now[kind][name]
            elif self.now[kind].get(name) == thing:
                continue
            else:
                self.now[kind][name] = thing
            self.facts.append(Fact(int(meta["resourceVersion"]), self.seconds, kind, name, thing))

    def states(self) -> dict[str, State]:
        """Return the states of the RLJobs, by name without namespace."""
        return {name.partition("/")[2]: state for name, state in self.now[Kind.JOB].items()}

    def waiting(self) -> str:
        """Return the jobs that have not ended, for the message of a timeout."""
        left = {name: state for name, state in self.states().items() if not state.end}
        waiting = [f"{name}: {state.state} {state.message[:MESSAGE_SHOWN]}" for name, state in sorted(left.items())]
        return f"{len(waiting)} jobs have not ended: " + "; ".join(waiting)

    async def until(self, what: str, seconds: float, reached: Callable[[], bool]) -> None:
        """Wait until the condition holds. At the deadline, fail with the jobs that have not ended."""
        deadline = time.monotonic() + seconds
        while not reached():
            for name, process in self.plane.processes.items():
                ended = name != OPERATOR and process.poll() is not None
                assert not ended, f"{name} ended with {process.returncode} while waiting: {what}"
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {what}; {self.waiting()}")
            await asyncio.sleep(LOOK_SECONDS)

    async def submit(self) -> None:
        """Create each job at its arrival time."""
        for job in self.jobs.values():
            await asyncio.sleep(max(0.0, job.arrives - self.seconds))
            await self.client.ask("POST", f"/apis/{API_VERSION}/namespaces/{job.team}/rljobs", job.manifest)

    async def trouble(self) -> None:
        """Inject the faults that the seed determines, each when its job trains."""
        due = {job.name: job.fault for job in self.jobs.values() if job.fault is not None}
        async with asyncio.TaskGroup() as group:
            while due:
                states = self.states()
                for name, fault in list(due.items()):
                    state = states.get(name)
                    if state is not None and (state.state == "Training" or state.end):
                        del due[name]
                        group.create_task(self._strike(name, fault))
                await asyncio.sleep(LOOK_SECONDS)

    async def _strike(self, name: str, fault: Fault) -> None:
        pods = {key: pod for key, pod in self.now[Kind.POD].items() if pod.job == name and pod.node and not pod.going}
        if pods:
            self.struck[name] = f"{self.seconds:.0f} s: {fault}"
            await strike(self.client, fault, min(pods.items(), key=lambda item: item[0]))

    @property
    def bounds(self) -> Bounds:
        """Return the invariants of these jobs on this fleet."""
        nodes = list(self.fleet.nodes())
        devices = {n["metadata"]["name"]: _devices(n) for n in nodes}
        marks = {n["metadata"]["name"]: n["metadata"]["labels"] for n in nodes}
        quota, kept = {}, {}
        for team in TEAMS:
            for flavor, own in team.cards.items():
                more = team.borrow.get(flavor, 16 - own)
                quota[team.name, flavor] = self.fleet.share(flavor, own) + self.fleet.share(flavor, more)
                if team.lend.get(flavor) == 0:
                    kept[team.name, flavor] = self.fleet.share(flavor, own)
        return Bounds(
            quota=quota,
            kept=kept,
            fleet={flavor: self.fleet.devices(flavor) for flavor in self.fleet.count},
            super_pods={name: found[SUPER_POD] for name, found in marks.items() if SUPER_POD in found},
            node_devices=devices,
            flavors={name: "a3" if SUPER_POD in marks[name] else "a2" for name, own in devices.items() if own},
            blocks={job.name: job.block for job in self.jobs.values() if job.block is not None},
            whole=frozenset(job.name for job in self.jobs.values() if job.within),
        )


@dataclass
class Seen:
    """Result of a run."""

    fleet: Fleet
    jobs: dict[str, FleetJob]
    facts: list[Fact]
    bounds: Bounds
    struck: dict[str, str]
    starts: int
    """How often the operator was started: once, and again after each lost Lease."""
    refusals: list[str]
    """Requests of the operator that heads rejected."""
    seconds: float
    """Time until the last job ended."""
    usage: dict[str, Usage]


async def run_fleet(fleet: Fleet, patience_seconds: float, say: Callable[[str], None]) -> Seen:
    """Submit all jobs, wait for their ends, delete them, and wait until nothing is left."""
    async with _scene(fleet, say) as scene:
        async with background(scene.trouble()):
            await scene.submit()
            say(f"{len(scene.jobs)} jobs have come after {scene.seconds:.0f} s")
            await scene.until("every job ends", patience_seconds, lambda: _all_ended(scene))
            seconds = scene.seconds
            say(f"all have ended after {seconds:.0f} s")
        spent = {name: usage(scene.plane.pid(name)) for name in (OPERATOR, KUBERAY, KUEUE)}
        for job in scene.jobs.values():
            await scene.client.ask("DELETE", f"/apis/{API_VERSION}/namespaces/{job.team}/rljobs/{job.name}")
        await scene.until("nothing is left", patience_seconds, lambda: not any(scene.now.values()))
        return Seen(
            fleet,
            scene.jobs,
            scene.facts,
            scene.bounds,
            scene.struck,
            scene.plane.operator_starts,
            scene.heads.refusals,
            seconds,
            spent,
        )


@asynccontextmanager
async def _scene(fleet: Fleet, say: Callable[[str], None]) -> AsyncIterator[Scene]:
    jobs = {job.name: job for job in fleet.draw()}
    async with control_plane() as plane, plane.client() as client:
        values, classes = plane.folder / "values.yaml", plane.folder / "accelerators"
        values.write_text(json.dumps(fleet.values()))
        queues.write_accelerators(values, classes)
        await install(client)
        for team in TEAMS:
            await client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": team.name}})
        await client.create_all("/api/v1/nodes", fleet.nodes())
        await plane.start_kueue()
        await plane.start_kuberay()
        await queues.apply(client, values)
        heads = Heads(TokenKey.from_file(plane.token_key), 1.0, {job.name: job.play for job in jobs.values()})
        async with background(heads.serve(client)):
            say("the control plane, Kueue and KubeRay are ready")
            scene = Scene(fleet, client, plane, jobs, heads)
            words = ("--accelerators-folder", str(classes), "--resync-seconds", str(RESYNC_SECONDS))
            async with asyncio.TaskGroup() as group:
                kept = [group.create_task(scene.follow(kind)) for kind in Kind]
                kept.append(group.create_task(plane.keep_operator(*words)))
                yield scene
                for task in kept:
                    task.cancel()


def _all_ended(scene: Scene) -> bool:
    states = scene.states()
    return len(states) == len(scene.jobs) and all(state.end for state in states.values())


def _devices(node: Manifest) -> int:
    return sum(int(amount) for name, amount in node["status"]["capacity"].items() if "/" in name)
