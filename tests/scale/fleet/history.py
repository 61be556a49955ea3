"""The recorded states of the fleet, revision by revision, and the invariants of each.

All watches use one API server with one etcd, whose revisions order all writes of any kind. Events of different kinds,
sorted by revision, therefore reproduce the actual states of the cluster one after another, with none left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rljob.render import labels
from rljob.render.accelerators import BUILT_IN
from tests.scale.client import Manifest

NPU = BUILT_IN["atlas-a3-superpod"].resource
WORKER = "worker"


class Kind(StrEnum):
    """Kinds that are watched."""

    POD = "pods"
    CLUSTER = "rayclusters"
    WORKLOAD = "workloads"
    JOB = "rljobs"


@dataclass(frozen=True)
class Pod:
    """A worker pod."""

    job: str
    cluster: str
    team: str
    node: str
    """Empty if the pod is not bound yet."""
    devices: int
    going: bool
    """Whether it is being deleted."""


@dataclass(frozen=True)
class Cluster:
    """A RayCluster."""

    job: str
    team: str
    nodes: int
    off: bool
    """Whether it is being deleted or is suspended."""


@dataclass(frozen=True)
class Reservation:
    """A Workload."""

    cluster: str
    team: str
    devices: Mapping[str, int]
    """By flavor, while quota is reserved."""
    evicted: tuple[str, str] | None
    """Reason and time."""


@dataclass(frozen=True)
class State:
    """An RLJob."""

    state: str
    message: str
    end: str
    """Reason of the condition Finished, if it is true."""


Thing = Pod | Cluster | Reservation | State


@dataclass(frozen=True)
class Fact:
    """One write reported by a watch."""

    revision: int
    seconds: float
    """Time of observation since the first job."""
    kind: Kind
    name: str
    """Including the namespace."""
    thing: Thing | None
    """None if the object was deleted."""


def read(kind: Kind, item: Manifest) -> Thing | None:
    """Return the part of an object that is checked; None if it is irrelevant."""
    meta, status = item["metadata"], item.get("status") or {}
    space, marks = meta["namespace"], meta.get("labels") or {}
    going = "deletionTimestamp" in meta
    match kind:
        case Kind.POD:
            if marks.get(labels.RAY_NODE_TYPE) != WORKER:
                return None
            wanted = item["spec"]["containers"][0]["resources"].get("requests", {})
            over = status.get("phase") in ("Succeeded", "Failed")
            node = "" if over else item["spec"].get("nodeName", "")
            cluster = f"{space}/{marks[labels.RAY_CLUSTER]}"
            return Pod(marks[labels.JOB], cluster, space, node, int(wanted.get(NPU, 0)), going)
        case Kind.CLUSTER:
            nodes = item["spec"]["workerGroupSpecs"][0]["replicas"]
            return Cluster(marks[labels.JOB], space, nodes, going or bool(item["spec"].get("suspend")))
        case Kind.WORKLOAD:
            return _reservation(item, going)
        case Kind.JOB:
            ends = [
                c["reason"] for c in status.get("conditions", ()) if c["type"] == "Finished" and c["status"] == "True"
            ]
            return State(status.get("state", ""), status.get("message", ""), ends[0] if ends else "")


def _reservation(item: Manifest, going: bool) -> Reservation | None:
    meta, status = item["metadata"], item.get("status") or {}
    owner = next((o["name"] for o in meta.get("ownerReferences", ()) if o["kind"] == "RayCluster"), None)
    if owner is None:
        return None
    conditions = {entry["type"]: entry for entry in status.get("conditions", ())}
    reserved = conditions.get("QuotaReserved", {}).get("status") == "True" and not going
    devices: Counter[str] = Counter()
    for part in (status.get("admission") or {}).get("podSetAssignments", ()) if reserved else ():
        if NPU in part.get("flavors", {}):
            devices[part["flavors"][NPU]] += int(part["resourceUsage"][NPU])
    evicted = conditions.get("Evicted", {})
    why = (evicted["reason"], evicted["lastTransitionTime"]) if evicted.get("status") == "True" else None
    return Reservation(f"{meta['namespace']}/{owner}", meta["namespace"], dict(devices), why)


@dataclass(frozen=True)
class Bounds:
    """The invariants."""

    quota: Mapping[tuple[str, str], int]
    """Maximum number of a team's devices per flavor: its own and those it may borrow."""
    kept: Mapping[tuple[str, str], int]
    """A team's own devices that other teams must not use."""
    fleet: Mapping[str, int]
    """Devices by flavor."""
    super_pods: Mapping[str, str]
    """Super-pod by node."""
    node_devices: Mapping[str, int]
    flavors: Mapping[str, str]
    """Flavor by node."""
    blocks: Mapping[str, int]
    """Number of nodes that must be in the same super-pod, by job."""
    whole: frozenset[str]
    """Jobs that must be within one super-pod."""


