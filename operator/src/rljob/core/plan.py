"""What to do next about one RLJob: the only output of `reconcile`.

A plan is either an intent (a status write, with the events that report it) or effects whose intent is in the observed
status. `control.execute` carries it out; the process may end after any effect.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from rljob.core.observed import Manifest
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import Port, StopMode


class EventType(enum.StrEnum):
    """Types of Kubernetes events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class EventNote:
    """A Kubernetes event on the RLJob: the submission, the end, and what somebody should look at.

    Normal progress is in the conditions; an event that only repeats a condition would be a needless write.
    """

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True)
class CreateObject:
    """POST a manifest. AlreadyExists: adopt if controller uid and intent annotation match, else a Refusal."""

    manifest: Manifest


@dataclass(frozen=True)
class CreateToken:
    """POST the Secret with the token of a Ray cluster; the executor derives the token, so that no plan holds a secret.

    AlreadyExists counts as done: the operator may create Secrets but not read them, and its key determines the token.
    """

    manifest: Manifest
    """The Secret without data."""
    job_uid: str
    cluster_name: str


@dataclass(frozen=True)
class DeleteObject:
    """DELETE with a uid precondition, after a live read that the RLJob is still at the observed resourceVersion."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class SubmitJob:
    """POST the Ray job to the intended head pod; "already exists" counts as submitted."""

    pod_ip: str
    pod_uid: str
    job_uid: str
    cluster_name: str
    submission_id: str
    entrypoint: str
    environment: tuple[tuple[str, str], ...]
    metadata: tuple[tuple[str, str], ...]
    port: int = DASHBOARD_PORT
    may_be_open: bool = False
    """Whether the job allows a Ray that accepts requests without a token."""


@dataclass(frozen=True)
class StopRun:
    """Ask the exporter in the head pod to stop the attempt; a head that does not answer is asked again later."""

    pod_ip: str
    pod_uid: str
    job_uid: str
    cluster_name: str
    attempt: int
    mode: StopMode
    port: int = Port.API.value


@dataclass(frozen=True)
class SetFinalizers:
    """PATCH the RLJob's finalizers as a whole, if it is still at the observed resourceVersion."""

    finalizers: tuple[str, ...]


@dataclass(frozen=True)
class ShortenGracePeriod:
    """DELETE a terminating pod again with the shortest grace period: no part of a run is in it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class KeepEvidence:
    """POST the ConfigMap of ended attempts, or PUT it if it names a resourceVersion."""

    manifest: Manifest


@dataclass(frozen=True)
class WriteAllocations:
    """Write the ConfigMap of port blocks as a whole, if it is still at the version that the manifest names."""

    manifest: Manifest


@dataclass(frozen=True)
class DeleteGenerations:
    """DELETE what generations before one of the job froze; a failure is not retried before the next generation."""

    before: int
    kept: frozenset[str]
    """ConfigMaps that later generations use."""


Effect = (
    CreateObject
    | CreateToken
    | DeleteObject
    | ShortenGracePeriod
    | SubmitJob
    | StopRun
    | SetFinalizers
    | KeepEvidence
    | WriteAllocations
    | DeleteGenerations
)


@dataclass(frozen=True)
class Plan:
    """The next step. An empty plan means that nothing is to be done before `requeue_after_seconds`, if given."""

    status: Manifest | None = None
    """The whole desired status, written with the observed resourceVersion as precondition."""
    effects: tuple[Effect, ...] = ()
    events: tuple[EventNote, ...] = ()
    requeue_after_seconds: float | None = None
    rests: bool = False
    """Nothing follows from the status write itself: the next look is due after `requeue_after_seconds`."""

    def __post_init__(self) -> None:
        """Enforce law 3: intent before effect."""
        if self.status is not None and self.effects:
            raise AssertionError("a plan holds an intent or effects, never both")
        if self.events and self.status is None:
            raise AssertionError("events belong to the status write that they report")
        if self.rests and (self.status is None or self.requeue_after_seconds is None):
            raise AssertionError("a plan rests after a status write, for a time that it names")

    def waiting_at_most(self, seconds: float) -> Plan:
        """Return the plan; if nothing is to be written, with a next look within this time."""
        if not self.empty:
            return self
        wait = self.requeue_after_seconds
        return replace(self, requeue_after_seconds=seconds if wait is None else min(wait, seconds))

    @property
    def empty(self) -> bool:
        """Whether nothing is to be written."""
        return self.status is None and not self.effects
