"""Reads the topology of the node that this process runs on: sysfs, the kernel's answer about the cpuset, npu-smi.

Called once a node and run, in the task that also checks the node. What cannot be read is told, never guessed: the plan
then says how much it knows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from rljob_runtime.affinity import PlanError, Topology, parse_cpus
from rljob_runtime.ascend_tools import Device

SYSFS = Path("/sys")


def usable_cpus(sysfs: Path = SYSFS) -> frozenset[int]:
    """Give the CPUs of this container's cpuset.

    A process inherits the mask of raylet, which may be narrower, and cgroup files are where the runtime mounts them. So
    a thread asks for every CPU: the kernel grants it those of the cpuset (sched_setaffinity(2)), and the thread ends.
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
    """Give the node's topology; raises PlanError if sysfs tells nothing of its CPUs."""
    nodes = {}
    for folder in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        if cpus := _cpus(folder / "cpulist"):
            nodes[int(folder.name.removeprefix("node"))] = cpus
    online = _cpus(sysfs / "devices/system/cpu/online")
    if not nodes and online:
        # A kernel without NUMA: the whole machine is one node.
        nodes = {0: online}
    if not nodes:
        raise PlanError(f"{sysfs}/devices/system/node and cpu/online cannot be read: the node's topology is unknown")
    cores = {
        siblings
        for cpu in sorted(allowed)
        if (siblings := _cpus(sysfs / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
    }
    return Topology(allowed, nodes, sorted(cores, key=min), devices, dict(near))


def near_by_bus(devices: tuple[Device, ...], sysfs: Path = SYSFS) -> dict[int, frozenset[int]]:
    """Give the CPUs near each device from its place on the PCI bus: for drivers whose npu-smi tells no affinity."""
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