@dataclass
class World:
    """State of the cluster at one revision."""

    pods: dict[str, Pod] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    jobs: dict[str, State] = field(default_factory=dict)

    def take(self, fact: Fact) -> None:
        """Apply a write."""
        kept: dict[str, Thing] = {
            Kind.POD: self.pods,
            Kind.CLUSTER: self.clusters,
            Kind.WORKLOAD: self.reservations,
            Kind.JOB: self.jobs,
        }[fact.kind]  # type: ignore[assignment]
        if fact.thing is None:
            kept.pop(fact.name, None)
        else:
            kept[fact.name] = fact.thing

    def reserved(self) -> Counter[tuple[str, str]]:
        """Count the devices that Kueue has reserved, by team and flavor."""
        given: Counter[tuple[str, str]] = Counter()
        for entry in self.reservations.values():
            for flavor, devices in entry.devices.items():
                given[entry.team, flavor] += devices
        return given

    def bound(self) -> Iterator[Pod]:
        """Yield the pods that hold devices of a node."""
        return (pod for pod in self.pods.values() if pod.node)

    def held(self, flavors: Mapping[str, str]) -> Counter[str]:
        """Count the devices held by pods per flavor, including terminating pods. `flavors` maps nodes to flavors."""
        held: Counter[str] = Counter()
        for pod in self.bound():
            held[flavors[pod.node]] += pod.devices
        return held

    def gangs(self) -> dict[str, list[Pod]]:
        """Return the pods that hold devices, by cluster."""
        found: dict[str, list[Pod]] = {}
        for pod in self.bound():
            found.setdefault(pod.cluster, []).append(pod)
        return found


def violations(world: World, bounds: Bounds) -> Iterator[str]:
    """Yield the violated invariants at this revision."""
    yield from _quota(world, bounds)
    holds: Counter[str] = Counter()
    for pod in world.bound():
        holds[pod.node] += pod.devices
    for node, devices in holds.items():
        if devices > bounds.node_devices[node]:
            yield f"{node} has {devices} devices given out, of {bounds.node_devices[node]}"
    for name, pods in world.gangs().items():
        yield from _places(name, [pod for pod in pods if not pod.going], world, bounds)


def _quota(world: World, bounds: Bounds) -> Iterator[str]:
    given = world.reserved()
    for (team, flavor), devices in given.items():
        if devices > bounds.quota[team, flavor]:
            yield f"{team} has {devices} devices of {flavor} reserved, of {bounds.quota[team, flavor]}"
    for flavor, devices in world.held(bounds.flavors).items():
        if devices > bounds.fleet[flavor]:
            yield f"pods hold {devices} devices of {flavor}, of {bounds.fleet[flavor]}"
    for flavor, whole in bounds.fleet.items():
        of_all = {team: devices for (team, kind), devices in given.items() if kind == flavor}
        if sum(of_all.values()) > whole:
            yield f"{sum(of_all.values())} devices of {flavor} are reserved, of {whole}"
        for team in {team for team, kind in bounds.kept if kind == flavor}:
            others = sum(devices for name, devices in of_all.items() if name != team)
            if others > whole - bounds.kept[team, flavor]:
                yield f"others than {team} have {others} devices of {flavor}, of which {team} lends none"


def _places(name: str, pods: list[Pod], world: World, bounds: Bounds) -> Iterator[str]:
    """Check the placement of a complete gang. Partial gangs are checked only by their duration."""
    cluster = world.clusters.get(name)
    if cluster is None or len(pods) != cluster.nodes:
        return
    by_pod = Counter(bounds.super_pods.get(pod.node, "") for pod in pods)
    block = bounds.blocks.get(cluster.job)
    if block is not None and any(nodes % block for nodes in by_pod.values()):
        yield f"{cluster.job} asked for blocks of {block} nodes and has {dict(by_pod)} in the super-pods"
    if cluster.job in bounds.whole and len(by_pod) > 1:
        yield f"{cluster.job} asked for one super-pod and has {dict(by_pod)}"


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """Return the history in order. An event reported by two watches counts once."""
    unique = {(fact.revision, fact.kind, fact.name): fact for fact in facts}
    return sorted(unique.values(), key=lambda fact: fact.revision)
