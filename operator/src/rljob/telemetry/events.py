"""Kubernetes events about RLJobs, limited in number.

The same note about the same job within ten minutes is counted in the existing event (`series`), at most once a minute.
A job has a budget of events, as in client-go's spam filter. Events are best effort: a failure to post one is counted
and logged, and never fails the reconciliation that reports it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rljob.api.printing import printable
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
COUNT_SECONDS = 60.0
"""Minimum time between two requests for the same note."""
BUDGET = 25
"""Events per job within ten minutes."""
REMEMBERED = 10_000
POST_SECONDS = 5.0
NOTE_LIMIT = 1000
"""The API allows 1,024 bytes in `note`."""

log = Log(__name__)


@dataclass
class _Posted:
    """What is needed to write a posted event again; its first time must not change."""

    since: float
    time: str
    job_version: str
    count: int = 1
    sent: float = field(init=False)

    def __post_init__(self) -> None:
        self.sent = self.since


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
        self._posted: OrderedDict[tuple[str, str], _Posted] = OrderedDict()
        self._of_job: Counter[str] = Counter()
        """Number of these events per job, by UID."""

    async def record(self, job: Manifest, note: EventNote) -> None:
        """Post a note about a job, or count it again if it was posted recently."""
        uid, now = str(job["metadata"]["uid"]), self._monotonic()
        key = (uid, f"{note.type}/{note.reason}/{note.message}")
        self._forget_old(now)
        post = self._posted.get(key)
        if post is not None:
            post.count += 1
            if now - post.sent < COUNT_SECONDS:
                self._metrics.events.labels("counted").inc()
                return
            post.sent = now
        elif self._of_job[uid] >= BUDGET:
            self._metrics.events.labels("dropped").inc()
            return
        else:
            post = _Posted(now, _text(self._now()), str(job["metadata"]["resourceVersion"]))
            self._posted[key] = post
            self._of_job[uid] += 1
        await self._send(job, note, post)

    async def _send(self, job: Manifest, note: EventNote, post: _Posted) -> None:
        try:
            async with asyncio.timeout(POST_SECONDS):
                manifest = self._manifest(job, note, post)
                if post.count == 1:
                    await self._cluster.create(manifest)
                else:
                    series = {"count": post.count, "lastObservedTime": _text(self._now())}
                    await self._cluster.apply({**manifest, "series": series})
            self._metrics.events.labels("posted" if post.count == 1 else "counted").inc()
        except AlreadyExists:
            self._metrics.events.labels("posted").inc()
        except (OutsideError, TimeoutError) as error:
            self._metrics.events.labels("failed").inc()
            log.warning("Event not posted", reason=note.reason, error=str(error))

    def _forget_old(self, now: float) -> None:
        horizon = now - SAME_SECONDS
        while self._posted and (next(iter(self._posted.values())).since <= horizon or len(self._posted) >= REMEMBERED):
            (job, _), _ = self._posted.popitem(last=False)
            self._of_job[job] -= 1
            if not self._of_job[job]:
                del self._of_job[job]

    def _manifest(self, job: Manifest, note: EventNote, posted: _Posted) -> dict[str, Any]:
        metadata = job["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']}/{posted.time}/{note.reason}/{note.message}".encode()).hexdigest()
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": f"{metadata['name']}.{digest[:16]}", "namespace": metadata["namespace"]},
            "eventTime": posted.time,
            "type": str(note.type),
            "reason": note.reason,
            "action": "Reconcile",
            "note": _cut(printable(redact(note.message))),
            "reportingController": f"rljob.dev/{FIELD_MANAGER}",
            "reportingInstance": self._identity[:128],
            "regarding": {
                "apiVersion": job["apiVersion"],
                "kind": job["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": posted.job_version,
            },
        }


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(text: str) -> str:
    return text.encode()[:NOTE_LIMIT].decode(errors="ignore")
