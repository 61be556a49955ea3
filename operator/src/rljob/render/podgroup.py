"""Volcano's PodGroup of one cluster generation, with which all of its pods start together or hold no NPUs.

It is created by POST before the RayCluster, owned by the RLJob and never written again. KubeRay's own plug-in for
Volcano (`--batch-scheduler=volcano`) must be off, because it would create another PodGroup and move the pods there.
Keys of Volcano: volcano.sh/apis v1.14.0 (pkg/apis/scheduling/v1beta1). Keys of Ascend's plug-in: mind-cluster 26.1.0,
component/ascend-for-volcano, which reads them from the PodGroup or from any pod, so all have the same.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from rljob.api.base import Json
from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import hardware, labels
from rljob.render.accelerators import facts_of
from rljob.render.metadata import child_metadata
from rljob.render.names import JobIdentity, cluster_name

API_VERSION = "scheduling.volcano.sh/v1beta1"
SCHEDULER = "volcano"
"""Volcano's default name; a podSpecPatch may set another."""
GROUP_NAME = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
HEAD_TASK = "head"
SUPER_POD_BLOCK = "sp-block"
"""Annotation: devices of one logical super-pod. The job's devices are a multiple of it."""
SUPER_POD_AFFINITY = "super-pod-affinity"
"""Label: `soft` allows blocks to be split if the cluster has no whole ones; without it they never are."""
TOPOLOGY = "networkTopology"
TIER_NAME = f"{TOPOLOGY}.highestTierName"
"""Fields of a PodGroup's spec that not every Volcano has: the first since 1.11, the second since 1.14."""
NEWEST_FIELDS = frozenset({TOPOLOGY, TIER_NAME})
_MODES = {"Required": "hard", "Preferred": "soft"}
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))

NOTHING = Fraction(0)
Amounts = dict[str, Fraction]


class Gang(enum.StrEnum):
    """The scheduler that starts all pods of a cluster together."""

    NONE = "None"
    VOLCANO = "Volcano"
    KUEUE = "Kueue"


def stated_gang(spec: RLJobSpec) -> Gang:
    """Return the scheduler that the spec states. For Auto, the core also considers whether the cluster has Volcano."""
    if spec.scheduling.gang == "Volcano":
        return Gang.VOLCANO
    return Gang.NONE if spec.scheduling.queue_name is None else Gang.KUEUE


def build_pod_group(
    job: JobIdentity, spec: RLJobSpec, generation: int, raycluster: Mapping[str, Any], fields: frozenset[str]
) -> Json:
    """Return the PodGroup of a rendered cluster; `fields` are those of its spec that the API server knows."""
    head, workers = _groups(raycluster)
    metadata = child_metadata(
        job, cluster_name(job, generation), f"cluster/{generation}", {labels.CLUSTER_GENERATION: str(generation)}
    )
    metadata["labels"] |= hardware.pod_labels(spec) | _block_labels(spec)
    metadata["annotations"] |= hardware.cluster_annotations(spec) | _block_annotations(spec)
    scheduling, topology = spec.scheduling, network_topology(spec, fields)
    members = [_requests(head), *(asked for group in workers for asked in [_requests(group)] * group["replicas"])]
    total = _plus(*members)
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {
            "minMember": len(members),
            "minResources": {name: _text(name, amount) for name, amount in total.items()},
            **({"queue": scheduling.queue_name} if scheduling.queue_name is not None else {}),
            **({"priorityClassName": scheduling.priority_class_name} if scheduling.priority_class_name else {}),
            **({TOPOLOGY: topology} if topology is not None else {}),
        },
    }


