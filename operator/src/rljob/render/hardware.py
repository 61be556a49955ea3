"""What the accelerator table adds to pods: size, driver mounts, marks for schedulers and node requirements.

Everything comes from the row of the job's class and from the fields that override it; the code contains no hardware. A
worker on an NPU class is Guaranteed (requests equal limits, whole cores), because only then the kubelet's static CPU
manager gives it exclusive cores: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
"""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.accelerators import AcceleratorFacts, DriverMounts, HostPath, HostPathUse, PodSize
from rljob.api.base import Json
from rljob.api.pods import PodTemplate
from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.render.accelerators import facts_of

DRIVER_VOLUME = "rljob-driver"
MEBIBYTE = 2**20
WISH_WEIGHT = 100
"""Weight from 1 to 100, which a scheduler compares with how empty a node is."""
SCHEDULE_POLICY = "huawei.com/schedule_policy"
"""Annotation of Ascend-for-Volcano. From 26.1 on, it is read from plain pods and from the PodGroup."""


def sized(spec: RLJobSpec, group: WorkerGroup) -> PodTemplate:
    """Return the template of a group's pods, completed by the class's size.

    If the user sets only memory, the class's /dev/shm might exceed it; it is then left to Ray's default.
    """
    facts, template, devices = facts_of(spec), group.template, group.devices_per_node
    if facts.pod is None:
        return template
    size = facts.pod if devices >= facts.devices_per_node else _part(facts.pod, devices, facts.devices_per_node)
    own = {"cpu": template.cpu or size.cpu}
    if template.memory is None and template.shared_memory is None:
        own |= {"memory": size.memory, "shared_memory": size.shared_memory}
    elif template.memory is None:
        own |= {"memory": size.memory}
    return template.model_copy(update=own)


def _part(size: PodSize, devices: int, of: int) -> PodSize:
    """Return the share of a pod that uses some of a node's devices."""
    memory, shared = (int(quantity(text) * devices / of / MEBIBYTE) for text in (size.memory, size.shared_memory))
    cores = int(quantity(size.cpu)) // of * devices
    return PodSize(cpu=str(cores), memory=f"{memory}Mi", shared_memory=f"{shared}Mi")


def driver_mounts(spec: RLJobSpec) -> DriverMounts:
    """Return how the node's driver is made available in worker pods."""
    asked, facts = spec.accelerator.driver_mounts, facts_of(spec)
    if not facts.is_npu:
        return DriverMounts.NONE
    if asked != "Auto":
        return DriverMounts(asked)
    return DriverMounts.RUNTIME_CLASS if spec.runtime.runtime_class_name is not None else facts.driver_mounts


def runtime_class(spec: RLJobSpec) -> str | None:
    """Return the RuntimeClass of worker pods. The head holds no NPU and needs none."""
    if spec.runtime.runtime_class_name is not None:
        return spec.runtime.runtime_class_name
    return facts_of(spec).runtime_class_name if driver_mounts(spec) is DriverMounts.RUNTIME_CLASS else None


def driver_paths(spec: RLJobSpec, taken: frozenset[str] = frozenset()) -> list[HostPath]:
    """Return the paths of the node that worker pods mount, except those that the user mounts."""
    mode = driver_mounts(spec)
    if mode is DriverMounts.NONE:
        return []
    several = spec.nodes > 1
    unused = {
        HostPathUse.WITHOUT_RUNTIME: mode is DriverMounts.RUNTIME_CLASS,
        HostPathUse.SEVERAL_NODES: not several,
    }
    return [path for path in facts_of(spec).host_paths if not unused.get(path.use) and path.path not in taken]


def driver_volumes(paths: list[HostPath]) -> list[Json]:
    """Return the volumes of these paths."""
    return [
        {"name": f"{DRIVER_VOLUME}-{number}", "hostPath": {"path": path.path, "type": path.type}}
        for number, path in enumerate(paths)
    ]


