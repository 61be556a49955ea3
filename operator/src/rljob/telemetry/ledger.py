"""Follows the status of every job for the metrics by namespace and queue.

The reconciler records each job after its reconciliation, and all jobs before a scrape, so that jobs that exist only
between two scrapes are counted. A status is read again only when it has changed, and nothing is written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from rljob.api.lifecycle import Restart
from rljob.core.attempts.job_summary import standing
from rljob.core.observed import Manifest
from rljob.core.status import read_status
from rljob.telemetry.jobs import Story, tell_jobs
from rljob.telemetry.metrics import PLACES_MAX, QUEUES_MAX, Metrics, Place
from rljob.telemetry.usage import Used, tell_usage

OTHER = "other"
"""Label of what has no series of its own."""
QUEUE_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A label value of Kubernetes. A job that was not validated yet may name anything as its queue."""


@dataclass
class _Job:
    """The last known state of one job."""

    place: Place
    version: str
    used: Used
    story: Story


@dataclass
class Ledger:
    """The jobs of one process."""

    metrics: Metrics
    _jobs: dict[str, _Job] = field(default_factory=dict)
    """By UID."""
    _places: set[Place] = field(default_factory=set)
    _queues: Counter[str] = field(default_factory=Counter)
    """Number of queues with their own series, by namespace."""

    def note(self, job: Manifest, queue: str | None, now: datetime, restart: Restart | None = None) -> None:
        """Count a job's changes since it was last seen. None: queue and restart settings are unchanged."""
        uid, version = str(job["metadata"]["uid"]), str(job["metadata"]["resourceVersion"])
        namespace, known = job["metadata"]["namespace"], self._jobs.get(uid)
        if known is None:
            current = read_status(job)
            known = _Job(
                self._place(namespace, queue or ""), version, Used.first_seen(current, now), Story(standing(current))
            )
            self._jobs[uid] = known
        elif queue is not None and known.place != (namespace, queue):
            known.place = self._place(namespace, queue)
        if restart is not None:
            known.story.restart = restart
        if known.version != version:
            current = read_status(job)
            known.version = version
            known.used.read(current)
            known.story.go_on(self.metrics, known.place, standing(current), now)
        known.used.count(self.metrics, known.place, now)

    def refresh(self, jobs: Iterable[tuple[Manifest, str | None]], now: datetime) -> None:
        """Update every series; jobs that are not in the list no longer exist."""
        present = set()
        for job, queue in jobs:
            self.note(job, queue, now)
            present.add(str(job["metadata"]["uid"]))
        self.keep_only(present)
        tell_usage(self.metrics, ((known.place, known.used) for known in self._jobs.values()), now)
        tell_jobs(self.metrics, ((known.place, known.story) for known in self._jobs.values()), now)

    def keep_only(self, uids: set[str]) -> None:
        """Forget jobs that no longer exist; their counters are kept."""
        for uid in self._jobs.keys() - uids:
            del self._jobs[uid]

    def _place(self, namespace: str, queue: str) -> Place:
        place = (namespace, queue if not queue or QUEUE_NAME.fullmatch(queue) else OTHER)
        if place not in self._places and place[1] not in ("", OTHER) and self._queues[namespace] >= QUEUES_MAX:
            place = (namespace, OTHER)
        if place not in self._places and len(self._places) >= PLACES_MAX:
            place = (OTHER, OTHER)
        if place not in self._places:
            self._places.add(place)
            self._queues[namespace] += place[0] == namespace and place[1] not in ("", OTHER)
            self.metrics.open_place(place)
        return place
