"""Two clusters on the host network of one node at the same time: their ports are disjoint, and one of them trains.

The second job is paused with `rljob.dev/paused` as soon as its RayCluster exists. Both clusters run Ray, but only one
trains, because the memory of a small machine suffices for one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rljob.render.ports import PORTS, PortBlock, Role
from tests.e2e import recorded_run, runs
from tests.kube import Kube, Manifest, wait_for

pytestmark = pytest.mark.e2e

TRAINS, PAUSED_JOB = "host-one", "host-two"
PAUSED = "rljob.dev/paused"
READY_SECONDS = 240
RUN_SECONDS = 420
LISTENS = "0A"
"""State of a socket in /proc/net/tcp (Linux, include/net/tcp_states.h)."""
ROLES = {"head": (Role.HEAD, Role.EXPORTER), "worker": (Role.WORKER,)}


@dataclass
class Side:
    """One of the clusters, as observed when both were ready."""

    block: PortBlock
    pods: dict[str, Manifest]
    """Pods by node type."""
    ports: dict[str, set[int]] = field(default_factory=dict)
    """Ports on which the pods' processes listen, by node type."""
    addresses: set[str] = field(default_factory=set)
    """Addresses of the Ray nodes."""

    @property
    def listening(self) -> set[int]:
        """Return all ports of this cluster."""
        return set().union(*self.ports.values())


@dataclass
class Seen:
    """Both clusters, and the final status of the job that trains."""

    sides: dict[str, Side]
    status: Manifest
    submitted: list[Manifest]
    """Attempts of the other job after it was unpaused."""


@pytest.fixture(scope="module")
def seen(kube: Kube) -> Iterator[Seen]:
    common = {"network": {"mode": "Host"}, "workerGroups__0__devicesPerNode": 1}
    small = {"head__template": {"cpu": "100m", "memory": "4Gi"}, "code": {"type": "Image"}, "initializers": []}
    kube.apply(
        runs.variant(TRAINS, **common, trainer__steps=2, workerGroups__0__template__memory="6Gi", observability={}),
        runs.variant(
            PAUSED_JOB,
            **common,
            **small,
            observability={},
            workerGroups__0__template__cpu="100m",
            workerGroups__0__template__memory="3Gi",
            workerGroups__0__template__sharedMemory="512Mi",
        ),
    )
    wait_for("the second RayCluster", lambda: _cluster(kube, PAUSED_JOB), 60, every=0.3)
    kube.run("annotate", "rljob", PAUSED_JOB, f"{PAUSED}=true")
    wait_for("both clusters are ready", lambda: all(_is_ready(kube, n) for n in (TRAINS, PAUSED_JOB)), READY_SECONDS)
    sides = {name: _side(kube, name) for name in (TRAINS, PAUSED_JOB)}
    kube.run(
        "wait", f"rljob/{TRAINS}", "--for=condition=Finished", f"--timeout={RUN_SECONDS}s", seconds=RUN_SECONDS + 20
    )
    status = (kube.get("rljob", TRAINS) or {})["status"]
    kube.run("annotate", "rljob", PAUSED_JOB, f"{PAUSED}-")
    submitted = wait_for("the other job is submitted", lambda: _attempts(kube, PAUSED_JOB), 60)
    yield Seen(sides, status, submitted)
    for name in (TRAINS, PAUSED_JOB):
        kube.delete("rljob", name)


def _cluster(kube: Kube, job: str) -> Manifest | None:
    return next(iter(kube.find("rayclusters", f"rljob.dev/job={job}")), None)


def _is_ready(kube: Kube, job: str) -> bool:
    return ((_cluster(kube, job) or {}).get("status") or {}).get("state") == "ready"


def _attempts(kube: Kube, job: str) -> list[Manifest] | None:
    found: list[Manifest] = ((kube.get("rljob", job) or {}).get("status") or {}).get("attempts") or []
    return found or None


def _side(kube: Kube, job: str) -> Side:
    """Return the ports of a ready cluster. Some of Ray's processes open theirs shortly after its probes succeed."""
    block = PortBlock((kube.get("rljob", job) or {})["status"]["network"]["portBlock"])
    found = kube.find("pods", f"rljob.dev/job={job},ray.io/cluster")
    pods = {pod["metadata"]["labels"]["ray.io/node-type"]: pod for pod in found}
    side = Side(block, pods)

    def complete() -> bool:
        side.addresses = {address for pod in pods.values() for address in _raylets(pod)}
        side.ports = {kind: _listening(pod) for kind, pod in pods.items()}
        return all(_own_ports(block, kind) <= ports for kind, ports in side.ports.items())

    try:
        wait_for("every port of the block has a listener", complete, 60)
    except AssertionError:
        missing = {kind: sorted(_own_ports(block, kind) - ports) for kind, ports in side.ports.items()}
        raise AssertionError(
            f"{job}: block {block.first}, no process listens on {missing}; listening: {side.ports}"
        ) from None
    return side


def _own_ports(block: PortBlock, kind: str) -> set[int]:
    return {block.port(row) for row in PORTS if row.role in ROLES[kind]}


def _raylets(pod: Manifest) -> Iterator[str]:
    """Yield the addresses with which the raylets of a pod were started (ray/_private/services.py, 2.60)."""
    for pid in recorded_run.processes(pod["metadata"]["uid"], required=False):
        program, *words = recorded_run.command(pid).split("\0")
        if program.endswith("/raylet"):
            yield from (word.partition("=")[2] for word in words if word.startswith("--node_ip_address="))


def _listening(pod: Manifest) -> set[int]:
    """Return the ports of this machine on which processes of a pod listen."""
    inodes = {
        inode for pid in recorded_run.processes(pod["metadata"]["uid"], required=False) for inode in _sockets(pid)
    }
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and words[9] in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def _sockets(pid: int) -> Iterator[str]:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = str(entry.readlink())
            if target.startswith("socket:["):
                yield target.removeprefix("socket:[").removesuffix("]")
    except OSError:
        return  # the process has ended, or has closed the file


def test_both_were_ready_at_once_on_the_network_of_one_node(seen: Seen) -> None:
    pods = [pod for side in seen.sides.values() for pod in side.pods.values()]
    assert len(pods) == 4
    assert {pod["spec"]["hostNetwork"] for pod in pods} == {True}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    assert len({pod["status"]["podIP"] for pod in pods}) == 1


def test_ray_and_kubernetes_use_the_same_address_of_the_node(seen: Seen) -> None:
    for side in seen.sides.values():
        assert side.addresses == {pod["status"]["podIP"] for pod in side.pods.values()}


def test_their_blocks_and_their_sockets_are_disjoint(seen: Seen) -> None:
    one, two = (seen.sides[name] for name in (TRAINS, PAUSED_JOB))
    assert not one.block.all_ports & two.block.all_ports
    assert not one.listening & two.listening
    assert not one.ports["head"] & one.ports["worker"]
    assert not two.ports["head"] & two.ports["worker"]


def test_only_the_ports_of_the_block_are_below_the_ephemeral_ports(seen: Seen) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for side in seen.sides.values():
        assert {port for port in side.listening if port < lowest} == side.block.all_ports


def test_one_job_trains(seen: Seen) -> None:
    assert (seen.status["state"], seen.status["progress"]["summary"]) == ("Succeeded", "2/2"), seen.status


def test_the_operator_submits_the_other_job_at_its_own_port(seen: Seen) -> None:
    assert [attempt["number"] for attempt in seen.submitted] == [1]