def driver_volume_mounts(paths: list[HostPath]) -> list[Json]:
    """Return the read-only mounts of these paths, at the same paths."""
    return [
        {"name": f"{DRIVER_VOLUME}-{number}", "mountPath": path.path, "readOnly": True}
        for number, path in enumerate(paths)
    ]


def cluster_annotations(spec: RLJobSpec) -> dict[str, str]:
    """Return the annotations of the RayCluster and of every pod.

    KubeRay's Volcano plug-in copies those of the RayCluster to the PodGroup.
    """
    facts = facts_of(spec)
    policy = {SCHEDULE_POLICY: facts.schedule_policy} if facts.schedule_policy else {}
    return policy | facts.annotations


def pod_labels(spec: RLJobSpec) -> dict[str, str]:
    """Return the labels of every Ray pod.

    They are equal on all pods, because the scheduler reads them from any of them.
    """
    return dict(facts_of(spec).labels)


def head_annotations(spec: RLJobSpec) -> dict[str, str]:
    """Return the annotations of the head pod."""
    return cluster_annotations(spec) | facts_of(spec).head_annotations


def require_class(spec: RLJobSpec, pod: Json) -> None:
    """Restrict a worker pod to nodes of its class, unless the user's node selector contains the class's label."""
    require_nodes_of(facts_of(spec), pod)


def require_nodes_of(facts: AcceleratorFacts, pod: Json) -> None:
    """Restrict a pod to nodes of a class, except for labels that its node selector contains."""
    chosen = pod.get("nodeSelector") or {}
    wanted = [_expression(name, values) for name, values in facts.node_labels.items() if name not in chosen]
    if wanted:
        require_nodes(pod, wanted)


def require_nodes(pod: Json, expressions: list[Json]) -> None:
    """Add requirements on a pod's node. Terms are alternatives, so each gets the addition."""
    affinity = dict(pod.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *expressions]} for term in terms
    ]
    pod["affinity"] = {**affinity, "nodeAffinity": {**node, "requiredDuringSchedulingIgnoredDuringExecution": required}}


def spare_npu_nodes(spec: RLJobSpec, pod: Json) -> None:
    """Prefer a node of no NPU class for a head, because a worker that needs a whole node would lack the head's cores.

    This is only a preference: if every node has NPUs, the head uses one of them.
    """
    if not facts_of(spec).is_npu:
        return
    affinity = dict(pod.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    wish = {"weight": WISH_WEIGHT, "preference": {"matchExpressions": _of_no_class(spec.accelerator.table)}}
    wishes = node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    node["preferredDuringSchedulingIgnoredDuringExecution"] = [*wishes, wish]
    pod["affinity"] = {**affinity, "nodeAffinity": node}


def _of_no_class(accelerators: Mapping[str, AcceleratorFacts]) -> list[Json]:
    """Return expressions that match nodes of no NPU class; NotIn also matches nodes without the label."""
    known: dict[str, set[str]] = {}
    any_value = set()
    for row in accelerators.values():
        for label, values in row.node_labels.items() if row.is_npu else ():
            known.setdefault(label, set()).update(values)
            if not values:
                any_value.add(label)
    return [
        {"key": label, "operator": "DoesNotExist"}
        if label in any_value
        else {"key": label, "operator": "NotIn", "values": sorted(values)}
        for label, values in sorted(known.items())
    ]


def _expression(label: str, values: list[str]) -> Json:
    return {"key": label, "operator": "In", "values": list(values)} if values else {"key": label, "operator": "Exists"}


def guarantee(facts: AcceleratorFacts, containers: list[Json]) -> None:
    """Set the limits of the operator's own containers to their requests, so that the pod is Guaranteed.

    This precedes the defaults of `render.resources`, which a node with NPUs should not reserve.
    """
    if not facts.is_npu:
        return
    for container in containers:
        given = container["resources"]
        for name in ("cpu", "memory"):
            amount = given["limits"].get(name) or given["requests"].get(name)
            if amount is not None:
                given["requests"][name] = given["limits"][name] = amount
