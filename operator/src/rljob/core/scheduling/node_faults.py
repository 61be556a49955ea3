"""Faults of the nodes that a job holds, from the nodes and from MindCluster's ConfigMaps about them.

Kubernetes alone reports how many devices of a node are healthy, and with newer kubelets which devices of a pod are not.
The ConfigMap of Ascend's device plug-in reports which device is faulty, how severely, and whether a run may continue;
that of NodeD reports faults of the machine itself, such as its processors, memory, disks and power supplies, and one
of ClusterD the public faults, which other systems have reported to it.
One table states what each class of fault means for a job; an unknown class counts as the worst, as unknown fault codes
do in the plug-in.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rljob.core.reasons import Reason
from rljob.core.scheduling.scheduled import placed_time
from rljob.core.scheduling.worker_sizes import WorkerSizes, group_of
from rljob.render import labels
from rljob_runtime.contract import parse_foreign_json

DEVICE_INFO_NAMESPACE = "kube-system"
DEVICE_INFO_PREFIX = "mindx-dl-deviceinfo-"
"""Namespace of the plug-in's ConfigMaps, and the prefix of their names before the node's: MindCluster v26.1.0,
component/ascend-device-plugin."""
NODE_INFO_NAMESPACE = "mindx-dl"
NODE_INFO_PREFIX = "mindx-dl-nodeinfo-"
"""The same of NodeD, whose ConfigMap exists only while the node has a fault: MindCluster v26.1.0 (22bb3d98),
component/noded/pkg/common/constants.go:24, component/noded/pkg/reporter/cmreporter/configmap_reporter.go:68-118."""
PUBLIC_FAULTS_NAMESPACE = "cluster-system"
PUBLIC_FAULTS = "statistic-fault-info"
"""ClusterD's ConfigMap of the public faults of all nodes: MindCluster v26.1.0 (22bb3d98),
component/clusterd/pkg/domain/statistics/fault.go:19-44. Above 4,500 faults, ClusterD no longer updates it."""
DEVICE_NAME = "Ascend910-{}"
"""Name of a device by its id (component/clusterd, pub_fault_processor.go, convertNPUIdsToName)."""
REAL_DEVICES = "huawei.com/AscendReal"
"""Annotation with the devices that a pod actually has; the same plug-in writes it, also without Volcano."""
NOT_READY_TAINTS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints of the node controller: https://kubernetes.io/docs/reference/labels-annotations-taints/"""
FAULTS_KEPT = 32
"""Most devices of a node that are read: twice those of the largest node."""
CODES_SHOWN = 80
SHOWN = 4
"""Faults that a message lists."""


class FaultEffect(enum.IntEnum):
    """What a fault means for the job that holds the device; higher is worse."""

    NONE = 0
    """No effect: the device works."""
    REPORTS = 1
    """Condition Degraded; the run continues."""
    AVOIDS = 2
    """The same; if the run fails, the next cluster generation avoids the node."""
    RESTARTS = 3
    """The run saves and restarts, on the same node if it is offered again."""
    EXCLUDES = 4
    """The run saves and restarts on other nodes."""


@dataclass(frozen=True)
class FaultClass:
    """One class of faults."""

    effect: FaultEffect
    reason: Reason
    source: str
    wait_seconds: int = 0
    """How long it must last before a run is stopped because of it."""


_LEVELS = "MindCluster v26.1.0: component/ascend-device-plugin, faultCode.json and its handling of levels"
_SWITCH = "MindCluster v26.1.0: SwitchFaultCode.json; SwitchInfoCfg of the ConfigMap"
_NODED = "MindCluster v26.1.0: component/noded/pkg/common/constants.go:63-70, NodeDConfiguration.json"
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
    "SubHealthFault": FaultClass(FaultEffect.REPORTS, Reason.SUB_HEALTHY, _LEVELS),
    # No new pod gets the device, and a running pod may run to its end.
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
    # Reported by the kubelet alone; an update of the plug-in must not end a run.
    DEVICE_UNHEALTHY: FaultClass(FaultEffect.EXCLUDES, Reason.DEVICE_FAULT, f"{_KUBELET}; {_SILENCE}", 60),
    # Without the plug-in the kubelet reports every device as unhealthy, but a running pod does not need the plug-in.
    DEVICES_GONE: FaultClass(FaultEffect.AVOIDS, Reason.DEVICES_GONE, _KUBELET),
    # Link failures are PreSeparateNPU by default.
    NETWORK_UNHEALTHY: FaultClass(FaultEffect.AVOIDS, Reason.SUB_HEALTHY, _LEVELS),
    NODE_NOT_READY: FaultClass(FaultEffect.AVOIDS, Reason.NODE_NOT_READY, _NODES),
    NODE_CORDONED: FaultClass(FaultEffect.REPORTS, Reason.NODE_CORDONED, _NODES),
}
"""Names that a rule of restart.rules may use in onFault."""


