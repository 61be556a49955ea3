"""Placement of pods beyond their class: nodes to avoid, and one domain for all pods if no queue places them."""

from __future__ import annotations

from typing import Any

from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.render import labels, roles
from rljob.render.accelerators import facts_of
from rljob.render.hardware import WISH_WEIGHT, require_nodes
from rljob.render.topology import level_of


def avoid_nodes(pod: dict[str, Any], names: tuple[str, ...]) -> None:
    """Add nodes to avoid to a pod's spec; each alternative of a node affinity gets the exception."""
    if not names:
        return
    require_nodes(pod, [{"key": labels.HOSTNAME, "operator": "NotIn", "values": sorted(names)}])


def domain_of(spec: RLJobSpec, group: WorkerGroup) -> str | None:
    """Return the label of the domain into which Kubernetes' scheduler should place a group's workers, or None.

    The scheduler has no notion of blocks, but one block with the whole group is a domain.
    """
    return facts_of(spec).super_pod_label if _is_one_block(spec, group) else level_of(spec)


def _is_one_block(spec: RLJobSpec, group: WorkerGroup) -> bool:
    topology = spec.scheduling.topology
    return topology.level is None and topology.nodes_per_super_pod_block == group.nodes


def requires_domain(spec: RLJobSpec) -> bool:
    """Return whether workers wait rather than spread over several domains."""
    named = any(domain_of(spec, group) is not None for group in spec.worker_groups)
    return spec.scheduling.topology.mode == "Required" and named


def keep_together(spec: RLJobSpec, group: WorkerGroup, pod: dict[str, Any], cluster: str) -> None:
    """Schedule the workers of a cluster into one topology domain, that of the first scheduled worker.

    Groups that are a block each may be in different super-pods.
    """
    level = domain_of(spec, group)
    if level is None:
        return
    others = {labels.RAY_CLUSTER: cluster, labels.RAY_NODE_TYPE: "worker"}
    if _is_one_block(spec, group):
        others |= roles.pod_labels(spec, group)
    term: dict[str, Any] = {"labelSelector": {"matchLabels": others}, "topologyKey": level}
    kind, entry = "requiredDuringSchedulingIgnoredDuringExecution", term
    if not requires_domain(spec):
        kind, entry = (
            "preferredDuringSchedulingIgnoredDuringExecution",
            {"weight": WISH_WEIGHT, "podAffinityTerm": term},
        )
    affinity = dict(pod.get("affinity") or {})
    near = dict(affinity.get("podAffinity") or {})
    near[kind] = [*(near.get(kind) or ()), entry]
    pod["affinity"] = {**affinity, "podAffinity": near}
