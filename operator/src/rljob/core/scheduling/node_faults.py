"""What is wrong with the nodes that a job holds: nodes and MindCluster's device-info ConfigMaps in, troubles out.

Kubernetes alone says how many devices of a node are well, and of newer kubelets which of a pod's are not. The ConfigMap
of Ascend's device plug-in says which device, how bad, and whether a run may go on. One table says what each class of
fault means for a job; an unknown class counts as the worst, as the plug-in itself takes unknown fault codes.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rljob.core.reasons import Reason
from rljob.core.scheduling.scheduled import placed_time
from rljob.render import labels

DEVICE_INFO_NAMESPACE = "kube-system"
DEVICE_INFO_PREFIX = "mindx-dl-deviceinfo-"
"""Where the plug-in keeps its ConfigMaps, and their names before that of the node: MindCluster v26.1.0,
component/ascend-device-plugin."""
REAL_DEVICES = "huawei.com/AscendReal"
"""Annotation with the devices that a pod really has; written by the same plug-in, also without Volcano."""
NOT_READY_TAINTS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""The node controller's: https://kubernetes.io/docs/reference/labels-annotations-taints/"""
FAULTS_KEPT = 32
"""Of a node: twice what the largest has devices."""
CODES_SHOWN = 80
TOLD = 4
"""Troubles that a message lists."""


class FaultEffect(enum.IntEnum):
    """What a fault means for the job that holds the device, the worse the higher."""

    NONE = 0
    """Nothing: the device works."""
    TELLS = 1
    """Condition Degraded; the run goes on."""
    AVOIDS = 2
    """The same; when the run ends without success, the next generation stays away from the node."""
    RESTARTS = 3
    """The run saves and begins anew, on the same node if it is offered again."""
    EXCLUDES = 4
    """The run saves and begins anew on other nodes."""


@dataclass(frozen=True)
class FaultClass:
    """One row."""

    effect: FaultEffect
    reason: Reason
    source: str
    wait_seconds: int = 0
    """How long it must last before a run is stopped for it."""


_LEVELS = "MindCluster v26.1.0: component/ascend-device-plugin, faultCode.json and its handling of levels"
_SWITCH = "MindCluster v26.1.0: SwitchFaultCode.json; SwitchInfoCfg of the ConfigMap"
_NODED = "MindCluster v26.1.0: component/noded"
_KUBELET = "node.status: allocatable below capacity; pod.status: allocatedResourcesStatus (Kubernetes KEP-4680)"
_SILENCE = "MindCluster's own silence windows before it reschedules: 30 to 60 s"
_NODES = "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"

UNKNOWN = "UnknownFault"
DEVICE_UNHEALTHY = "DeviceUnhealthy"
DEVICES_GONE = "DevicesGone"
NETWORK_UNHEALTHY = "NetworkUnhealthy"
NODE_NOT_READY = "NodeNotReady"
NODE_CORDONED = "NodeCordoned"

CLASSES: Mapping[str, FaultClass] = {
    "NotHandleFault": FaultClass(FaultEffect.NONE, Reason.HEALTHY, _LEVELS),
    "NotHandle": FaultClass(FaultEffect.NONE, Reason.HEALTHY, _SWITCH),
    "SubHealthFault": FaultClass(FaultEffect.TELLS, Reason.SUB_HEALTHY, _LEVELS),
    # No new pod gets the device, and what runs may run to its end.
    "PreSeparateNPU": FaultClass(FaultEffect.AVOIDS, Reason.SUB_HEALTHY, _LEVELS),
    "PreSeparateFault": FaultClass(FaultEffect.AVOIDS, Reason.SUB_HEALTHY, _NODED),
    # The chip is reset as soon as nothing uses it.
    "FreeRestartNPU": FaultClass(FaultEffect.AVOIDS, Reason.SUB_HEALTHY, _LEVELS),
    "RestartRequest": FaultClass(FaultEffect.RESTARTS, Reason.DEVICE_FAULT, f"{_LEVELS}; {_SILENCE}", 60),
    "RestartRequestFault": FaultClass(FaultEffect.RESTARTS, Reason.DEVICE_FAULT, f"{_SWITCH}; {_SILENCE}", 60),
    "RestartBusiness": FaultClass(FaultEffect.RESTARTS, Reason.DEVICE_FAULT, f"{_LEVELS}; {_SILENCE}", 60),
    "RestartNPU": FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, _LEVELS),
    "SeparateNPU": FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, _LEVELS),
    "ManuallySeparateNPU": FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, _LEVELS),
    "ResetFault": FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, _SWITCH),
    "Separate": FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, _SWITCH),
    "SeparateFault": FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, f"{_SWITCH}; {_NODED}"),
    UNKNOWN: FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, f"{_LEVELS}: unknown codes are SeparateNPU"),
    # Said by the kubelet alone, so that a plug-in that is updated must not end a run.
    DEVICE_UNHEALTHY: FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, f"{_KUBELET}; {_SILENCE}", 60),
    # The kubelet takes every device of a plug-in that is gone as unwell; what runs does not need the plug-in.
    DEVICES_GONE: FaultClass(FaultEffect.AVOIDS, Reason.DEVICES_GONE, _KUBELET),
    # Links that fall are PreSeparateNPU by default.
    NETWORK_UNHEALTHY: FaultClass(FaultEffect.AVOIDS, Reason.SUB_HEALTHY, _LEVELS),
    NODE_NOT_READY: FaultClass(FaultEffect.AVOIDS, Reason.NODE_NOT_READY, _NODES),
    NODE_CORDONED: FaultClass(FaultEffect.TELLS, Reason.NODE_CORDONED, _NODES),
}
"""What a rule of restart.rules may name in onFault."""


