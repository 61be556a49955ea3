"""The ports: everything that the operator may request from the Kubernetes API and from a Ray head pod.

`control` and `telemetry` use these protocols; `kube.py` and `ray.py` implement them, and the tests do so in memory.
Objects are plain JSON as the server sent it. The adapter bounds every call in time and raises errors of
`cluster.errors`. Results are read-only: manifests that came through a port must not be modified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rljob.core.observed import Manifest, RayJob

if TYPE_CHECKING:
    from rljob.cluster.kinds import Kind
    from rljob.core.plan import StopRun, SubmitJob
    from rljob.core.requirements import Head
    from rljob_runtime.contract import Progress

FIELD_MANAGER = "rljob-operator"
Fence = Callable[[], None]
"""Called immediately before a write is sent. Raises Unavailable if this process may not write any more."""


def unfenced() -> None:
    """Allow every write."""


@dataclass(frozen=True)
class Listing:
    """A consistent LIST: every object as of one resourceVersion."""

    items: tuple[Manifest, ...]
    resource_version: str
    is_cut: bool = False
    """Whether there are more objects than the limit allowed to read."""


class Cluster(Protocol):
    """The part of the Kubernetes API that the operator uses."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """Read one object live (a quorum read). Raise NotFound if it does not exist."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int | None = None,
        field_selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> Listing:
        """Read a collection live, in pages, at most `limit` objects. Raise NotFound if the kind is not served.

        Labels are no proof of whose an object is: what is found by one that any tenant may set has a limit, and is read
        with `metadata_only` first if its content has no bound.
        """

    async def spec_fields(self, kind: Kind) -> frozenset[str]:
        """Read the fields that the API server knows in a kind's spec, and those below: `networkTopology.mode`.

        Raise NotFound if the kind is not served.
        """

    async def log_tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """Read the last lines of a container's log, at most 16 kB each; empty while the pod has no node.

        Raise NotFound, or Invalid while the container waits on its node.
        """

    async def create(self, manifest: Manifest) -> Manifest:
        """Send a POST. Raise AlreadyExists if the name is in use."""

    async def replace(self, manifest: Manifest) -> Manifest:
        """Send a PUT with the manifest's resourceVersion as precondition. Raise Conflict if it does not match.

        Only for the Lease, the records of attempts and the blocks of ports.
        """

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str | None, *, grace_seconds: int | None = None
    ) -> None:
        """Send a DELETE (background) with a UID precondition. Raise Conflict if another object has the name by now.

        Without a UID, whatever has the name is deleted: what belongs to a generation whose ConfigMap was found.

        A grace period shortens that of a pod, even of one that is already being deleted.
        """

    async def apply(self, manifest: Manifest) -> Manifest:
        """Create an object or update it to match the manifest, by server-side apply.

        Only for built-in recipes, and for events that are counted.
        """

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Apply `status` with the manifest's UID and resourceVersion as preconditions.

        Raise Conflict if they do not match.
        """

    async def set_finalizers(self, manifest: Manifest) -> Manifest:
        """Replace only `metadata.finalizers`, with the preconditions of `apply_status`."""


class RayApi(Protocol):
    """A Ray head pod: the exporter's progress and Ray's own job API, always at the pod's own address."""

    async def progress(self, head: Head) -> Progress:
        """Read the progress from the exporter."""

    async def job(self, head: Head, submission_id: str) -> RayJob | None:
        """Read the job from Ray's job API; None if this head does not know the submission."""

    async def submit(self, job: SubmitJob) -> None:
        """Submit the job. Return normally as well if this head already has the submission."""

    async def stop(self, run: StopRun) -> None:
        """Ask the exporter to stop an attempt; repeating the request has no effect."""
