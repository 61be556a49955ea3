"""Facts read from the watched manifests of an RLJob, its RayCluster and its pods alone, without a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rljob.api.status import ConditionType, RLJobStatus
from rljob.api.v1alpha1 import MANAGER
from rljob.core import times
from rljob.core.observed import Manifest
from rljob.render import labels
from rljob.render.names import JobIdentity
from rljob.render.ports import PORTS, PortBlock


def identity(job: Manifest) -> JobIdentity:
    """Return namespace, name and uid of a job."""
    metadata: dict[str, Any] = job["metadata"]
    return JobIdentity(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def is_ours(job: Manifest) -> bool:
    """Report whether this operator manages the job; a job of another manager is not even validated."""
    return ((job.get("spec") or {}).get("managedBy") or MANAGER) == MANAGER


def is_deleted(manifest: Manifest) -> bool:
    """Report whether an object is being deleted."""
    return "deletionTimestamp" in manifest["metadata"]


def is_paused(job: Manifest) -> bool:
    """Report whether the user paused the job; a deletion is carried out all the same."""
    annotations = job["metadata"].get("annotations") or {}
    return annotations.get(labels.PAUSED) == "true" and not is_deleted(job)


def asks_to_stop(raw_spec: Mapping[str, Any]) -> bool:
    """Report whether the user wants the job to end; it counts even if the rest of the spec is invalid."""
    section = raw_spec.get("stop")
    return isinstance(section, Mapping) and section.get("requested") is True


def is_finished(job: Manifest) -> bool:
    """Report whether the condition Finished is True, even where the rest of the status cannot be parsed."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(entry.get("type") == ConditionType.FINISHED and entry.get("status") == "True" for entry in conditions)


def is_held(job: Manifest) -> bool:
    """Report whether our finalizer is on the job."""
    return labels.STOP_FINALIZER in (job["metadata"].get("finalizers") or ())


def port_block(manifest: Manifest) -> PortBlock | None:
    """Return the ports that a cluster or one of its pods was rendered with; None for the default ports."""
    text = (manifest["metadata"].get("annotations") or {}).get(labels.PORT_BLOCK, "")
    last = 65535 - max(row.place for row in PORTS)
    return PortBlock(int(text)) if re.fullmatch("[0-9]{4,5}", str(text)) and 1024 <= int(text) <= last else None


def intended_cluster(status: RLJobStatus, clusters: tuple[Manifest, ...]) -> Manifest | None:
    """Return the RayCluster of the intended generation."""
    if status.intent is None:
        return None
    name = status.intent.cluster_name
    return next((cluster for cluster in clusters if cluster["metadata"]["name"] == name), None)


def generation_of(cluster: Manifest) -> int:
    """Return a cluster's generation by its label; 0 if the label was removed."""
    text = str(cluster["metadata"].get("labels", {}).get(labels.CLUSTER_GENERATION, "0"))
    return int(text) if text.isdigit() else 0


def age_seconds(cluster: Manifest, now: datetime) -> float:
    """Return the seconds since a cluster was created."""
    return (now - times.from_text(cluster["metadata"]["creationTimestamp"])).total_seconds()


def is_suspended(cluster: Manifest) -> bool:
    """Report whether a cluster is suspended, as Kueue does until it admits it."""
    return bool(cluster["spec"].get("suspend", False))


def cluster_is_ready(cluster: Manifest, head_pod: Manifest | None) -> bool:
    """Report whether head and workers are ready, judged by the pods themselves.

    KubeRay sets `status.state` to ready and does not take it back when a worker is lost (v1.6.2, calculateStatus in
    ray-operator/controllers/ray/raycluster_controller.go).
    """
    return (
        head_pod is not None
        and pod_is_ready(head_pod)
        # A pod that is being deleted may stay Ready for as long as its preStop hook lets a run save.
        and not is_deleted(head_pod)
        and not is_suspended(cluster)
        and not is_deleted(cluster)
        and counted_workers(cluster) >= wanted_workers(cluster)
    )


def wanted_workers(cluster: Manifest) -> int:
    """Return how many worker pods a cluster asks for."""
    return sum(int(group.get("replicas", 0)) for group in cluster["spec"].get("workerGroupSpecs") or ())


def counted_workers(cluster: Manifest) -> int:
    """Return how many ready worker pods KubeRay has counted."""
    return int((cluster.get("status") or {}).get("readyWorkerReplicas", 0))


def pod_is_ready(pod: Manifest) -> bool:
    """Report whether a pod has an address and its condition Ready is True."""
    state = pod.get("status") or {}
    return bool(state.get("podIP")) and any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in state.get("conditions") or ()
    )


def pod_has_ended(pod: Manifest) -> bool:
    """Report whether a container of a pod has ended that is not restarted."""
    state = pod.get("status") or {}
    found = state.get("containerStatuses") or ()
    return state.get("phase") == "Failed" or any("terminated" in (each.get("state") or {}) for each in found)


def has_condition(job: Manifest, kind: str) -> str | None:
    """Return the text of a Job's condition that is True, or None."""
    for entry in job.get("status", {}).get("conditions") or ():
        if entry["type"] == kind and entry["status"] == "True":
            return f"{entry.get('reason', kind)}: {entry.get('message', '')}".rstrip(": ")
    return None
