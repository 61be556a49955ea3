"""The fleet, its three teams and their jobs, all derived from a number of jobs and a seed.

The fleet has 64 nodes of Atlas 900 A3 SuperPoD in two super-pods and 16 of Atlas A2, or a quarter of them, shared
through the chart's own value `queues`. Jobs request one node up to half a super-pod, some in blocks of one super-pod,
some entirely within one. Random values are drawn in a fixed order, so that a seed yields the same jobs on any machine.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rljob.api.v1alpha1 import API_VERSION
from rljob.render.accelerators import BUILT_IN
from rljob_runtime.contract import ExitCode
from tests.scale.client import Manifest
from tests.scale.objects import spec
from tests.scale.plays import Failure, Play
from tests.scale.shapes import A2, A3_SUPERPOD, PLAIN, SUPER_POD, Hardware

SUPER_PODS = 2
HEADS_A_NODE = 24
"""Number of heads that certainly fit on a small node; by memory, 30 do."""
STEP_SECONDS = 4.0
STEPS = (3, 8)
"""Minimum and maximum number of steps of a run."""
BLOCKS, WITHIN = 0.6, 0.25
"""Fraction of sufficiently large jobs that request blocks, and of multi-node jobs that request one super-pod."""
QUEUE = "cards"
PRIORITIES = {"background": 100, "normal": 1000, "urgent": 10000}
FLAVORS = {"a3": ("atlas-a3-superpod", A3_SUPERPOD), "a2": ("atlas-a2", A2)}


class Fault(enum.StrEnum):
    """A fault that is injected once while a job trains."""

    HEAD = "head deleted"
    WORKER = "worker deleted"
    NODE = "node unreachable"
    DEVICE = "device unhealthy"


@dataclass(frozen=True)
class Team:
    """Shares of a team, in sixteenths of all cards of a kind."""

    name: str
    cards: dict[str, int]
    borrow: dict[str, int]
    lend: dict[str, int]
    weight: int
    """Relative frequency of its jobs."""


PARTS = 16
TEAMS = (
    Team("vision", {"a3": 8, "a2": 8}, {}, {}, weight=5),
    Team("language", {"a3": 6, "a2": 4}, {"a3": 4, "a2": 4}, {}, weight=3),
    Team("guests", {"a3": 2, "a2": 4}, {"a3": 2}, {"a3": 0}, weight=2),
)


@dataclass(frozen=True)
class FleetJob:
    """One job, its arrival and its course."""

    name: str
    team: str
    flavor: str
    nodes: int
    priority: str
    arrives: float
    """Seconds after the first job."""
    play: Play
    block: int | None = None
    """Number of nodes that must be in the same super-pod."""
    within: bool = False
    """Whether the job must be entirely within one super-pod."""
    fault: Fault | None = None

    @property
    def devices(self) -> int:
        """Devices on all its nodes."""
        return self.nodes * self.devices_a_node

    @property
    def devices_a_node(self) -> int:
        """Devices on each of its nodes."""
        return BUILT_IN[FLAVORS[self.flavor][0]].devices_per_node

    @property
    def end(self) -> str:
        """Expected reason of the condition Finished."""
        failure = self.play.failure
        return "Failed" if failure is not None and failure.code is ExitCode.BAD_CONFIG else "Succeeded"

    @property
    def manifest(self) -> Manifest:
        """The RLJob, as its team writes it."""
        wanted = spec(self.nodes)
        del wanted["workerGroups"][0]["template"]["cpu"]
        wanted["workerGroups"][0] |= {"devicesPerNode": self.devices_a_node}
        wanted["accelerator"] = {"class": FLAVORS[self.flavor][0]}
        wanted["trainer"] = {"steps": self.play.steps, "globalBatchSize": 8 * self.devices}
        wanted["checkpoint"]["everySteps"] = 1
        wanted["restart"] = {"maxRestarts": 1, "maxInfrastructureRestarts": 10, "backoffSeconds": 2}
        wanted["scheduling"] = {"queueName": QUEUE, "workloadPriorityClassName": self.priority}
        if self.block is not None:
            wanted["scheduling"]["topology"] = {"nodesPerSuperPodBlock": self.block}
        elif self.within:
            wanted["scheduling"]["topology"] = {"mode": "Required"}
        metadata = {"name": self.name, "namespace": self.team}
        return {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": wanted}


@dataclass(frozen=True)
class Fleet:
    """A fleet and the jobs submitted to it."""

    jobs: int
    seed: int
    super_pod_nodes: int = 32
    a2_nodes: int = 16
    gap_seconds: float = 1.6
    """Mean time between two arrivals."""

    @property
    def unit(self) -> int:
        """An eighth of a super-pod. Job sizes are multiples of it, and one and two nodes."""
        return self.super_pod_nodes // 8

    @property
    def count(self) -> dict[str, int]:
        """Nodes by flavor."""
        return {"a3": SUPER_PODS * self.super_pod_nodes, "a2": self.a2_nodes}

    def devices(self, flavor: str) -> int:
        """Return the number of devices of a kind in the whole fleet."""
        return self.count[flavor] * BUILT_IN[FLAVORS[flavor][0]].devices_per_node

    def share(self, flavor: str, parts: int) -> int:
        """Return the number of devices for a number of sixteenths of a kind."""
        return self.devices(flavor) * parts // PARTS

    def nodes(self) -> Iterator[Manifest]:
        """Yield all nodes."""
        for number in range(SUPER_PODS):
            name, labels = f"sp{number}", A3_SUPERPOD.labels | {SUPER_POD: str(number)}
            yield from replace(A3_SUPERPOD, name=name, labels=labels).nodes(self.super_pod_nodes)
        yield from A2.nodes(self.a2_nodes)
        yield from PLAIN.nodes(-(-min(self.jobs, sum(self.count.values())) // HEADS_A_NODE))

    def values(self) -> Manifest:
        """Return the values of the chart."""

        def cards(parts: dict[str, int]) -> dict[str, int]:
            dies = {flavor: BUILT_IN[FLAVORS[flavor][0]].dies_per_card for flavor in parts}
            return {flavor: self.share(flavor, part) // dies[flavor] for flavor, part in parts.items()}

        teams = {
            team.name: {
                "namespaces": [team.name],
                "cards": cards(team.cards),
                "borrow": cards(team.borrow),
                "lend": cards(team.lend),
            }
            for team in TEAMS
        }
        flavors = {name: _flavor(*kind) for name, kind in FLAVORS.items()}
        return {"queues": {"flavors": flavors, "teams": teams, "priorities": PRIORITIES, "localQueue": QUEUE}}

    def draw(self) -> list[FleetJob]:
        """Return the jobs in order of arrival."""
        # Not for secrets: the same seed must yield the same jobs.
        dice = random.Random(self.seed)  # noqa: S311
        arrives, jobs = 0.0, []
        for number in range(self.jobs):
            jobs.append(self._job(f"job-{number:03d}", arrives, dice))
            arrives += dice.expovariate(1 / self.gap_seconds)
        return self._with_mishaps(jobs, dice)

    def _job(self, name: str, arrives: float, dice: random.Random) -> FleetJob:
        team = dice.choices(TEAMS, [team.weight for team in TEAMS])[0]
        (priority,) = dice.choices(tuple(PRIORITIES), (20, 65, 15))
        play = Play(dice.randint(*STEPS), STEP_SECONDS)
        if dice.random() < 0.15:
            nodes = dice.choice((1, 1, -(-self.unit // 2), self.unit))
            return FleetJob(name, team.name, "a2", nodes, priority, arrives, play)
        (nodes,) = dice.choices((1, 2, self.unit, 2 * self.unit, 4 * self.unit), (28, 20, 27, 15, 10))
        job = FleetJob(name, team.name, "a3", nodes, priority, arrives, play)
        chance = dice.random()
        if nodes >= 2 * self.unit and chance < BLOCKS:
            return replace(job, block=2 * self.unit)
        return replace(job, within=nodes > 1 and chance > 1 - WITHIN)

    def _with_mishaps(self, jobs: list[FleetJob], dice: random.Random) -> list[FleetJob]:
        """Add failing drivers, and hardware faults to other jobs: one of 20 jobs for each kind of failure and fault."""
        each = max(1, self.jobs // 40)
        kinds: list[Fault | ExitCode] = [*Fault, ExitCode.FAILED, ExitCode.BAD_CONFIG]
        chosen = iter(dice.sample(range(self.jobs), each * len(kinds)))
        changed = list(jobs)
        for kind in kinds:
            for _ in range(each):
                place = next(chosen)
                job = changed[place]
                if isinstance(kind, Fault):
                    changed[place] = replace(job, fault=kind)
                else:
                    changed[place] = replace(job, play=replace(job.play, failure=Failure(kind, at_step=2)))
        return changed


def _flavor(name: str, hardware: Hardware) -> Manifest:
    made: Manifest = {"class": name, "nodeLabels": {"servertype": hardware.labels["servertype"]}}
    return made | ({"topology": [SUPER_POD]} if SUPER_POD in hardware.labels else {})
