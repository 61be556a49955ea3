"""Plan which CPUs each process of a node may use, from the node's topology.

Each device gets its own pool for the processes that take turns on it (trainer and rollout). Pools are equal in size
and near their device where its location is known. The remaining cores are for Ray's own processes and interrupts
(`system`) and for processes without a device (`data`: agent loops, reward workers, storage units, engine front ends).
topology.py reads the topology and core_binding.py applies the plan. This module does no I/O: the same topology yields
the same plan in every process.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DEVICE_CPUS_MIN = 5
"""torch_npu assigns one core each to its main, ACL, release and watchdog threads and the remaining cores to its other
threads. With fewer than five cores it binds coarsely (torch_npu/csrc/core/npu/NPUAffinityController.cpp,
getCpuAffinityMap)."""
DATA_SHARE = 8
"""One core in eight is reserved for processes without a device."""
SYSTEM_SHARE = 16
"""At most one core in sixteen, and at most one per NUMA node, is reserved for raylet and interrupts."""
FINE, COARSE = 2, 1
"""Modes of CPU_AFFINITY_CONF (torch_npu documentation of the variable)."""


class Locality(enum.StrEnum):
    """How close the pools are to their devices."""

    NEAR = "Near"
    """Each pool is on a NUMA node that its device is attached to."""
    SPREAD = "Spread"
    """Each pool is within one NUMA node. The nodes near the devices are unknown, the same for all devices, or full."""
    ACROSS = "Across"
    """Some pools cross NUMA nodes because the cpuset leaves no alternative."""


class PlanError(ValueError):
    """No sensible plan exists. The message names the cause and the fix."""


@dataclass(frozen=True)
class Topology:
    """The input of a plan."""

    allowed: frozenset[int]
    """CPUs of this container's cpuset."""
    nodes: Mapping[int, frozenset[int]]
    """NUMA node -> its CPUs, for the whole host."""
    cores: Sequence[frozenset[int]]
    """Hardware threads of each core, for the whole host."""
    devices: tuple[int, ...]
    """Logical ids, as Ray numbers them."""
    affinity: Mapping[int, frozenset[int]]
    """Device -> CPUs that it is attached to. Devices without an entry are unknown."""


@dataclass(frozen=True)
class Plan:
    """CPUs by purpose, each in ascending order. No device pool overlaps with another pool."""

    devices: Mapping[int, tuple[int, ...]]
    system: tuple[int, ...]
    data: tuple[int, ...]
    """Equal to `system` if no core is left."""
    locality: Locality
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the plan as one line."""
        pools = "; ".join(f"npu{device} {cpu_text(cpus)}" for device, cpus in sorted(self.devices.items()))
        return f"{self.locality.value}: {pools}; system {cpu_text(self.system)}; data {cpu_text(self.data)}"


Core = tuple[int, ...]
"""Allowed hardware threads of one core, in ascending order."""


def make_plan(topology: Topology, minimum: int = DEVICE_CPUS_MIN) -> Plan:
    """Plan the node. Raises PlanError if a device would get fewer than `minimum` CPUs."""
    cores = _cores_by_node(topology)
    count = sum(map(len, cores.values()))
    if not topology.devices:
        raise PlanError("no devices to plan for")
    notes: list[str] = []
    if any(topology.affinity.values()):
        near = _near_homes(topology, cores)
        plan = _within_nodes(topology, cores, near, minimum) if near else None
        if plan is not None:
            return plan
        notes.append("the cpuset has too few CPUs near the devices: pools are spread over all NUMA nodes")
    plan = _within_nodes(topology, cores, _spread(topology.devices, _weights(cores)), minimum)
    if plan is None:
        notes.append("the cpuset leaves some NUMA nodes too few CPUs: pools cross NUMA nodes")
        flat = {0: [core for node in sorted(cores) for core in cores[node]]}
        plan = _within_nodes(topology, flat, dict.fromkeys(topology.devices, 0), minimum)
        plan = None if plan is None else _relabelled(plan, Locality.ACROSS)
    if plan is None:
        cpus = len(topology.allowed)
        raise PlanError(
            f"{cpus} CPUs ({count} cores) in this container's cpuset are too few for {len(topology.devices)} devices "
            f"with {minimum} CPUs each and a core for Ray: raise workerGroups[].template.cpu"
        )
    return Plan(plan.devices, plan.system, plan.data, plan.locality, tuple(notes))


def torch_npu_setting(cpus: Sequence[int], visible: int) -> str:
    """Return CPU_AFFINITY_CONF for a process that uses one of `visible` devices.

    torch_npu binds nothing if any range lies outside the process's mask, even the range of a device that the process
    does not use. Every device is therefore assigned this process's own pool. `force` skips that check from 26.1 on
    (2.9.0.post6, 2.10.0.post4; csrc/core/npu/NPUAffinityController.cpp, parseForceMode). Releases before it ignore
    options that they do not know and use the last range of a device (the same file of v26.0.1-pytorch2.10.0, 108-145),
    so one value serves all.
    """
    mode = FINE if len(cpus) >= DEVICE_CPUS_MIN else COARSE
    runs = sorted(_runs(cpus), key=lambda run: (run[1] - run[0], run[0]))
    ranges = [f"npu{device}:{first}-{last}" for device in range(max(1, visible)) for first, last in runs]
    return ",".join([str(mode), "force:1", *ranges])


def cpu_text(cpus: Iterable[int]) -> str:
    """Format CPUs as the kernel does: `0-3,8`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(cpus))


