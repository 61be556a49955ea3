"""What this process remembers of each job between its rounds.

A restart of the operator forgets all of it: the API server is asked again, silences are counted from the next request,
and a refused child is refused again. Nothing here may be the only place that knows something.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rljob.control.packed import PackedManifest, PackedValue, packed
from rljob.core.derived import Derived, inputs_of
from rljob.core.observed import UNSEEN, Manifest, Observed, RayJob, Refusal, Silence, Unseen
from rljob.core.scheduling.node_faults import Held
from rljob_runtime.contract import Progress

REFUSALS_KEPT = 16
"""More refusals of one job would add nothing."""
CONFIG_MAP_BYTES = 256 * 1024
"""Memory of a ConfigMap's data up to which it is remembered. A copy of the user's code may have 1 MiB, and hundreds of
jobs may wait for their queue; a larger one is asked for again."""


@dataclass(frozen=True)
class Holding:
    """The nodes of an attempt's pods, which stay the same as long as it runs."""

    submission_id: str
    held: tuple[Held, ...]
    listed_at: datetime


@dataclass
class Throttled:
    """A scheduler's object about a waiting job, passed on at the pace of status writes.

    Kueue and Volcano update the message of every waiting job whenever a job ends: passed on at once, that would be
    hundreds of status writes. Anything but the message is passed on at once.
    """

    _shown: Manifest | None = None
    _facts: Hashable = None
    _until: datetime | None = None
    """From then on a change of the message is passed on too."""

    def take(self, found: Manifest | None, now: datetime, seconds: float) -> Manifest | None:
        """Return the object, or what was last passed on if only its message has changed."""
        facts = _facts_of(found)
        if self._until is None or now >= self._until or facts != self._facts:
            self._shown, self._facts, self._until = found, facts, now + timedelta(seconds=seconds)
        return self._shown


@dataclass
class JobMemory:
    """What is remembered of one job."""

    holding: Holding | None = None
    pods_listed: datetime | None = None
    """When the pods that start were listed last, for a diagnosis."""
    admission: Hashable = None
    """What the job looked like when it was found ready to begin (`control.admission_order`)."""
    workload: Throttled = field(default_factory=Throttled)
    pod_group: Throttled = field(default_factory=Throttled)
    _silence: Silence | None = None
    _config_maps: dict[str, Manifest | Unseen] | None = None
    _refusals: tuple[Refusal, ...] = ()
    _refused_generation: int | None = None
    _snapshot: Manifest | None = None
    _derived: Derived | PackedValue[Derived] = field(default_factory=Derived)
    _derived_from: Hashable = None

    # The job's ConfigMaps, from the LIST of a new job until its cluster exists. They are immutable and their names are
    # this job's, so what was listed or created stays true, and so does that one is absent until we create it. If
    # somebody else creates it meanwhile, our creation finds out (`execute._adopt`).

    def list_config_maps(self, found: Iterable[Manifest]) -> None:
        """Remember all ConfigMaps that the job has."""
        self._config_maps = {item["metadata"]["name"]: _if_small(item) for item in found}

    def add_config_map(self, manifest: Manifest) -> None:
        """Remember one more ConfigMap, unless the ConfigMaps of the job were never listed."""
        if self._config_maps is not None:
            self._config_maps[manifest["metadata"]["name"]] = _if_small(manifest)

    def config_map(self, name: str) -> Manifest | Unseen | None:
        """Return a ConfigMap, None if it is absent, UNSEEN if its content is not known."""
        return UNSEEN if self._config_maps is None else self._config_maps.get(name)

    def forget_config_maps(self) -> None:
        """Forget the ConfigMaps: later steps need few of them, and ask."""
        self._config_maps = None

    # Effects that cannot work, until the job is edited.

    def refuse(self, job: Manifest, refusal: Refusal) -> None:
        """Remember a refusal for this generation of the job: the first one of each child and cause.

        Each try may be refused with other figures of a quota, and each message would be a status write.
        """
        known = self.refusals(job)
        if all(_about(refusal) != _about(each) for each in known):
            self._refusals = (*known, refusal)[-REFUSALS_KEPT:]
            self._refused_generation = _generation(job)

    def permit(self, kind: str, name: str) -> None:
        """Forget the refusals of a child."""
        self._refusals = tuple(each for each in self._refusals if (each.kind, each.name) != (kind, name))

    def refusals(self, job: Manifest) -> tuple[Refusal, ...]:
        """Return the refusals of this generation of the job."""
        return self._refusals if self._refused_generation == _generation(job) else ()

    # Unanswered requests to the head.

    def hear(
        self, now: datetime, progress: Progress | Unseen, ray_job: RayJob | Unseen | None, *, asked: bool
    ) -> Silence | None:
        """Return since when the head is silent; None if its exporter answers, or was not asked."""
        before, self._silence = self._silence, None
        if asked and isinstance(progress, Unseen):
            mute = (before.mute_since if before else None) or now
            since = before.since if before else now
            self._silence = Silence(since, mute if isinstance(ray_job, Unseen) else None)
        return self._silence

    # What is read once and what the core derives.

    @property
    def snapshot(self) -> Manifest | None:
        """The snapshot that the job uses: an immutable object of its own."""
        return self._snapshot

    @snapshot.setter
    def snapshot(self, manifest: Manifest) -> None:
        self._snapshot = packed(manifest, "data")

    def derived(self, observed: Observed) -> Derived:
        """Return what was derived from spec, snapshots and recipes: the same object as long as these are the same."""
        inputs = inputs_of(observed)
        if inputs != self._derived_from:
            self._derived, self._derived_from = Derived(), inputs
        if isinstance(self._derived, PackedValue):
            self._derived = self._derived.get()
        return self._derived

    def rest(self, observed: Observed) -> None:
        """Keep what was derived in little memory until the next round, if what it follows from is kept so."""
        sources = (observed.job, self._snapshot, *observed.recipes.values())
        if isinstance(self._derived, Derived) and any(isinstance(each, PackedManifest) for each in sources):
            self._derived = PackedValue(self._derived)


@dataclass
class JobMemories:
    """The memories of all jobs."""

    by_uid: dict[str, JobMemory] = field(default_factory=dict)

    def of(self, job: Manifest) -> JobMemory:
        """Return the memory of a job, empty at first."""
        return self.by_uid.setdefault(job["metadata"]["uid"], JobMemory())

    def keep_only(self, uids: set[str]) -> None:
        """Forget the jobs that are gone."""
        for uid in self.by_uid.keys() - uids:
            del self.by_uid[uid]


def _if_small(config_map: Manifest) -> Manifest | Unseen:
    data = config_map.get("data") or {}
    return config_map if sum(map(sys.getsizeof, data.values())) <= CONFIG_MAP_BYTES else UNSEEN


def _facts_of(found: Manifest | None) -> Hashable:
    """Return what a Workload or a PodGroup states, apart from messages."""
    if found is None:
        return None
    metadata, status = found["metadata"], found.get("status") or {}
    entries = status.get("conditions") or ()
    conditions = tuple(sorted((entry["type"], entry["status"], entry.get("reason", "")) for entry in entries))
    state = found["spec"].get("active", True), status.get("phase"), bool(status.get("running"))
    return metadata["uid"], "deletionTimestamp" in metadata, state, conditions


def _about(refusal: Refusal) -> tuple[str, str, str]:
    return refusal.kind, refusal.name, refusal.cause


def _generation(job: Manifest) -> int:
    return int(job["metadata"].get("generation", 1))
