"""RLJob v1alpha1: the status that the operator writes, and nobody else.

`state` and `reason` are summaries for people and never an input; the operator itself reads `intent`, `resolved`,
`conditions` and `attempts`. All of it stays below 16 kB.
"""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import ConfigDict, Field

from rljob.api.base import ATOMIC, Count, Long, Metric, Model, NonNegative, ObjectName, Text, Time, keyed_by
from rljob.api.v1alpha1 import RecipeKind

Message = Annotated[str, Field(max_length=2048)]
Word = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]


class StatusModel(Model):
    """Part of the status: fields of another operator version are passed over, so that an upgrade can be undone."""

    model_config = ConfigDict(extra="ignore")


class ConditionType(enum.StrEnum):
    """Types of conditions; True is the good news, except for PendingChanges, RecipeDrift and RendererDrift."""

    VALIDATED = "Validated"
    INITIALIZED = "Initialized"
    CLUSTER_READY = "ClusterReady"
    PROGRESSING = "Progressing"
    CHECKPOINTED = "Checkpointed"
    SUSPENDED = "Suspended"
    PENDING_CHANGES = "PendingChanges"
    RECIPE_DRIFT = "RecipeDrift"
    RENDERER_DRIFT = "RendererDrift"
    FINISHED = "Finished"


