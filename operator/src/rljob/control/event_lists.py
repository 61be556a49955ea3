"""Lists events: about a cluster whose attempt has ended, and about what does not start.

Events have no index and no watch cache: the API server reads all events of a namespace for each LIST, whatever it
selects. An attempt that ended needs the events about itself at once. If a thousand clusters wait for KubeRay, a LIST
for each would slow down what they wait for, so the events that explain a start are listed once per namespace for all
jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from rljob.cluster.kinds import EVENT
from rljob.cluster.port import Cluster
from rljob.control.try_request import seen
from rljob.core.observed import UNSEEN, Manifest, Unseen

KEEP_SECONDS = 30.0
"""A refusal by KubeRay stays true: only another manifest changes it."""
REST = 20.0
"""A namespace is not listed again for this many times the duration of the last LIST."""
LONGEST_REST_SECONDS = 600.0
"""An event lives for an hour (kube-apiserver --event-ttl)."""
FORGET_SECONDS = 3600.0
"""What nobody asks for is forgotten after this time."""
LIMIT = 500
"""Enough to explain an end."""
LIMIT_BY_REASON = 2000
"""Each object needs its own: twice the thousand jobs that may wait. Any tenant may create more."""
REFUSALS = ("InvalidRayClusterMetadata", "InvalidRayClusterSpec", "InvalidRayClusterStatus")
"""KubeRay's reasons for refusing a cluster: ray-operator/controllers/ray/utils/constant.go, v1.6.2."""
DELETED_PODS = ("DeletedHeadPod", "DeletedWorkerPod")
"""KubeRay's reasons for pods that it replaces because they have ended; the same file."""
FAILED_CREATIONS = ("FailedCreate",)
"""The reason of the controller of Jobs for a pod that it cannot create: kubernetes v1.36.2,
pkg/controller/controller_utils.go, FailedCreatePodReason."""


@dataclass(frozen=True)
class _Read:
    until: float
    by_name: Mapping[str, tuple[Manifest, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class EventLists:
    """Reads events; those about what does not start are kept by namespace."""

    cluster: Cluster
    monotonic: Callable[[], float]
    _read: dict[tuple[str, tuple[str, ...]], _Read] = field(default_factory=dict)
    """By namespace and reasons."""

    async def about(self, namespace: str, cluster_name: str) -> tuple[Manifest, ...]:
        """List the events about a RayCluster now; empty if they cannot be read."""
        listed = await self._list(namespace, f"regarding.kind=RayCluster,regarding.name={cluster_name}")
        return () if isinstance(listed, Unseen) else listed

    async def warnings(self, namespace: str) -> tuple[Manifest, ...] | Unseen:
        """List a namespace's warnings now."""
        return await self._list(namespace, "type=Warning")

    async def refusals(self, namespace: str, cluster_name: str) -> tuple[Manifest, ...]:
        """Return why KubeRay refuses a RayCluster."""
        return await self._latest(namespace, "RayCluster", REFUSALS, cluster_name)

    async def deleted_pods(self, namespace: str, cluster_name: str) -> tuple[Manifest, ...]:
        """Return which pods of a RayCluster KubeRay replaced, and how they had ended."""
        return await self._latest(namespace, "RayCluster", DELETED_PODS, cluster_name)

    async def failed_creations(self, namespace: str, job_name: str) -> tuple[Manifest, ...]:
        """Return why the pod of a Job cannot be created."""
        return await self._latest(namespace, "Job", FAILED_CREATIONS, job_name)

    async def _latest(self, namespace: str, kind: str, reasons: tuple[str, ...], name: str) -> tuple[Manifest, ...]:
        """Return the events about an object by the last LIST; while one is under way, by the one before."""
        begun, about = self.monotonic(), (namespace, reasons)
        known = self._read.get(about, _Read(begun))
        if known.until <= begun:
            self._read[about] = _Read(float("inf"), known.by_name)
            listed: tuple[Manifest, ...] | Unseen = UNSEEN
            try:
                listed = await self._list_reasons(namespace, kind, reasons)
            finally:
                ended = self.monotonic()
                self._forget(ended)
                found = known.by_name if isinstance(listed, Unseen) else _by_name(listed)
                rest = min(max(KEEP_SECONDS, REST * (ended - begun)), LONGEST_REST_SECONDS)
                self._read[about] = _Read(ended + rest, found)
        return self._read[about].by_name.get(name, ())

    async def _list_reasons(self, namespace: str, kind: str, reasons: tuple[str, ...]) -> tuple[Manifest, ...] | Unseen:
        """List by reason: a busy namespace has more warnings than the limit."""
        found: tuple[Manifest, ...] = ()
        for reason in reasons:
            listed = await self._list(namespace, f"regarding.kind={kind},reason={reason}", limit=LIMIT_BY_REASON)
            if isinstance(listed, Unseen):
                return UNSEEN
            found += listed
        return found

    async def _list(self, namespace: str, selector: str, *, limit: int = LIMIT) -> tuple[Manifest, ...] | Unseen:
        ask = partial(self.cluster.list, EVENT, namespace, limit=limit, field_selector=selector)
        listing = await seen("events", ask)
        return listing if isinstance(listing, Unseen) else listing.items

    def _forget(self, now: float) -> None:
        for about in [about for about, read in self._read.items() if read.until + FORGET_SECONDS <= now]:
            del self._read[about]


def _by_name(events: tuple[Manifest, ...]) -> dict[str, tuple[Manifest, ...]]:
    found: dict[str, list[Manifest]] = {}
    for event in events:
        found.setdefault(str((event.get("regarding") or {}).get("name", "")), []).append(event)
    return {name: tuple(about) for name, about in found.items()}
