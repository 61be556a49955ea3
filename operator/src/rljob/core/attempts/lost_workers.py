"""Which workers of a running cluster are gone, are leaving or were replaced, by a LIST of its pods.

KubeRay replaces a worker pod that is gone or has ended in the same RayCluster (v1.6.2, reconcilePods in
ray-operator/controllers/ray/raycluster_controller.go). A loss is seen as long as the replacement has not started Ray; a
later look leaves it to Ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rljob.api.v1alpha1 import RLJobSpec, Role
from rljob.core.manifest_facts import is_deleted, pod_is_ready, wanted_workers
from rljob.core.observed import PODS_LISTED_MAX, Manifest
from rljob.core.scheduling.worker_sizes import group_of
from rljob.render.labels import RAY_NODE_TYPE

RAY_WORKER = "ray-worker"


def are_all_seen(cluster: Manifest) -> bool:
    """Report whether one LIST shows all pods of a cluster, and those that replace some."""
    return 2 * wanted_workers(cluster) < PODS_LISTED_MAX


def lost_workers(cluster: Manifest, pods: Iterable[Manifest], spec: RLJobSpec) -> int:
    """Return how many workers without which a run cannot continue have no running Ray.

    A run continues without workers that only generate: its lost replicas are replaced.
    """
    running = Counter(group_of(pod) for pod in _workers(pods) if _runs_ray(pod))
    spared, groups = _spared(spec), cluster["spec"].get("workerGroupSpecs") or ()
    return sum(
        max(int(group.get("replicas", 0)) - running[group["groupName"]], 0)
        for group in groups
        if group["groupName"] not in spared
    )


def leave(pods: Iterable[Manifest], spec: RLJobSpec) -> bool:
    """Report whether such a worker is being deleted: it stays Ready for as long as its hook lets the run save."""
    return any(map(is_deleted, _needed(pods, spec)))


def is_younger(pods: Iterable[Manifest], spec: RLJobSpec, than: str) -> bool:
    """Report whether such a worker was created after that time, RFC 3339: it has replaced another one."""
    return any(str(pod["metadata"].get("creationTimestamp", "")) > than for pod in _needed(pods, spec))


def are_replaced(cluster: Manifest, pods: Iterable[Manifest]) -> bool:
    """Report whether all workers of a cluster are ready, and none of them is being deleted."""
    ready = [pod for pod in _workers(pods) if pod_is_ready(pod) and not is_deleted(pod)]
    return len(ready) >= wanted_workers(cluster)


def _spared(spec: RLJobSpec) -> set[str]:
    return {group.name for group in spec.worker_groups if set(group.roles) == {Role.ROLLOUT}}


def _needed(pods: Iterable[Manifest], spec: RLJobSpec) -> list[Manifest]:
    spared = _spared(spec)
    return [pod for pod in _workers(pods) if group_of(pod) not in spared]


def _workers(pods: Iterable[Manifest]) -> list[Manifest]:
    return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(RAY_NODE_TYPE) == "worker"]


def _runs_ray(pod: Manifest) -> bool:
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(each["name"] == RAY_WORKER and "running" in (each.get("state") or {}) for each in found)