def parse_cpus(text: str) -> frozenset[int]:
    """Parse the kernel's format for CPUs. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _runs(cpus: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return runs


def _cores_by_node(topology: Topology) -> dict[int, list[Core]]:
    """Group the allowed CPUs by NUMA node and core. A CPU unknown to sysfs is its own core on the first node."""
    node_of = {cpu: node for node, cpus in topology.nodes.items() for cpu in cpus}
    core_of = {cpu: core for core in topology.cores for cpu in core}
    first = min(topology.nodes, default=0)
    cores: dict[int, set[Core]] = {}
    for cpu in topology.allowed:
        node = node_of.get(cpu, first)
        near = (sibling for sibling in core_of.get(cpu, frozenset((cpu,))) if node_of.get(sibling, first) == node)
        cores.setdefault(node, set()).add(tuple(sorted(topology.allowed.intersection(near))))
    return {node: sorted(found) for node, found in sorted(cores.items())}


def _weights(cores: Mapping[int, Sequence[Core]]) -> dict[int, float]:
    return {node: float(len(found)) for node, found in cores.items()}


def _near_homes(topology: Topology, cores: Mapping[int, Sequence[Core]]) -> dict[int, int] | None:
    """Return a NUMA node near each device, or None if the cpuset contains no such node for some device."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for device in topology.devices:
        near = topology.affinity.get(device, topology.allowed)
        key = tuple(node for node, found in cores.items() if any(near.intersection(core) for core in found))
        if not key:
            return None
        groups.setdefault(key, []).append(device)
    left = _weights(cores)
    fair = sum(left.values()) / len(topology.devices)
    homes: dict[int, int] = {}
    # Devices with the fewest candidate nodes choose first; the others share the remaining capacity.
    for nodes, devices in sorted(groups.items(), key=lambda group: (len(group[0]), group[0])):
        placed = _spread(devices, {node: max(left[node], 0.001) for node in nodes})
        homes |= placed
        for node in placed.values():
            left[node] -= fair
    return homes


def _spread(devices: Sequence[int], weights: Mapping[int, float]) -> dict[int, int]:
    """Distribute devices by weight, keeping neighbours together: the dies of a card stay on one node."""
    total = sum(weights.values())
    if not total:
        return {}
    exact = {node: len(devices) * weight / total for node, weight in weights.items()}
    shares = {node: int(value) for node, value in exact.items()}
    rest = len(devices) - sum(shares.values())
    for node in sorted(weights, key=lambda node: (shares[node] - exact[node], node))[:rest]:
        shares[node] += 1
    homes = [node for node in sorted(shares) for _ in range(shares[node])]
    return dict(zip(devices, homes, strict=True))


def _within_nodes(
    topology: Topology, cores: Mapping[int, Sequence[Core]], homes: Mapping[int, int], minimum: int
) -> Plan | None:
    """Divide each node's cores into equal pools for its devices; return None if the pools would be too small."""
    if not homes:
        return None
    count = sum(map(len, cores.values()))
    guests = {node: [device for device in sorted(homes) if homes[device] == node] for node in cores}
    room = min(len(cores[node]) // len(devices) for node, devices in guests.items() if devices)
    system = max(1, min(len(cores), count // SYSTEM_SHARE))
    size = min(room, (count - system - count // DATA_SHARE) // len(homes))
    threads = max(len(core) for found in cores.values() for core in found)
    needed = -(-minimum // threads)
    if size < needed:
        size = min(room, needed, (count - 1) // len(homes))
    if size < 1:
        return None
    return _cut(topology, cores, guests, size, system, minimum)


def _cut(
    topology: Topology,
    cores: Mapping[int, Sequence[Core]],
    guests: Mapping[int, Sequence[int]],
    size: int,
    system_cores: int,
    minimum: int,
) -> Plan | None:
    pools: dict[int, tuple[int, ...]] = {}
    system: list[int] = []
    data: list[int] = []
    taken = 0
    for node, found in cores.items():
        rest = list(found)
        if len(rest) > len(guests[node]) * size and taken < system_cores:
            # Interrupts are handled on the first core of a node by default.
            system += rest.pop(0)
            taken += 1
        for device in guests[node]:
            pools[device] = tuple(sorted(cpu for core in rest[:size] for cpu in core))
            del rest[:size]
        data += [cpu for core in rest for cpu in core]
    if min(map(len, pools.values())) < minimum:
        return None
    host = frozenset().union(*topology.nodes.values()) if topology.nodes else topology.allowed
    near = all(
        topology.affinity.get(device, host) < host and topology.affinity[device].issuperset(pool)
        for device, pool in pools.items()
    )
    kept = tuple(sorted(system))
    return Plan(pools, kept, tuple(sorted(data)) or kept, Locality.NEAR if near else Locality.SPREAD)


def _relabelled(plan: Plan, locality: Locality) -> Plan:
    return Plan(plan.devices, plan.system, plan.data, locality, plan.notes)
