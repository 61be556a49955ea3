"""The ports: all that the operator may ask of the Kubernetes API and of a Ray head pod.

`control` and `telemetry` code against these protocols; `kube.py` and `ray.py` implement them, and in memory the tests.
Objects are plain JSON as the server gave them. Every call is bounded in time by its adapter and fails with an error of
`cluster.errors`. Results belong to the caller's reading: nobody changes a manifest that came through a port.
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
"""Asked last before a write is sent; raises Unavailable when this process may not write any more."""


def unfenced() -> None:
    """Let every write pass."""


@dataclass(frozen=True)
class Listing:
    """A consistent LIST: every object as of one resourceVersion."""

    items: tuple[Manifest, ...]
    resource_version: str


class Cluster(Protocol):
    """The Kubernetes API, as far as the operator uses it."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """Read one object live (a quorum read); raises NotFound."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int | None = None,
        field_selector: str = "",
    ) -> Listing:
        """Read a collection live, in pages, at most `limit` objects; raises NotFound if the kind is not served."""

    async def spec_fields(self, kind: Kind) -> frozenset[str]:
        """Read which fields the API server knows in a kind's spec, and below these: `networkTopology.mode`.

        Raises NotFound if the kind is not served.
        """

    async def log_tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """Read the last lines of a container's log, at most 16 kB each; empty before the pod has a node.

        Raises NotFound, and Invalid while the container waits on its node.
        """

    async def create(self, manifest: Manifest) -> Manifest:
        """POST; raises AlreadyExists."""

    async def replace(self, manifest: Manifest) -> Manifest:
        """PUT with the manifest's resourceVersion as precondition; raises Conflict.

        Only for the Lease, the evidence of attempts and the blocks of ports.
        """

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None
    ) -> None:
        """DELETE in the background with a uid precondition; raises Conflict if the name is somebody else's by now.

        A grace shortens that of a pod, also of one that is being deleted already.
        """

    async def apply(self, manifest: Manifest) -> Manifest:
        """Create or bring up to date what the manifest says, by server-side apply.

        Only for built-in recipes, and for events that are counted.
        """

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Apply `status` on the server; the manifest's uid and resourceVersion are preconditions; raises Conflict."""

    async def set_finalizers(self, manifest: Manifest) -> Manifest:
        """Replace `metadata.finalizers` and nothing else; preconditions as of `apply_status`."""


class RayApi(Protocol):
    """A Ray head pod: our exporter's progress and Ray's own job API, always at the pod's own address."""

    async def progress(self, head: Head) -> Progress:
        """Ask the exporter."""

    async def job(self, head: Head, submission_id: str) -> RayJob | None:
        """Ask the job API; None: this head does not know the submission."""

    async def submit(self, job: SubmitJob) -> None:
        """POST the job; returns as well when this head already has the submission."""

    async def stop(self, run: StopRun) -> None:
        """Ask the exporter to stop an attempt; a second time changes nothing."""
