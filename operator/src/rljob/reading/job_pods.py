"""The running pods of a job, and where their logs are.

Anybody who may create pods in the namespace could give one the job's labels, so a pod counts only if a RayCluster of
the job controls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rljob.render import labels
from rljob.render.names import JobIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rljob.core.observed import Manifest

HEAD, WORKER = "head", "worker"
CONTAINERS = {HEAD: "ray-head", WORKER: "ray-worker"}
"""Names of the containers with Ray (render/raycluster.py)."""
RAY_LOGS = "/tmp/ray/session_latest/logs"  # noqa: S108 - a folder of the pod
"""Folder of Ray's logs (ray 2.60, ray/_private/utils.py: get_ray_temp_dir, and node.py: session_latest)."""
DRIVER = "driver"
KEPT = {DRIVER: "driver.log", HEAD: "*.out *.err", WORKER: "workers/*"}
"""Files of each role in an attempt's folder on the volume of observability.logPath, as patterns (spool/mirror.py)."""


def identity(job: Manifest) -> JobIdentity:
    """Return who the job is."""
    metadata = job["metadata"]
    return JobIdentity(metadata["namespace"], metadata["name"], metadata["uid"])


def selector(job: JobIdentity, role: str) -> str:
    """Return the labels of the job's pods of a role."""
    return f"{labels.JOB_UID}={job.uid},{labels.RAY_NODE_TYPE}={role}"


def newest_first(pods: Iterable[Manifest], job: JobIdentity) -> list[Manifest]:
    """Return those of the pods that run and are the job's, the newest first."""
    running = [pod for pod in pods if is_running(pod) and is_of_cluster(pod, job)]
    return sorted(running, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


def is_running(pod: Manifest) -> bool:
    """Report whether commands can run in the pod, and will for a while."""
    return (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_of_cluster(pod: Manifest, job: JobIdentity) -> bool:
    """Report whether a RayCluster of the job controls the pod."""
    return any(
        owner.get("controller") and owner["kind"] == "RayCluster" and owner["name"].rpartition("-")[0] == job.prefix
        for owner in pod["metadata"].get("ownerReferences") or ()
    )


def cluster_of(pod: Manifest) -> str:
    """Return the name of the RayCluster of a pod."""
    return str(pod["metadata"]["labels"][labels.RAY_CLUSTER])