@dataclass(frozen=True, order=True)
class DeviceFault:
    """What the plug-in says of a device; of the whole node where `device` is empty."""

    device: str
    name: str
    """Class of CLASSES."""
    codes: str = ""


@dataclass(frozen=True)
class NodeLook:
    """A node as it was read last."""

    name: str
    ready: bool = True
    cordoned: bool = False
    offered: Mapping[str, int] | None = None
    """Allocatable devices by resource; None: none at all."""
    capacity: Mapping[str, int] | None = None
    faults: tuple[DeviceFault, ...] | None = None
    """None: the plug-in's ConfigMap is not there, or not to be read."""

    def count(self, resource: str) -> tuple[int, int]:
        """Give how many devices are offered, of how many."""
        return (self.offered or {}).get(resource, 0), (self.capacity or {}).get(resource, 0)


@dataclass(frozen=True)
class Held:
    """A node on which a job has a pod."""

    node: str
    works: bool
    """Whether the pod has devices; the head has none."""
    devices: frozenset[str] = frozenset()
    """Which; empty where nobody says so."""
    sick: frozenset[str] = frozenset()
    """Of these, what the kubelet calls unhealthy."""
    since: datetime | None = None
    """When the pod got the node; None where nobody says so."""


@dataclass(frozen=True)
class NodeFault:
    """Something that is wrong with what a job holds."""

    node: str
    device: str
    name: str
    """Class of CLASSES."""
    detail: str = ""

    @property
    def row(self) -> FaultClass:
        """What it means."""
        return class_of(self.name)

    def __str__(self) -> str:
        """Give the words for people: the device first."""
        place = f"{self.device} of node {self.node}" if self.device else f"node {self.node}"
        return f"{place}: {self.name}" + (f" ({self.detail})" if self.detail else "")


def listed(node_faults: Iterable[NodeFault]) -> str:
    """Name the worst."""
    found = [str(node_fault) for node_fault in node_faults]
    more = f" and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return "; ".join(found[:TOLD]) + more


# Reading.


def read_node(
    name: str, node: Mapping[str, Any], device_info: Mapping[str, Any] | None, resources: Iterable[str]
) -> NodeLook:
    """Keep what matters of a node and of its ConfigMap, where it has one."""
    spec, state, wanted = node.get("spec") or {}, node.get("status") or {}, tuple(resources)
    return NodeLook(
        name,
        ready=is_ready(spec),
        cordoned=spec.get("unschedulable") is True,
        offered=counts(state.get("allocatable"), wanted),
        capacity=counts(state.get("capacity"), wanted),
        faults=None if device_info is None else _read_device_info(device_info),
    )


def is_ready(spec: Mapping[str, Any]) -> bool:
    """Whether the node controller hears of the node; its taints come with the first doubt."""
    return not any(taint.get("key") in NOT_READY_TAINTS for taint in spec.get("taints") or ())


def counts(amounts: Mapping[str, Any] | None, resources: Iterable[str]) -> dict[str, int]:
    """Read whole devices."""
    found = amounts or {}
    return {name: int(text) for name in resources if (text := str(found.get(name, ""))).isdecimal()}


def read_held(pods: Iterable[Mapping[str, Any]]) -> tuple[Held, ...]:
    """Say which nodes and devices the pods of a RayCluster have; pods without a node have none."""
    return tuple(
        Held(
            str(pod["spec"]["nodeName"]),
            (pod["metadata"].get("labels") or {}).get(labels.RAY_NODE_TYPE) == "worker",
            _names((pod["metadata"].get("annotations") or {}).get(REAL_DEVICES)),
            frozenset(_sick(pod.get("status") or {})),
            placed_time(pod),
        )
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName")
    )


def _sick(status: Mapping[str, Any]) -> Iterator[str]:
    for container in status.get("containerStatuses") or ():
        for resource in container.get("allocatedResourcesStatus") or ():
            for device in resource.get("resources") or ():
                if device.get("health") == "Unhealthy":
                    yield str(device.get("resourceID"))


def _names(text: object) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip()) if isinstance(text, str) else frozenset()


