"""Find the running pods of a job with kubectl, for the commands that look into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.reading.job_pods import HEAD, newest_first, selector
from rljob.render.names import JobIdentity

if TYPE_CHECKING:
    from rljob.core.observed import Manifest


def place_of(job: Manifest, place: kubectl.Place) -> kubectl.Place:
    """Return the place of the job's objects."""
    return kubectl.Place(job["metadata"]["namespace"], place.context, place.kubeconfig, place.program)


def live_pods(job: JobIdentity, role: str, place: kubectl.Place) -> list[Manifest]:
    """Return the running pods of a role, the newest first."""
    return newest_first(kubectl.find_pods(selector(job, role), place), job)


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
