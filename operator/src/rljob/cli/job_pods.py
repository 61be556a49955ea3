"""The running pods of a job, for the commands that look into them.

Anybody who may create pods in the namespace could give one the job's labels, so a pod counts only if a RayCluster of
the job controls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rljob.cli import kubectl
from rljob.cli.errors import UsageError
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


def identity(job: Manifest) -> JobIdentity:
    """Return who the job is."""
    metadata = job["metadata"]
    return JobIdentity(metadata["namespace"], metadata["name"], metadata["uid"])


def place_of(job: Manifest, place: kubectl.Place) -> kubectl.Place:
    """Return the place of the job's objects."""
    return kubectl.Place(job["metadata"]["namespace"], place.context, place.kubeconfig, place.program)


def live_pods(job: JobIdentity, role: str, place: kubectl.Place) -> list[Manifest]:
    """Return the running pods of a role, the newest first."""
    return newest_first(kubectl.find_pods(selector(job, role), place), job)


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


def live_head(job: JobIdentity, place: kubectl.Place) -> Manifest | None:
    """Return the running head pod; the newest one if an old one still exists."""
    return next(iter(live_pods(job, HEAD, place)), None)


def no_pod(job: Manifest, role: str, place: kubectl.Place) -> UsageError:
    """Return why a job has no running pod of a role; a cluster without KubeRay never has one."""
    state = str((job.get("status") or {}).get("state") or "Unknown")
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    try:
        kubectl.list_items("rayclusters.ray.io", place)
    except kubectl.MissingKindError as error:
        return error
    except UsageError:
        # The caller may not list them; what follows holds all the same.
        pass
    return kubectl.NotFoundError(
        f"{name} is {state} and has no running {role} pod; `rljob describe {job['metadata']['name']} -n "
        f"{job['metadata']['namespace']}` says why"
    )


def cluster_of(pod: Manifest) -> str:
    """Return the name of the RayCluster of a pod."""
    return str(pod["metadata"]["labels"][labels.RAY_CLUSTER])
