"""The job against its row of the accelerator table: whole nodes, whole cores, mounts, image.

An unknown class stops all other checks, because they read its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from rljob.api.accelerators import DriverMounts
from rljob.api.pods import ContainerResources
from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.core.validation import fields
from rljob.core.validation.arithmetic import next_multiple
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of
from rljob.render.hardware import driver_mounts, sized
from rljob.render.podgroup import Gang, stated_gang
from rljob.render.pods import services_of_pods

WORD = re.compile(r"[^a-z0-9]+")


def class_violations(spec: RLJobSpec) -> Iterator[Violation]:
    """Refuse a class without a row; nothing else can be checked then."""
    name, table = spec.accelerator.class_, spec.accelerator.table
    if name not in table:
        yield Violation(
            "spec.accelerator.class",
            f"class {name} does not exist; classes are {', '.join(sorted(table))}; an administrator adds others "
            "with the chart value accelerators, and rljob reads them with --accelerators FILE",
        )


def _several_nodes_are_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """Two pods of one job on a node would share its cores, ports and failures."""
    facts = facts_of(spec)
    alone = ", or set nodes to 1" if len(spec.worker_groups) == 1 else ""
    for path, group in fields.groups(spec):
        if facts.is_npu and spec.nodes > 1 and group.devices_per_node < facts.devices_per_node:
            yield Violation(
                f"{path}.devicesPerNode",
                f"{group.devices_per_node} on {spec.nodes} nodes, but a pod must take a whole node: class "
                f"{spec.accelerator.class_} has {facts.devices_per_node} devices per node; use that{alone}",
            )


def _cores_are_shared_evenly(spec: RLJobSpec) -> Iterator[Violation]:
    """Guaranteed pods with whole cores get exclusive cores, and each device gets the same number of them."""
    for path, group in fields.groups(spec):
        if facts_of(spec).is_npu:
            yield from _unevenly_shared(spec, path, group)


def _unevenly_shared(spec: RLJobSpec, path: str, group: WorkerGroup) -> Iterator[Violation]:
    template = sized(spec, group)
    for name, value in (("cpu", template.cpu), ("memory", template.memory)):
        if value is None:
            yield Violation(
                f"{path}.template.{name}",
                "is required on NPU classes: without it worker pods are not Guaranteed and share cores",
            )
    if template.cpu is None:
        return
    cores = quantity(template.cpu)
    if cores < group.devices_per_node:
        return  # Reported by the check of the CPUs that Ray needs.
    if cores.denominator != 1 or cores % group.devices_per_node:
        whole = _whole(cores)
        below = whole // group.devices_per_node * group.devices_per_node
        above = next_multiple(whole, group.devices_per_node)
        near = f"{below} or {above}" if below < above else str(above)
        yield Violation(
            f"{path}.template.cpu",
            f"{template.cpu} cores cannot be divided evenly among {group.devices_per_node} devices; use {near}",
        )


def _whole(cores: Fraction) -> int:
    return -(-cores.numerator // cores.denominator)


def _runtime_class_is_named(spec: RLJobSpec) -> Iterator[Violation]:
    """Mounting through the container runtime requires its name."""
    facts = facts_of(spec)
    if driver_mounts(spec) is DriverMounts.RUNTIME_CLASS and not (
        spec.runtime.runtime_class_name or facts.runtime_class_name
    ):
        yield Violation(
            "spec.runtime.runtimeClassName",
            f"is required with accelerator.driverMounts RuntimeClass, because class {spec.accelerator.class_} names "
            "none; set it, for example to ascend",
        )


def _image_is_for_the_class(spec: RLJobSpec) -> Iterator[Violation]:
    """Operators are compiled for one chip: an image for A2 fails on A3 when it loads the first one, and vice versa."""
    own = facts_of(spec).image_suffix
    others = {row.image_suffix for row in spec.accelerator.table.values() if row.image_suffix} - {own}
    tag = spec.runtime.image.rpartition("/")[2].partition("@")[0].partition(":")[2].lower()
    words = set(WORD.split(tag))
    if own is not None and own not in words and (wrong := sorted(words & others)):
        yield Violation(
            "spec.runtime.image",
            f"its tag contains {wrong[0]}, but images for class {spec.accelerator.class_} contain {own}; operators for "
            "one chip do not load on another",
        )


def _part_of_a_node_is_reported(spec: RLJobSpec) -> Iterator[Violation]:
    """Other pods may run on the other devices and cores of the node."""
    facts = facts_of(spec)
    for path, group in fields.groups(spec):
        if facts.is_npu and spec.nodes == 1 and group.devices_per_node < facts.devices_per_node:
            yield Violation(
                f"{path}.devicesPerNode",
                f"{group.devices_per_node} of {facts.devices_per_node} devices of a node: the node may be shared, so "
                f"core binding and throughput are not comparable to those of a whole node{_plug_in_hint(spec)}",
            )


def _plug_in_hint(spec: RLJobSpec) -> str:
    """Return what the device plug-in may refuse after the pods are placed; empty where Volcano places them.

    MC v26.1.0, component/ascend-device-plugin: with volcanoType it ignores the devices that the kubelet chose for
    part of a node, and looks for a pod that Ascend's Volcano plug-in has marked ("not get valid pod").
    """
    if stated_gang(spec) is Gang.VOLCANO or facts_of(spec).schedule_policy is None:
        return ""
    return (
        "; a device plug-in with volcanoType=true gives part of a node only to pods of Volcano, and others end in "
        "UnexpectedAdmissionError: set scheduling.gang to Volcano"
    )


def _pods_stay_guaranteed(spec: RLJobSpec) -> Iterator[Violation]:
    """A single container without equal requests and limits costs the whole pod its exclusive cores."""
    if not facts_of(spec).is_npu:
        return
    for path, container in fields.containers(spec):
        if not path.startswith(fields.HEAD) and not _is_guaranteed(container.resources):
            yield Violation(
                f"{path}.resources",
                "without equal requests and limits of cpu and memory the worker pods are not Guaranteed and get no "
                "exclusive cores",
            )
    for index, service in enumerate(spec.services):
        if service in services_of_pods(spec) and (service.cpu is None or service.memory is None):
            yield Violation(
                f"spec.services[{index}]",
                "without cpu and memory the worker pods are not Guaranteed and get no exclusive cores; set both",
            )


def _services_share_the_node(spec: RLJobSpec) -> Iterator[Violation]:
    """The port block is for Ray and the exporter; a service listens on the port that the user chose."""
    for index, service in enumerate(spec.services):
        if spec.network.mode == "Host" and service in services_of_pods(spec):
            yield Violation(
                f"spec.services[{index}].port",
                f"{service.port} is a port of the node with network.mode Host: two jobs with it cannot share a node, "
                "nor can head and worker of this job",
            )


def _is_guaranteed(resources: ContainerResources) -> bool:
    limits, requests = resources.limits, resources.requests
    return all(name in limits and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory"))


CHECKS: tuple[Check, ...] = (
    _several_nodes_are_whole,
    _cores_are_shared_evenly,
    _runtime_class_is_named,
)
WARNINGS: tuple[Check, ...] = (
    _image_is_for_the_class,
    _part_of_a_node_is_reported,
    _pods_stay_guaranteed,
    _services_share_the_node,
)