@dataclass(frozen=True, order=True)
class DeviceFault:
    """A fault that the plug-in reports of a device, or of the whole node where `device` is empty."""

    device: str
    name: str
    """Class of CLASSES."""
    codes: str = ""
    since: str = ""
    """When the first of the codes occurred, in UTC, if the plug-in reports it."""


@dataclass(frozen=True)
class NodeLook:
    """A node as last read."""

    name: str
    ready: bool = True
    cordoned: bool = False
    offered: Mapping[str, int] | None = None
    """Allocatable devices by resource; None if there are none."""
    capacity: Mapping[str, int] | None = None
    faults: tuple[DeviceFault, ...] | None = None
    """None where the plug-in's ConfigMap does not exist or cannot be read."""
    reported: tuple[DeviceFault, ...] = ()
    """What NodeD and ClusterD report."""

    def count(self, resource: str) -> tuple[int, int]:
        """Return allocatable devices and capacity."""
        return (self.offered or {}).get(resource, 0), (self.capacity or {}).get(resource, 0)


@dataclass(frozen=True)
class Held:
    """A node on which a job has a pod."""

    node: str
    works: bool
    """Whether the pod has devices; the head has none."""
    devices: frozenset[str] = frozenset()
    """Names of the devices; empty where nothing reports them."""
    sick: frozenset[str] = frozenset()
    """Devices among them that the kubelet reports as unhealthy."""
    since: datetime | None = None
    """When the pod got the node; None where nothing reports it."""
    group: str = ""
    """Worker group of the pod; empty where nothing reports it."""


@dataclass(frozen=True)
class NodeFault:
    """A fault of a node or a device that a job holds."""

    node: str
    device: str
    name: str
    """Class of CLASSES."""
    detail: str = ""

    @property
    def row(self) -> FaultClass:
        """The effect on the job."""
        return class_of(self.name)

    def __str__(self) -> str:
        """Return the text for users, the device first."""
        place = f"{self.device} of node {self.node}" if self.device else f"node {self.node}"
        return f"{place}: {self.name}" + (f" ({self.detail})" if self.detail else "")


def listed(node_faults: Iterable[NodeFault]) -> str:
    """Return the text of the worst faults."""
    found = [str(node_fault) for node_fault in node_faults]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


# Reading.


def read_node(
    name: str,
    node: Mapping[str, Any],
    device_info: Mapping[str, Any] | None,
    node_info: Mapping[str, Any] | None,
    public: tuple[DeviceFault, ...],
    resources: Iterable[str],
) -> NodeLook:
    """Return the relevant part of a node and of its ConfigMaps, if it has them."""
    spec, state, wanted = node.get("spec") or {}, node.get("status") or {}, tuple(resources)
    return NodeLook(
        name,
        ready=is_ready(spec),
        cordoned=spec.get("unschedulable") is True,
        offered=counts(state.get("allocatable"), wanted),
        capacity=counts(state.get("capacity"), wanted),
        faults=None if device_info is None else _read_device_info(device_info),
        reported=(*(() if node_info is None else _read_node_info(node_info)), *public),
    )


def is_ready(spec: Mapping[str, Any]) -> bool:
    """Report whether the node controller can reach the node; it sets its taints at the first doubt."""
    return not any(taint.get("key") in NOT_READY_TAINTS for taint in spec.get("taints") or ())


def counts(amounts: Mapping[str, Any] | None, resources: Iterable[str]) -> dict[str, int]:
    """Return whole devices by resource."""
    found = amounts or {}
    return {name: int(text) for name in resources if (text := str(found.get(name, ""))).isdecimal()}


