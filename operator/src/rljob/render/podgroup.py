"""Volcano's PodGroup of one cluster generation, and what makes its pods members: all of them start, or none holds NPUs.

Made by POST before the RayCluster, owned by the RLJob, never written again. KubeRay's own plug-in for Volcano
(`--batch-scheduler=volcano`) would make another one and move the pods there; it has to be off, and nothing here asks
for it. Keys of Volcano: volcano.sh/apis v1.14.0 (pkg/apis/scheduling/v1beta1). Keys of Ascend's plug-in: mind-cluster
26.1.0, component/ascend-for-volcano, which reads them from the PodGroup or from any one of the pods: the same on all.
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
"""Volcano's default name; a podSpecPatch may name another."""
GROUP_NAME = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
HEAD_TASK = "head"
SUPER_POD_BLOCK = "sp-block"
"""Annotation: devices of one logical super-pod; the job's devices are a multiple of it."""
SUPER_POD_AFFINITY = "super-pod-affinity"
"""Label: `soft` lets the blocks be broken up where the cluster has no whole ones; without it they never are."""
TOPOLOGY = "networkTopology"
TIER_NAME = f"{TOPOLOGY}.highestTierName"
"""Fields of a PodGroup's spec that not every Volcano has: the first since 1.11, the second since 1.14."""
NEWEST_FIELDS = frozenset({TOPOLOGY, TIER_NAME})
_MODES = {"Required": "hard", "Preferred": "soft"}
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))

NOTHING = Fraction(0)
Amounts = dict[str, Fraction]


class Gang(enum.StrEnum):
    """Who starts all pods of a cluster or none."""

    NONE = "None"
    VOLCANO = "Volcano"
    KUEUE = "Kueue"


def stated_gang(spec: RLJobSpec) -> Gang:
    """Say who it is by the spec alone; Auto may find Volcano in the cluster, which is the core's to decide."""
    if spec.scheduling.gang == "Volcano":
        return Gang.VOLCANO
    return Gang.NONE if spec.scheduling.queue_name is None else Gang.KUEUE


def build_pod_group(
    job: JobIdentity, spec: RLJobSpec, generation: int, raycluster: Mapping[str, Any], fields: frozenset[str]
) -> Json:
    """Give the PodGroup of a rendered cluster; `fields` are those of its spec that the API server knows."""
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
    # Ascend's plug-in gives a task named `scheduler` a meaning of its own, so no user's name stands alone here.
    tasks = [(HEAD_TASK, head), *((f"workers-{group['groupName']}", group) for group in workers)]
    for task, group in tasks:
        template = group["template"]
        template["spec"].setdefault("schedulerName", SCHEDULER)
        template["metadata"]["labels"] |= _block_labels(spec)
        template["metadata"]["annotations"] |= _block_annotations(spec) | {GROUP_NAME: name, TASK: task}


def network_topology(spec: RLJobSpec, fields: frozenset[str]) -> Json | None:
    """Give how far apart the nodes may be by Volcano's HyperNodes; None: not asked for, or this Volcano cannot say it.

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
    """Give the devices of a logical super-pod; None: not asked for, or the class is in none."""
    nodes, policy = spec.scheduling.topology.nodes_per_super_pod_block, facts_of(spec).schedule_policy
    if nodes is None or policy is None or not policy.endswith("-sp"):
        return None
    return nodes * spec.worker_groups[0].devices_per_node


def _block_annotations(spec: RLJobSpec) -> dict[str, str]:
    block = super_pod_block(spec)
    return {} if block is None else {SUPER_POD_BLOCK: str(block)}


def _block_labels(spec: RLJobSpec) -> dict[str, str]:
    soft = super_pod_block(spec) is not None and spec.scheduling.topology.mode == "Preferred"
    return {SUPER_POD_AFFINITY: "soft"} if soft else {}


def _groups(raycluster: Mapping[str, Any]) -> tuple[Json, list[Json]]:
    return raycluster["spec"]["headGroupSpec"], raycluster["spec"]["workerGroupSpecs"]


def _requests(group: Json) -> Amounts:
    """Sum what a pod asks for, as the scheduler does: what runs side by side, or what its start takes if that is more.

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
    # A limit without a request is both, as everywhere in Kubernetes.
    amounts = (given.get("limits") or {}) | (given.get("requests") or {})
    return {name: quantity(str(amount)) for name, amount in amounts.items()}


def _plus(*parts: Amounts) -> Amounts:
    return {name: sum((part.get(name, NOTHING) for part in parts), NOTHING) for name in _names(parts)}


def _most(*parts: Amounts) -> Amounts:
    return {name: max(part.get(name, NOTHING) for part in parts) for name in _names(parts)}


def _names(parts: Iterable[Amounts]) -> list[str]:
    return sorted({name for part in parts for name in part})


def _text(name: str, amount: Fraction) -> str:
    """Write a quantity in the unit that people use for it."""
    if name == "cpu" and amount.denominator != 1:
        return f"{math.ceil(amount * 1000)}m"
    whole = math.ceil(amount)
    unit, size = next(((unit, size) for unit, size in _BINARY if whole and whole % size == 0), ("", 1))
    return f"{whole // size}{unit}"
