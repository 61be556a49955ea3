"""Which facts the next decision about an RLJob needs beyond those that watches deliver.

`control` asks this before it makes any request, so that a job that waits for nothing costs no request.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Head:
    """The head pod to talk to."""

    pod_ip: str
    pod_uid: str
    job_uid: str
    cluster_name: str


@dataclass(frozen=True)
class Needs:
    """Requests to make before `reconcile`."""

    snapshot_name: str | None = None
    """GET this ConfigMap."""
    config_name: str | None = None
    """GET this ConfigMap."""
    initializer_names: tuple[str, ...] = ()
    """GET these Jobs."""
    pods_selector: str | None = None
    """LIST pods by this label selector (at most 500)."""
    head: Head | None = None
    """Set when the exporter or the job API is to be asked."""
    progress: bool = False
    ray_job_id: str | None = None
    """GET this submission at the head."""