def read_held(pods: Iterable[Mapping[str, Any]]) -> tuple[Held, ...]:
    """Return the nodes and devices of a RayCluster's pods; pods without a node are left out."""
    return tuple(
        Held(
            str(pod["spec"]["nodeName"]),
            (pod["metadata"].get("labels") or {}).get(labels.RAY_NODE_TYPE) == "worker",
            _names((pod["metadata"].get("annotations") or {}).get(REAL_DEVICES)),
            frozenset(_sick(pod.get("status") or {})),
            placed_time(pod),
            group_of(pod),
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
    """Parse the plug-in's ConfigMap; content in another format is ignored."""
    data = manifest.get("data") or {}
    try:
        devices = parse_foreign_json(data.get("DeviceInfoCfg", "{}")).get("DeviceInfo", {}).get("DeviceList", {})
        faults = [fault for key in sorted(devices) for fault in _listed_faults(key, devices)]
        faults += _switch_faults(parse_foreign_json(data.get("SwitchInfoCfg") or "{}"))
        faults += [DeviceFault(name, "ManuallySeparateNPU") for name in _names(data.get("ManuallySeparateNPU"))]
    except (ValueError, TypeError, AttributeError):
        return None
    # The plug-in's level of a device is more specific than a list that contains the device.
    levelled = {fault.device for fault in faults if fault.name not in (DEVICE_UNHEALTHY, NETWORK_UNHEALTHY)}
    vague = (DEVICE_UNHEALTHY, NETWORK_UNHEALTHY)
    return _worst(fault for fault in faults if fault.name not in vague or fault.device not in levelled)


def _worst(faults: Iterable[DeviceFault]) -> tuple[DeviceFault, ...]:
    return tuple(sorted(set(faults), key=lambda fault: (-CLASSES[fault.name].effect, fault))[:FAULTS_KEPT])


def _read_node_info(manifest: Mapping[str, Any]) -> tuple[DeviceFault, ...]:
    """Parse NodeD's ConfigMap (component/noded/pkg/common/type.go:50-79); content in another format is ignored."""
    try:
        info = parse_foreign_json((manifest.get("data") or {}).get("NodeInfo") or "{}").get("NodeInfo") or {}
        return _worst(_each(info.get("FaultDevList"), _machine_faults))
    except (ValueError, AttributeError):
        return ()


def _machine_faults(part: Mapping[str, Any]) -> Iterator[DeviceFault]:
    codes = ",".join(map(str, part["FaultCode"]))
    yield DeviceFault(
        "", _class(part.get("FaultLevel")), f"{codes} of {part.get('DeviceType', '')} {part.get('DeviceId', '')}"
    )


def read_public_faults(manifest: Mapping[str, Any]) -> dict[str, tuple[DeviceFault, ...]]:
    """Return the public faults by node.

    component/clusterd/pkg/common/constant/type.go:513-522; times are in seconds
    (application/publicfault/fault_collector.go:80).
    """
    try:
        nodes = parse_foreign_json((manifest.get("data") or {}).get("PublicFaults") or "{}")
        return {name: _worst(_each(entries, _public_faults)) for name, entries in nodes.items()}
    except (ValueError, AttributeError):
        return {}


def _each(entries: object, read: Callable[[Any], Iterator[DeviceFault]]) -> Iterator[DeviceFault]:
    """Yield the faults of each entry. One in another format must not hide the others."""
    for entry in entries if isinstance(entries, list) else ():
        with contextlib.suppress(TypeError, AttributeError, KeyError):
            yield from tuple(read(entry))


def _public_faults(entry: Mapping[str, Any]) -> Iterator[DeviceFault]:
    level, code, time = _class(entry.get("level")), str(entry.get("faultCode", "")), entry.get("faultTime")
    since = _since({code: {"fault_time": time * 1000 if isinstance(time, int) else None}})
    for device in [DEVICE_NAME.format(number) for number in entry.get("devIds") or ()] or [""]:
        yield DeviceFault(device, level, code, since)


def _listed_faults(key: str, devices: Mapping[str, Any]) -> Iterator[DeviceFault]:
    if key.endswith("-Fault"):
        for entry in parse_foreign_json(devices[key] or "[]"):
            level = entry.get("fault_handling") or entry.get("fault_level")
            since = _since(entry.get("fault_time_and_level_map"))
            yield DeviceFault(str(entry.get("npu_name", "")), _class(level), str(entry.get("fault_code", "")), since)
    elif key.endswith("-NetworkUnhealthy"):
        yield from (DeviceFault(name, NETWORK_UNHEALTHY) for name in _names(devices[key]))
    elif key.endswith("-Unhealthy"):
        yield from (DeviceFault(name, DEVICE_UNHEALTHY) for name in _names(devices[key]))


def _switch_faults(switch: Mapping[str, Any]) -> Iterator[DeviceFault]:
    """Return faults of the HCCS switch, which concern every device of its node."""
    if switch.get("NodeStatus", "Healthy") != "Healthy":
        codes = ",".join(str(code) for code in switch.get("FaultCode") or ())
        yield DeviceFault("", _class(switch.get("FaultLevel")), codes, _since(switch.get("FaultTimeAndLevelMap")))


def _since(times_by_code: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return the earliest time, which the plug-in writes in milliseconds.

    component/ascend-device-plugin/pkg/common/proto.go:222-236, device.go:121-145.
    """
    found = [entry.get("fault_time") for entry in (times_by_code or {}).values()]
    known = [time for time in found if isinstance(time, int) and time > 0]
    try:
        return f"{datetime.fromtimestamp(min(known) / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if known else ""
    except (ValueError, OverflowError, OSError):  # No time of a calendar; the fault itself counts.
        return ""


def class_of(name: str) -> FaultClass:
    """Return the row of a class; for a class that only another version knows, the worst one."""
    return CLASSES.get(name, CLASSES[UNKNOWN])


def _class(level: object) -> str:
    return level if isinstance(level, str) and level in CLASSES else UNKNOWN


# Judging.


def node_faults_of(
    held: Iterable[Held], looks: Mapping[str, NodeLook], resource: str, sizes: WorkerSizes
) -> tuple[NodeFault, ...]:
    """Return the faults of what a job holds, the worst first; nodes that were not read are left out."""
    found = {
        node_fault
        for place in held
        if place.node in looks
        for node_fault in (
            *_of_node(looks[place.node]),
            *_reported(place, looks[place.node], resource, sizes.of(place.group)),
            *(_of_devices(place, looks[place.node], resource, sizes.of(place.group)) if place.works else ()),
        )
        if node_fault.row.effect > FaultEffect.NONE
    }
    return tuple(sorted(found, key=lambda t: (-t.row.effect, t.node, t.device, t.name)))


def node_faults(look: NodeLook, resource: str) -> tuple[NodeFault, ...]:
    """Return the faults that keep a whole node from being used again."""
    offered, capacity = look.count(resource)
    whole = WorkerSizes({"": max(capacity, offered, 1)})
    return node_faults_of([Held(look.name, works=True)], {look.name: look}, resource, whole)


def _of_node(look: NodeLook) -> Iterator[NodeFault]:
    if not look.ready:
        yield NodeFault(look.name, "", NODE_NOT_READY)
    if look.cordoned:
        yield NodeFault(look.name, "", NODE_CORDONED)


def _reported(place: Held, look: NodeLook, resource: str, count: int) -> Iterator[NodeFault]:
    """Return the reported faults of the node itself, and of devices that a worker may hold."""
    whole = place.works and count >= look.count(resource)[1]
    for fault in look.reported:
        if whole or not fault.device or fault.device in place.devices:
            yield NodeFault(look.name, fault.device, fault.name, _detail(fault))


def _of_devices(place: Held, look: NodeLook, resource: str, count: int) -> Iterator[NodeFault]:
    offered, capacity = look.count(resource)
    whole = count >= capacity
    for fault in look.faults or ():
        # Without the names of the devices, nothing is known about a part of a node.
        if whole or not fault.device or fault.device in place.devices:
            yield NodeFault(look.name, fault.device, fault.name, _detail(fault))
    lost = capacity - offered
    if lost <= 0 or look.faults:
        return
    if offered == 0 and capacity > 1:
        yield NodeFault(
            look.name, "", DEVICES_GONE, f"none of {capacity} devices is allocatable; is the device plug-in running?"
        )
    elif place.sick:
        yield from (NodeFault(look.name, device, DEVICE_UNHEALTHY) for device in place.sick)
    elif count + lost > capacity:
        yield NodeFault(look.name, "", DEVICE_UNHEALTHY, f"{lost} of {capacity} devices")


def _detail(fault: DeviceFault) -> str:
    parts = (f"codes {fault.codes[:CODES_SHOWN]}" if fault.codes else "", f"since {fault.since}" if fault.since else "")
    return " ".join(part for part in parts if part)