class ConditionStatus(enum.StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """As metav1.Condition."""

    type: Word
    """What the condition is about."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Word
    """A word of the reference."""
    message: Message = ""
    """The reason for people."""
    last_transition_time: Time
    """When status changed last."""
    observed_generation: Long | None = None
    """Generation of the spec that was judged."""


class State(enum.StrEnum):
    """Summary of the conditions for `kubectl get`."""

    PENDING = "Pending"
    INVALID = "Invalid"
    INITIALIZING = "Initializing"
    STARTING = "Starting"
    TRAINING = "Training"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Decision(StatusModel):
    """A value that the operator chose, and why."""

    name: Text
    """Field of the spec."""
    value: Text
    """What was chosen."""
    reason: Text
    """Why."""


class ResolvedCode(StatusModel):
    """Where the user's code comes from, and which code it is."""

    type: Word
    """As code.type."""
    config_map: ObjectName | None = None
    """The ConfigMap that is copied."""
    digest: Text | None = None
    """SHA-256 over the sorted data of the copied ConfigMap, or the commit; none: it cannot be known."""


class ResolvedRecipe(StatusModel):
    """A recipe as it was taken."""

    kind: RecipeKind
    """RLRecipe or ClusterRLRecipe."""
    name: ObjectName
    """Its name."""
    uid: Text
    """Which one of this name."""
    generation: Long
    """Which version of it."""
    hash: Text
    """SHA-256 of its template and unset."""


class Resolved(StatusModel):
    """What was fixed when the job began, or when it took another spec."""

    snapshot_name: ObjectName
    """ConfigMap with the merged spec and the recipes below it."""
    spec_hash: Text
    """Hash of what a running job does not read again."""
    nodes: Count
    """Worker pods."""
    devices: Count
    """NPU devices (dies) of all workers."""
    cards: Metric
    """Cards of all workers."""
    initializers: Annotated[list[ObjectName], Field(max_length=9, json_schema_extra=ATOMIC)] = []
    """Names of the Jobs that run first; with code in Git, one fetches it."""
    code: ResolvedCode | None = None
    """The user's code."""
    base_snapshot: ObjectName | None = None
    """The snapshot whose recipes this one stands on; absent where recipes were read anew."""
    recipes: Annotated[list[ResolvedRecipe], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """What the spec stands on, the lowest first."""
    decisions: Annotated[list[Decision], Field(max_length=32, json_schema_extra=ATOMIC)] = []
    """Every value that was Auto."""


class Intent(StatusModel):
    """What the operator is about to do, written before it does it."""

    cluster_generation: Count
    """Counts the clusters of this job."""
    cluster_name: ObjectName
    """RayCluster, its Secret and its ConfigMap."""
    time: Time
    """When it was written."""
    start_deadline: Time
    """The driver must have shown itself by then."""
    cluster_uid: Text | None = Field(default=None, alias="clusterUID")
    """Known once the RayCluster exists."""
    attempt: NonNegative = 0
    """0: nothing submitted to this cluster yet."""
    submission_id: ObjectName | None = None
    """Ray job of the attempt."""
    head_pod_uid: Text | None = Field(default=None, alias="headPodUID")
    """The only pod that may run the attempt."""
    ended: bool = False
    """This generation's cluster and pods are gone for good; the next one follows when the job goes on."""


class AttemptOutcome(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    """Its cluster or head pod is gone."""
    STOPPED = "Stopped"
    """On request."""


class Attempt(StatusModel):
    """One run of the driver."""

    number: Count
    """1 for the first."""
    cluster_name: ObjectName
    """Where it ran."""
    submission_id: ObjectName
    """Ray job."""
    submitted_time: Time
    """When Ray took it."""
    start_time: Time | None = None
    """When the launcher began."""
    end_time: Time | None = None
    """When its end was seen."""
    outcome: AttemptOutcome | None = None
    """How it ended."""
    reason: Word | None = None
    """Why, in a word."""
    message: Message | None = None
    """Why, for people."""
    last_step: NonNegative = 0
    """The last step that was seen."""


class Progress(StatusModel):
    """The last step that was seen."""

    step: NonNegative = 0
    """Steps done."""
    total_steps: NonNegative = 0
    """Steps of the whole run."""
    summary: Text = ""
    """step/totalSteps"""
    reward: Metric | None = None
    """Mean score of the step."""
    response_tokens_mean: Metric | None = None
    """Mean length of the responses."""
    tokens_per_second_per_card: Metric | None = None
    """Throughput of the whole step."""
    first_dp_idle_ratio: Metric | None = Field(default=None, alias="firstDPIdleRatio")
    """Share of the rollout that the first replica to finish then waits."""
    cluster_idle_ratio: Metric | None = None
    """Share of the rollout that all replicas together wait."""
    step_seconds: Metric | None = None
    """Duration of the step."""
    eta: Time | None = None
    """When the run will be through at this pace."""
    observed_time: Time | None = None
    """When the trainer recorded the step."""


class InitializerStatus(StatusModel):
    """What the running initializer says."""

    name: Text
    """Its name in the spec."""
    line: Text = ""
    """The last line of its log."""
    observed_time: Time
    """When it was read."""


class StopStatus(StatusModel):
    """A stop under way: it always completes."""

    reason: Word
    """What asked for it."""
    mode: Word
    """How the trainer is asked."""
    requested_time: Time
    """When it began."""
    deadline: Time
    """The cluster is deleted then at the latest."""


class CheckpointStatus(StatusModel):
    """The last checkpoint that was seen."""

    step: NonNegative
    """The step that it holds."""
    path: Text
    """Folder of the checkpoints."""
    saved_time: Time
    """When it was seen first."""


class RayClusterStatus(StatusModel):
    """Where to look."""

    name: ObjectName
    """Name of the RayCluster."""
    dashboard_url: Text | None = Field(default=None, alias="dashboardURL")
    """Ray's dashboard, inside the cluster."""


class RLJobStatus(StatusModel):
    """What is known of the job."""

    observed_generation: Long = 0
    """Generation of the spec that was seen last."""
    conditions: Annotated[list[Condition], Field(max_length=16, json_schema_extra=keyed_by("type"))] = []
    """What is known."""
    state: State = State.PENDING
    """Summary of the conditions."""
    reason: Word | None = None
    """Why, in a word."""
    message: Message | None = None
    """Why, for people."""
    restarts: NonNegative = 0
    """Attempts after the first."""
    resolved: Resolved | None = None
    """What was fixed when the job began."""
    intent: Intent | None = None
    """What the operator is about."""
    initializer: InitializerStatus | None = None
    """The initializer that runs."""
    attempts: Annotated[list[Attempt], Field(max_length=10, json_schema_extra=ATOMIC)] = []
    """The last ten."""
    progress: Progress | None = None
    """The last step that was seen."""
    checkpoint: CheckpointStatus | None = None
    """The last checkpoint that was seen."""
    stop: StopStatus | None = None
    """A stop under way."""
    ray_cluster: RayClusterStatus | None = None
    """Where to look."""
    finished_time: Time | None = None
    """When the job ended."""