def join_pods(spec: RLJobSpec, raycluster: Json) -> None:
    """Make the pods of a rendered cluster members of its PodGroup."""
    name = raycluster["metadata"]["name"]
    if spec.scheduling.queue_name is not None:
        raycluster["metadata"]["labels"][labels.VOLCANO_QUEUE] = spec.scheduling.queue_name
    head, workers = _groups(raycluster)
    # Ascend's plug-in treats a task named `scheduler` specially, so user-defined names are prefixed.
    tasks = [(HEAD_TASK, head), *((f"workers-{group['groupName']}", group) for group in workers)]
    for task, group in tasks:
        template = group["template"]
        template["spec"].setdefault("schedulerName", SCHEDULER)
        template["metadata"]["labels"] |= _block_labels(spec)
        template["metadata"]["annotations"] |= _block_annotations(spec) | {GROUP_NAME: name, TASK: task}


def network_topology(spec: RLJobSpec, fields: frozenset[str]) -> Json | None:
    """Return the maximum distance of nodes in Volcano's HyperNodes; None if not requested or not supported.

    A level that is a number is a tier; any other is the name of a tier, which for HyperNodes that Volcano discovers by
    labels is the label's key (v1.14.1, pkg/controllers/hypernode/discovery/label).
    """
    level, mode = spec.scheduling.topology.level, _MODES[spec.scheduling.topology.mode]
    if level is None or TOPOLOGY not in fields:
        return None
    if level.isdecimal():
        return {"mode": mode, "highestTierAllowed": int(level)}
    return {"mode": mode, "highestTierName": level} if TIER_NAME in fields else None


def super_pod_block(spec: RLJobSpec) -> int | None:
    """Return the devices of a logical super-pod; None if not requested or the class has no super-pods."""
    nodes, policy = spec.scheduling.topology.nodes_per_super_pod_block, facts_of(spec).schedule_policy
    if nodes is None or policy is None or not policy.endswith("-sp"):
        return None
    return nodes * max(group.devices_per_node for group in spec.worker_groups)


def _block_annotations(spec: RLJobSpec) -> dict[str, str]:
    block = super_pod_block(spec)
    return {} if block is None else {SUPER_POD_BLOCK: str(block)}


def _block_labels(spec: RLJobSpec) -> dict[str, str]:
    soft = super_pod_block(spec) is not None and spec.scheduling.topology.mode == "Preferred"
    return {SUPER_POD_AFFINITY: "soft"} if soft else {}


def _groups(raycluster: Mapping[str, Any]) -> tuple[Json, list[Json]]:
    return raycluster["spec"]["headGroupSpec"], raycluster["spec"]["workerGroupSpecs"]


def _requests(group: Json) -> Amounts:
    """Sum up a pod's requests as the scheduler does: the running containers, or the init containers if they need more.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    pod = group["template"]["spec"]
    sidecars, start = Amounts(), Amounts()
    for container in pod.get("initContainers") or ():
        asked = _asked(container)
        start = _most(start, _plus(sidecars, asked))
        if container.get("restartPolicy") == "Always":
            sidecars = _plus(sidecars, asked)
    return _most(start, _plus(sidecars, *map(_asked, pod["containers"])))


def _asked(container: Mapping[str, Any]) -> Amounts:
    given = container.get("resources") or {}
    # A limit without a request is also the request, as everywhere in Kubernetes.
    amounts = (given.get("limits") or {}) | (given.get("requests") or {})
    return {name: quantity(str(amount)) for name, amount in amounts.items()}


def _plus(*parts: Amounts) -> Amounts:
    return {name: sum((part.get(name, NOTHING) for part in parts), NOTHING) for name in _names(parts)}


def _most(*parts: Amounts) -> Amounts:
    return {name: max(part.get(name, NOTHING) for part in parts) for name in _names(parts)}


def _names(parts: Iterable[Amounts]) -> list[str]:
    return sorted({name for part in parts for name in part})


def _text(name: str, amount: Fraction) -> str:
    """Format a quantity in a common unit."""
    if name == "cpu" and amount.denominator != 1:
        return f"{math.ceil(amount * 1000)}m"
    whole = math.ceil(amount)
    unit, size = next(((unit, size) for unit, size in _BINARY if whole and whole % size == 0), ("", 1))
    return f"{whole // size}{unit}"
