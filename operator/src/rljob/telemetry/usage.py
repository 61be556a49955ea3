"""Device time of all jobs by namespace and queue: counters that rise while runs go on, and what runs hold now.

The truth is in each job's status, which outlives this process; a counter of Prometheus begins at 0 with every process
and is read by its increase. So what a job had used when this process first saw it is not counted again, and from then
on each counter rises with the job. Estimates of a run under way never take anything back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from rljob.core.observed import Manifest
from rljob.core.policies.usage import Account, account
from rljob.core.status import read_status
from rljob.telemetry.metrics import Metrics

PLACES_MAX = 500
"""Pairs of namespace and queue with series of their own; beyond, they are counted together as `other`."""
OTHER = "other"

Place = tuple[str, str]
"""Namespace and queue; no queue is empty."""


@dataclass
class _Job:
    """What is known of one job."""

    place: Place
    version: str
    account: Account
    device_seconds: float
    """As counted."""
    productive_seconds: float


@dataclass
class UsageLedger:
    """Follows the accounts of all jobs of a process."""

    metrics: Metrics
    _jobs: dict[str, _Job] = field(default_factory=dict)
    """By uid."""
    _places: set[Place] = field(default_factory=set)

    def note(self, job: Manifest, queue: str | None, now: datetime) -> None:
        """Count what a job used since it was last seen; None: its queue is the one that was seen before."""
        uid, version = str(job["metadata"]["uid"]), str(job["metadata"]["resourceVersion"])
        known = self._jobs.get(uid)
        if known is None:
            found = account(read_status(job))
            place = self._place(job["metadata"]["namespace"], queue or "")
            held, productive = found.device_seconds_at(now), found.productive_device_seconds
            self._jobs[uid] = _Job(place, version, found, held, productive)
            return
        if known.version != version:
            known.version, known.account = version, account(read_status(job))
        if queue is not None:
            known.place = self._place(job["metadata"]["namespace"], queue)
        self._count(known, now)

    def refresh(self, jobs: Iterable[tuple[Manifest, str | None]], now: datetime) -> None:
        """Bring every series up to date; jobs that are not among these are gone."""
        present = set()
        for job, queue in jobs:
            self.note(job, queue, now)
            present.add(str(job["metadata"]["uid"]))
        self.keep_only(present)
        devices: dict[Place, int] = defaultdict(int)
        held: dict[Place, float] = defaultdict(float)
        productive: dict[Place, float] = defaultdict(float)
        for known in self._jobs.values():
            devices[known.place] += known.account.devices
            held[known.place] += known.account.device_seconds_at(now)
            productive[known.place] += known.account.productive_device_seconds
        self.metrics.devices_held.clear()
        self.metrics.goodput.clear()
        for place, seconds in held.items():
            self.metrics.devices_held.labels(*place).set(devices[place])
            if seconds > 0:
                self.metrics.goodput.labels(*place).set(productive[place] / seconds)

    def keep_only(self, uids: set[str]) -> None:
        """Forget jobs that are gone; what they used stays counted."""
        for uid in self._jobs.keys() - uids:
            del self._jobs[uid]

    def _count(self, known: _Job, now: datetime) -> None:
        found, metrics = known.account, self.metrics
        held = max(found.device_seconds_at(now), known.device_seconds)
        productive = max(found.productive_device_seconds, known.productive_seconds)
        more, better = held - known.device_seconds, productive - known.productive_seconds
        known.device_seconds, known.productive_seconds = held, productive
        metrics.device_seconds.labels(*known.place).inc(more)
        metrics.productive_device_seconds.labels(*known.place).inc(better)
        metrics.card_seconds.labels(*known.place).inc(more * found.cards_per_device)
        metrics.productive_card_seconds.labels(*known.place).inc(better * found.cards_per_device)

    def _place(self, namespace: str, queue: str) -> Place:
        place = (namespace, queue)
        if place not in self._places and len(self._places) >= PLACES_MAX:
            return (OTHER, OTHER)
        self._places.add(place)
        return place
