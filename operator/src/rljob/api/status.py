"""RLJob v1alpha1: the status that the operator writes, and nobody else.

`state` and `reason` are summaries for people and never an input; the operator itself reads `intent`, `resolved`,
`conditions` and `attempts`. All of it stays below 16 kB.
"""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import ConfigDict, Field

from rljob.api.base import ATOMIC, Count, Long, Metric, Model, NonNegative, ObjectName, Text, Time, keyed_by

Message = Annotated[str, Field(max_length=2048)]
Word = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]


class StatusModel(Model):
    """Part of the status: fields of another operator version are passed over, so that an upgrade can be undone."""

    model_config = ConfigDict(extra="ignore")


class ConditionType(enum.StrEnum):
    """Types of conditions; True is the good news, except for PendingChanges."""

    VALIDATED = "Validated"
    INITIALIZED = "Initialized"
    CLUSTER_READY = "ClusterReady"
    PROGRESSING = "Progressing"
    PENDING_CHANGES = "PendingChanges"
    FINISHED = "Finished"


class ConditionStatus(enum.StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """As metav1.Condition."""

    type: Word
    status: ConditionStatus
    reason: Word
    message: Message = ""
    last_transition_time: Time
    observed_generation: Long | None = None


class State(enum.StrEnum):
    """Summary of the conditions for `kubectl get`."""

    PENDING = "Pending"
    INVALID = "Invalid"
    INITIALIZING = "Initializing"
    STARTING = "Starting"
    TRAINING = "Training"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Decision(StatusModel):
    """A value that the operator chose, and why."""

    name: Text
    value: Text
    reason: Text


class Resolved(StatusModel):
    """What was fixed when the job began."""

    snapshot_name: ObjectName
    spec_hash: Text
    nodes: Count
    devices: Count
    cards: Metric
    initializers: Annotated[list[ObjectName], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Names of the Jobs that run first."""
    decisions: Annotated[list[Decision], Field(max_length=32, json_schema_extra=ATOMIC)] = []


class Intent(StatusModel):
    """What the operator is about to do, written before it does it."""

    cluster_generation: Count
    cluster_name: ObjectName
    time: Time
    start_deadline: Time
    """The driver must have shown itself by then."""
    cluster_uid: Text | None = Field(default=None, alias="clusterUID")
    attempt: NonNegative = 0
    """0: nothing submitted to this cluster yet."""
    submission_id: ObjectName | None = None
    head_pod_uid: Text | None = Field(default=None, alias="headPodUID")


class AttemptOutcome(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    """Its cluster or head pod is gone."""


class Attempt(StatusModel):
    """One run of the driver."""

    number: Count
    cluster_name: ObjectName
    submission_id: ObjectName
    submitted_time: Time
    start_time: Time | None = None
    end_time: Time | None = None
    outcome: AttemptOutcome | None = None
    reason: Word | None = None
    message: Message | None = None
    last_step: NonNegative = 0


class Progress(StatusModel):
    """The last step that was seen."""

    step: NonNegative = 0
    total_steps: NonNegative = 0
    summary: Text = ""
    """step/totalSteps"""
    reward: Metric | None = None
    response_tokens_mean: Metric | None = None
    tokens_per_second_per_card: Metric | None = None
    first_dp_idle_ratio: Metric | None = Field(default=None, alias="firstDPIdleRatio")
    """Share of the rollout that the first replica to finish then waits."""
    cluster_idle_ratio: Metric | None = None
    """Share of the rollout that all replicas together wait."""
    step_seconds: Metric | None = None
    eta: Time | None = None
    observed_time: Time | None = None
    """When the trainer recorded the step."""


class RayClusterStatus(StatusModel):
    """Where to look."""

    name: ObjectName
    dashboard_url: Text | None = Field(default=None, alias="dashboardURL")


class RLJobStatus(StatusModel):
    """What is known of the job."""

    observed_generation: Long = 0
    conditions: Annotated[list[Condition], Field(max_length=16, json_schema_extra=keyed_by("type"))] = []
    state: State = State.PENDING
    reason: Word | None = None
    message: Message | None = None
    restarts: NonNegative = 0
    resolved: Resolved | None = None
    intent: Intent | None = None
    attempts: Annotated[list[Attempt], Field(max_length=10, json_schema_extra=ATOMIC)] = []
    progress: Progress | None = None
    ray_cluster: RayClusterStatus | None = None
    finished_time: Time | None = None
