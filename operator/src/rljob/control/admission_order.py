"""The order in which new jobs begin, and which lane of the queue a job waits in.

To create a job's objects takes five requests, and a thousand jobs that arrive at once take the API server a minute or
two. To look at a job takes none: each is looked at when it arrives, so that an invalid spec or a suspension is answered
at once, and only jobs that would create something wait for their turn. A job that is edited, paused or deleted, or
whose recipes change, is looked at again; no other change costs it its place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from rljob.cluster.kinds import RAY_CLUSTER
from rljob.control.clock import Clock
from rljob.control.job_memory import JobMemories
from rljob.control.queue import Lane
from rljob.control.store import Key, Store
from rljob.core import times
from rljob.core.manifest_facts import is_paused

if TYPE_CHECKING:
    from rljob.core.observed import Manifest


UNLOOKED_MAX = 32
"""RayClusters of a namespace that wait for KubeRay's first look. It makes one after the other, and more of them would
take from it the time of the API server, and put the jobs of other namespaces behind them."""
UNLOOKED_SECONDS = 600
"""Later ones are not waited for: KubeRay is down, or says nothing about them."""


@dataclass(frozen=True)
class Line:
    """The jobs that wait for their turn to begin."""

    store: Store
    memories: JobMemories
    clock: Clock

    def lane_of(self, key: Key) -> Lane:
        """Return the lane of a job: one with a cluster may have NPUs although its status is lost."""
        job = self.store.job(key)
        if job is None or (job.get("status") or {}).get("intent"):
            return Lane.BEGUN
        metadata = job["metadata"]
        if self.store.children(RAY_CLUSTER, key, metadata["uid"]):
            return Lane.BEGUN
        seen = self.memories.of(job).admission
        return Lane.TO_BEGIN if seen is not None and seen == self._facts(job) else Lane.NEW

    def may_take(self, lane: Lane, namespace: str) -> bool:
        """Report whether a job of a namespace may leave its lane."""
        return lane is not Lane.TO_BEGIN or self.room_for(namespace) > 0

    def room_for(self, namespace: str) -> int:
        """Return how many jobs of a namespace may begin before KubeRay has looked at others."""
        since = times.to_text(self.clock.now() - timedelta(seconds=UNLOOKED_SECONDS))
        return UNLOOKED_MAX - self.store.unlooked(namespace, since)

    def place_of(self, job: Manifest) -> Callable[[], None]:
        """Return what lets a job wait for its turn in its present form, although it may be edited before the call."""
        facts = self._facts(job)

        def join() -> None:
            self.memories.of(job).admission = facts

        return join

    def _facts(self, job: Manifest) -> Hashable:
        """Return what a look at the job depends on."""
        metadata, recipes = job["metadata"], self.store.recipes(job)
        below = frozenset((recipe, *_spec_of(found)) for recipe, found in recipes.items())
        return metadata.get("generation"), metadata.get("deletionTimestamp"), is_paused(job), below


def _spec_of(found: Manifest) -> tuple[str, int]:
    return found["metadata"]["uid"], found["metadata"]["generation"]
