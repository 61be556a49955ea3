"""What watches deliver of one job, parsed. Requirements follow from it, and the context of the steps extends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from rljob.api.status import Attempt, ConditionType, Intent, Resolved, RLJobStatus
from rljob.core import status, times
from rljob.core.manifest_facts import asks_to_stop, cluster_is_ready, identity, intended_cluster, is_suspended
from rljob.core.observed import Manifest
from rljob.core.reasons import Reason
from rljob.render import labels
from rljob.render.names import JobIdentity

RESTART_VALUE_BYTES = 253
"""Bytes of the annotation rljob.dev/restart that count; a time is shorter."""


@dataclass(frozen=True)
class Watched:
    """What watches deliver of one job: known before any request is made."""

    manifest: Manifest
    """The RLJob."""
    clusters: tuple[Manifest, ...]
    head_pod: Manifest | None
    now: datetime

    @cached_property
    def status(self) -> RLJobStatus:
        """What the operator wrote last."""
        return status.read_status(self.manifest)

    @cached_property
    def job(self) -> JobIdentity:
        """Namespace, name and uid of the job."""
        return identity(self.manifest)

    @property
    def raw_spec(self) -> Mapping[str, Any]:
        """The spec as the user wrote it."""
        return self.manifest.get("spec") or {}

    @property
    def suspend(self) -> bool:
        """Whether the job must hold no NPU; it counts even if the rest of the spec is invalid."""
        return self.raw_spec.get("suspend") is True

    @property
    def is_as_created(self) -> bool:
        """Whether the spec was never edited: the API server counts every edit of it."""
        return int(self.manifest["metadata"].get("generation", 1)) <= 1

    @property
    def stop_requested(self) -> bool:
        """Whether the user wants the job to end; with a spec that was never edited, that is a mistake to refuse."""
        return asks_to_stop(self.raw_spec) and not self.is_as_created

    @property
    def restart_request(self) -> str | None:
        """The value of the annotation by which the user asks for a new cluster, if it was not acted on yet."""
        asked = (self.manifest["metadata"].get("annotations") or {}).get(labels.RESTART)
        asked = None if asked is None else status.bounded(asked, RESTART_VALUE_BYTES)
        return None if asked == self.status.restart_request else asked

    @property
    def began(self) -> bool:
        """Whether there is an intent; without one the status is new, or was lost."""
        return self.status.intent is not None

    @property
    def active(self) -> bool:
        """Whether a cluster generation is under way."""
        return self.status.intent is not None and not self.status.intent.ended

    @property
    def between_generations(self) -> bool:
        """Whether the job began and no cluster generation is under way."""
        return self.began and not self.active

    @property
    def finished(self) -> bool:
        """Whether the condition Finished is True."""
        return status.is_true(self.status, ConditionType.FINISHED)

    @property
    def intent(self) -> Intent:
        """The intent; only steps after `intend` may ask for it."""
        if self.status.intent is None:
            raise AssertionError("a step asked for the intent before there was one")
        return self.status.intent

    @property
    def resolved(self) -> Resolved:
        """What was resolved; it is written together with the intent."""
        if self.status.resolved is None:
            raise AssertionError("a step asked for what was resolved before there was an intent")
        return self.status.resolved

    @cached_property
    def cluster(self) -> Manifest | None:
        """The RayCluster of the intended generation."""
        return intended_cluster(self.status, self.clusters)

    @property
    def is_starting(self) -> bool:
        """Whether the intended cluster exists and is not ready for its first or next attempt."""
        cluster, intent = self.cluster, self.intent
        if intent.attempt > 0 or cluster is None:
            return False
        return intent.awaits_workers or not cluster_is_ready(cluster, self.head_pod)

    @property
    def is_held_back(self) -> bool:
        """Whether a queue holds the intended cluster back: it is suspended, or its admission is not recorded yet."""
        suspended = self.cluster is not None and is_suspended(self.cluster)
        return suspended or status.is_waiting_for(self.status, Reason.WAITING_FOR_QUEUE)

    @property
    def is_late(self) -> bool:
        """Whether the start deadline has passed."""
        return self.now >= times.from_text(self.intent.start_deadline)

    @property
    def attempt(self) -> Attempt | None:
        """The record of the intended attempt; None until Ray knows the submission."""
        if self.status.intent is None:
            return None
        wanted = self.intent.submission_id
        return next((entry for entry in self.status.attempts if entry.submission_id == wanted), None)

    @property
    def open_attempt(self) -> Attempt | None:
        """The intended attempt until it ends."""
        return self.attempt if self.attempt is not None and self.attempt.end_time is None else None

    @property
    def head_is_intended(self) -> bool:
        """Whether the head pod is the one that runs the attempt."""
        return self.head_pod is not None and self.is_intended_head(self.head_pod)

    def is_intended_head(self, pod: Manifest) -> bool:
        """Report whether a pod is the head that runs the attempt."""
        return bool(pod["metadata"]["uid"] == self.intent.head_pod_uid)
