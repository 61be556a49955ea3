"""Read the topology of this node: sysfs, the container's cpuset, npu-smi.

Called once per node and run, in the task that also checks the node. Unreadable facts are reported, never guessed: the
plan then states how much is known.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from rljob_runtime.node.affinity import PlanError, Topology, parse_cpus
from rljob_runtime.node.ascend_tools import Device

SYSFS = Path("/sys")


def usable_cpus(sysfs: Path = SYSFS) -> frozenset[int]:
    """Return the CPUs of this container's cpuset.

    A process inherits the mask of raylet, which may be narrower, and the location of cgroup files depends on the
    container runtime. Instead, a temporary thread requests every CPU, and the kernel grants those of the cpuset
    (sched_setaffinity(2)).
    """
    wanted = _cpus(sysfs / "devices/system/cpu/possible") or frozenset(range(os.cpu_count() or 1))
    granted: list[frozenset[int]] = []

    def ask() -> None:
        try:
            os.sched_setaffinity(0, wanted)
        except OSError:
            return
        granted.append(frozenset(os.sched_getaffinity(0)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join()
    return granted[0] if granted else frozenset(os.sched_getaffinity(0))


def read_topology(
    devices: tuple[int, ...],
    allowed: frozenset[int],
    near: Mapping[int, frozenset[int]],
    sysfs: Path = SYSFS,
) -> Topology:
    """Return the node's topology. Raises PlanError if sysfs does not list its CPUs."""
    nodes = {}
    for folder in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        if cpus := _cpus(folder / "cpulist"):
            nodes[int(folder.name.removeprefix("node"))] = cpus
    online = _cpus(sysfs / "devices/system/cpu/online")
    if not nodes and online:
        # A kernel without NUMA: treat the whole machine as one node.
        nodes = {0: online}
    if not nodes:
        raise PlanError(f"{sysfs}/devices/system/node and cpu/online are unreadable: the node's topology is unknown")
    cores = {
        siblings
        for cpu in sorted(allowed)
        if (siblings := _cpus(sysfs / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
    }
    return Topology(allowed, nodes, sorted(cores, key=min), devices, dict(near))


def near_by_bus(devices: tuple[Device, ...], sysfs: Path = SYSFS) -> dict[int, frozenset[int]]:
    """Return the CPUs near each device by its PCI address, for drivers whose npu-smi reports no affinity."""
    found = {}
    for device in devices:
        if cpus := _cpus(sysfs / f"bus/pci/devices/{device.bus}/local_cpulist"):
            found[device.logical] = cpus
    return found


def _cpus(file: Path) -> frozenset[int]:
    try:
        return parse_cpus(file.read_text())
    except (OSError, ValueError):
        return frozenset()
