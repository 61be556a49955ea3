"""Kubernetes events about RLJobs: one per transition, never a flood.

The same note about the same job is posted once in ten minutes, and a job has a budget, as in client-go's spam filter.
An event is a courtesy: failing to post one is counted and logged, and never fails the round that told of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from rljob.cluster.errors import AlreadyExists, OutsideError
from rljob.cluster.kinds import EVENT
from rljob.cluster.port import FIELD_MANAGER, Cluster
from rljob.telemetry.log import Log, redact

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rljob.core.observed import Manifest
    from rljob.core.plan import EventNote
    from rljob.telemetry.metrics import Metrics

SAME_SECONDS = 600.0
BUDGET = 25
"""Events per job within ten minutes."""
REMEMBERED = 10_000
POST_SECONDS = 5.0
NOTE_LIMIT = 1000
"""The API allows 1,024 bytes in `note`."""

log = Log(__name__)


class EventRecorder:
    """Posts events for one process."""

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        identity: str,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._monotonic = monotonic
        self._identity = identity
        self._metrics = metrics
        self._posted: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._of_job: Counter[str] = Counter()
        """How many of those are about a job, by uid."""

    async def record(self, job: Manifest, note: EventNote) -> None:
        """Post a note about a job, unless it was posted lately."""
        uid = str(job["metadata"]["uid"])
        if not self._admit(uid, f"{note.type}/{note.reason}/{note.message}"):
            self._metrics.events.labels("dropped").inc()
            return
        try:
            async with asyncio.timeout(POST_SECONDS):
                await self._cluster.create(self._manifest(job, note))
            self._metrics.events.labels("posted").inc()
        except AlreadyExists:
            self._metrics.events.labels("posted").inc()
        except (OutsideError, TimeoutError) as error:
            self._metrics.events.labels("failed").inc()
            log.warning("Event not posted", reason=note.reason, error=str(error))

    def _admit(self, uid: str, text: str) -> bool:
        """Whether the note is news and the job has budget left."""
        horizon = self._monotonic() - SAME_SECONDS
        while self._posted and (next(iter(self._posted.values())) <= horizon or len(self._posted) >= REMEMBERED):
            (job, _), _ = self._posted.popitem(last=False)
            self._of_job[job] -= 1
            if not self._of_job[job]:
                del self._of_job[job]
        key = (uid, text)
        if key in self._posted or self._of_job[uid] >= BUDGET:
            return False
        self._posted[key] = self._monotonic()
        self._of_job[uid] += 1
        return True

    def _manifest(self, job: Manifest, note: EventNote) -> dict[str, Any]:
        metadata = job["metadata"]
        time = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        digest = hashlib.sha256(f"{metadata['uid']}/{time}/{note.reason}/{note.message}".encode()).hexdigest()
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": f"{metadata['name']}.{digest[:16]}", "namespace": metadata["namespace"]},
            "eventTime": time,
            "type": str(note.type),
            "reason": note.reason,
            "action": "Reconcile",
            "note": _cut(redact(note.message)),
            "reportingController": f"rljob.dev/{FIELD_MANAGER}",
            "reportingInstance": self._identity[:128],
            "regarding": {
                "apiVersion": job["apiVersion"],
                "kind": job["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
        }


def _cut(text: str) -> str:
    return text.encode()[:NOTE_LIMIT].decode(errors="ignore")