def _read_device_info(manifest: Mapping[str, Any]) -> tuple[DeviceFault, ...] | None:
    """Read the plug-in's ConfigMap; what is not as MindCluster writes it is as if it were not there."""
    data = manifest.get("data") or {}
    try:
        devices = json.loads(data.get("DeviceInfoCfg", "{}")).get("DeviceInfo", {}).get("DeviceList", {})
        faults = [fault for key in sorted(devices) for fault in _listed_faults(key, devices)]
        faults += _switch_faults(json.loads(data.get("SwitchInfoCfg") or "{}"))
        faults += [DeviceFault(name, "ManuallySeparateNPU") for name in _names(data.get("ManuallySeparateNPU"))]
    except (ValueError, TypeError, AttributeError):
        return None
    # Of two words on a device the plug-in's own level says more than a list that it is in.
    levelled = {fault.device for fault in faults if fault.name not in (DEVICE_UNHEALTHY, NETWORK_UNHEALTHY)}
    vague = (DEVICE_UNHEALTHY, NETWORK_UNHEALTHY)
    kept = {fault for fault in faults if fault.name not in vague or fault.device not in levelled}
    return tuple(sorted(kept, key=lambda fault: (-CLASSES[fault.name].effect, fault))[:FAULTS_KEPT])


def _listed_faults(key: str, devices: Mapping[str, Any]) -> Iterator[DeviceFault]:
    if key.endswith("-Fault"):
        for entry in json.loads(devices[key] or "[]"):
            level = entry.get("fault_handling") or entry.get("fault_level")
            yield DeviceFault(str(entry.get("npu_name", "")), _class(level), str(entry.get("fault_code", "")))
    elif key.endswith("-NetworkUnhealthy"):
        yield from (DeviceFault(name, NETWORK_UNHEALTHY) for name in _names(devices[key]))
    elif key.endswith("-Unhealthy"):
        yield from (DeviceFault(name, DEVICE_UNHEALTHY) for name in _names(devices[key]))


def _switch_faults(switch: Mapping[str, Any]) -> Iterator[DeviceFault]:
    """Faults of the HCCS switch concern every device of its node."""
    if switch.get("NodeStatus", "Healthy") != "Healthy":
        codes = ",".join(str(code) for code in switch.get("FaultCode") or ())
        yield DeviceFault("", _class(switch.get("FaultLevel")), codes)


def class_of(name: str) -> FaultClass:
    """Give the row of a class; of one that another version of the operator knew, the worst."""
    return CLASSES.get(name, CLASSES[UNKNOWN])


def _class(level: object) -> str:
    return level if isinstance(level, str) and level in CLASSES else UNKNOWN


# Judging.


def node_faults_of(
    held: Iterable[Held], looks: Mapping[str, NodeLook], resource: str, devices_per_node: int
) -> tuple[NodeFault, ...]:
    """Say what is wrong with what a job holds, the worst first; nothing of nodes that were not read."""
    found = {
        node_fault
        for place in held
        if place.node in looks
        for node_fault in (
            *_of_node(looks[place.node]),
            *(_of_devices(place, looks[place.node], resource, devices_per_node) if place.works else ()),
        )
        if node_fault.row.effect > FaultEffect.NONE
    }
    return tuple(sorted(found, key=lambda t: (-t.row.effect, t.node, t.device, t.name)))


def node_faults(look: NodeLook, resource: str) -> tuple[NodeFault, ...]:
    """Say what keeps a node from being used again by whoever takes all of it."""
    offered, capacity = look.count(resource)
    return node_faults_of([Held(look.name, works=True)], {look.name: look}, resource, max(capacity, offered, 1))


def _of_node(look: NodeLook) -> Iterator[NodeFault]:
    if not look.ready:
        yield NodeFault(look.name, "", NODE_NOT_READY)
    if look.cordoned:
        yield NodeFault(look.name, "", NODE_CORDONED)


def _of_devices(place: Held, look: NodeLook, resource: str, count: int) -> Iterator[NodeFault]:
    offered, capacity = look.count(resource)
    whole = count >= capacity
    for fault in look.faults or ():
        # Where nobody says which devices a part of a node is, nothing can be said of it.
        if whole or not fault.device or fault.device in place.devices:
            yield NodeFault(look.name, fault.device, fault.name, _detail(fault.codes))
    lost = capacity - offered
    if lost <= 0 or look.faults:
        return
    if offered == 0 and capacity > 1:
        yield NodeFault(look.name, "", DEVICES_GONE, f"none of {capacity} devices is offered; is the plug-in there?")
    elif place.sick:
        yield from (NodeFault(look.name, device, DEVICE_UNHEALTHY) for device in place.sick)
    elif count + lost > capacity:
        yield NodeFault(look.name, "", DEVICE_UNHEALTHY, f"{lost} of {capacity} devices")


def _detail(codes: str) -> str:
    return f"codes {codes[:CODES_SHOWN]}" if codes else ""
