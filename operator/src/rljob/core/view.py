"""The parsed form of Observed that the steps read: identity, status, intended cluster, writer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from pydantic import ValidationError

from rljob.api.lifecycle import Cleanup, Deadlines
from rljob.api.status import Attempt, Intent, RLJobStatus
from rljob.api.v1alpha1 import MANAGER, RLJobSpec
from rljob.build import configmap, labels
from rljob.build.names import JobIdentity
from rljob.core.observed import Manifest, Observed
from rljob.core.plan import EventNote, Plan
from rljob.core.policies.validation import Checked, validate
from rljob.core.status import Writer, document, read_status

LOOK_AGAIN_SECONDS = 5.0
"""When a fact could not be had: soon, but not at once."""

T = TypeVar("T", Deadlines, Cleanup)


@dataclass(frozen=True)
class View:
    """One look at one job."""

    observed: Observed
    now: datetime

    @cached_property
    def job(self) -> JobIdentity:
        """Which job."""
        return identity(self.observed.job)

    @cached_property
    def status(self) -> RLJobStatus:
        """What the operator wrote last."""
        return read_status(self.observed.job)

    @cached_property
    def writer(self) -> Writer:
        """Makes the next status."""
        return Writer(generation=int(self.observed.job["metadata"].get("generation", 0)), now=self.now)

    @cached_property
    def checked(self) -> Checked:
        """The spec as it stands now, over the recipes as they stand now."""
        return validate(self.job.name, self.observed.job.get("spec") or {}, self.observed.recipes)

    @property
    def intent(self) -> Intent:
        """The intent; only steps behind `intend` ask for it."""
        if self.status.intent is None:
            raise AssertionError("a step asked for the intent before there was one")
        return self.status.intent

    @property
    def attempt(self) -> Attempt | None:
        """The record of the intended attempt; None until Ray knows the submission."""
        if self.status.intent is None:
            return None
        wanted = self.status.intent.submission_id
        return next((entry for entry in self.status.attempts if entry.submission_id == wanted), None)

    @cached_property
    def cluster(self) -> Manifest | None:
        """The RayCluster of the intended generation."""
        return intended_cluster(self.status, self.observed.clusters)

    @cached_property
    def frozen_spec(self) -> RLJobSpec | None:
        """The spec that the job started with; None where the snapshot is not there, not asked for or not ours."""
        found = self.observed.snapshot
        if not isinstance(found, dict) or not self.made(found):
            return None
        try:
            return configmap.read_snapshot(found)
        except (KeyError, ValueError):
            return None

    @cached_property
    def frozen_cluster(self) -> Manifest | None:
        """The RayCluster to make; None where its ConfigMap is not there, not asked for or not ours."""
        found = self.observed.config
        if not isinstance(found, dict) or not self.made(found):
            return None
        try:
            manifest = configmap.read_raycluster(found)
            metadata = manifest["metadata"]
            named = (manifest["kind"], metadata["namespace"], metadata["name"])
        except (KeyError, TypeError, ValueError):
            return None
        # Whoever may write ConfigMaps must not make the operator create anything else with its own rights.
        return manifest if named == ("RayCluster", self.job.namespace, self.intent.cluster_name) else None

    def made(self, manifest: Manifest) -> bool:
        """Whether this job controls an object."""
        owners = manifest["metadata"].get("ownerReferences") or ()
        return any(owner["uid"] == self.job.uid for owner in owners if owner.get("controller"))

    @cached_property
    def deadlines(self) -> Deadlines:
        """Deadlines may change while the job runs; a broken edit falls back to the defaults."""
        return (
            self.checked.spec.deadlines if self.checked.spec else _section(self.observed.job, "deadlines", Deadlines())
        )

    @cached_property
    def cleanup(self) -> Cleanup:
        """As deadlines."""
        return self.checked.spec.cleanup if self.checked.spec else _section(self.observed.job, "cleanup", Cleanup())

    def write(self, status: RLJobStatus, *events: EventNote, requeue: float | None = None) -> Plan:
        """Plan a status write, or nothing where it would change nothing."""
        if document(status) == document(self.status) and "status" in self.observed.job:
            return Plan(requeue_after_seconds=requeue)
        return Plan(status=document(status), events=events, requeue_after_seconds=requeue)


def _section(job: Manifest, name: str, default: T) -> T:
    try:
        return type(default).model_validate((job.get("spec") or {}).get(name) or {})
    except ValidationError:
        return default


def identity(job: Manifest) -> JobIdentity:
    """Read which job a manifest is."""
    metadata: dict[str, Any] = job["metadata"]
    return JobIdentity(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def is_ours(job: Manifest) -> bool:
    """Whether the job is for this operator; a job of another one is not even validated."""
    return ((job.get("spec") or {}).get("managedBy") or MANAGER) == MANAGER


def intended_cluster(status: RLJobStatus, clusters: tuple[Manifest, ...]) -> Manifest | None:
    """Find the RayCluster of the intended generation."""
    if status.intent is None:
        return None
    name = status.intent.cluster_name
    return next((cluster for cluster in clusters if cluster["metadata"]["name"] == name), None)


def generation_of(cluster: Manifest) -> int:
    """Read a cluster's generation from its label; 0 where somebody removed it."""
    text = str(cluster["metadata"].get("labels", {}).get(labels.CLUSTER_GENERATION, "0"))
    return int(text) if text.isdigit() else 0
