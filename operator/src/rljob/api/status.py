"""RLJob v1alpha1: the status, which only the operator writes.

`state` and `reason` are summaries for people and never an input; the operator itself reads `intent`, `resolved`,
`conditions` and `attempts`. The whole status stays below 16 kB.
"""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from rljob.api.base import (
    ATOMIC,
    Count,
    Long,
    Message,
    Metric,
    NonNegative,
    ObjectName,
    StatusModel,
    Text,
    Time,
    Word,
    keyed_by,
)
from rljob.api.evaluation import EvaluationStatus
from rljob.api.export_status import ExportStatus
from rljob.api.recovery_time import RecoveryTime, UnproductiveTime
from rljob.api.under_way import EndingStatus, InitializerStatus, StartStatus, StopStatus
from rljob.api.v1alpha1 import RecipeKind


class ConditionType(enum.StrEnum):
    """Types of conditions. True is the normal state, except for those that degrade or drift, PendingChanges, Paused."""

    VALIDATED = "Validated"
    INITIALIZED = "Initialized"
    ADMITTED = "Admitted"
    CLUSTER_READY = "ClusterReady"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    ROLLOUT_DEGRADED = "RolloutDegraded"
    CHECKPOINTED = "Checkpointed"
    SUSPENDED = "Suspended"
    PENDING_CHANGES = "PendingChanges"
    RECIPE_DRIFT = "RecipeDrift"
    RENDERER_DRIFT = "RendererDrift"
    PAUSED = "Paused"
    FINISHED = "Finished"


class ConditionStatus(enum.StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """A condition with the fields of metav1.Condition."""

    type: Word
    """Type of the condition."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Word
    """Reason for the status, one of the reasons in the reference."""
    message: Message = ""
    """Human-readable explanation."""
    last_transition_time: Time
    """Time at which status changed last."""
    observed_generation: Long | None = None
    """Generation of the spec that the condition was computed from."""


class State(enum.StrEnum):
    """Summary of the conditions for `kubectl get`."""

    PENDING = "Pending"
    INVALID = "Invalid"
    INITIALIZING = "Initializing"
    QUEUED = "Queued"
    STARTING = "Starting"
    TRAINING = "Training"
    STOPPING = "Stopping"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


class Decision(StatusModel):
    """A value that the operator chose, with the reason."""

    name: Text
    """Path of the field in the spec."""
    value: Text
    """Value that the operator chose."""
    reason: Text
    """Reason for the choice."""


class ResolvedCode(StatusModel):
    """The source and the version of the user's code."""

    type: Word
    """Value of code.type."""
    config_map: ObjectName | None = None
    """ConfigMap that is copied."""
    digest: Text | None = None
    """SHA-256 over the sorted data of the copied ConfigMap, or the Git commit. Unset if the version cannot be
    determined."""


class ResolvedRecipe(StatusModel):
    """A recipe as it was read when the job started."""

    kind: RecipeKind
    """Kind of the recipe: RLRecipe or ClusterRLRecipe."""
    name: ObjectName
    """Name of the recipe."""
    uid: Text
    """UID of the recipe."""
    generation: Long
    """Generation of the recipe."""
    hash: Text
    """SHA-256 of the recipe's template and unset."""


class Resolved(StatusModel):
    """What was fixed when the job started, or when it adopted a changed spec."""

    snapshot_name: ObjectName
    """ConfigMap with the merged spec and the recipes that it is based on."""
    spec_hash: Text
    """Hash of the part of the spec that a running job does not read again."""
    nodes: Count
    """Number of worker pods."""
    devices: Count
    """Number of NPU devices (dies) of all workers."""
    cards: Metric
    """Number of cards of all workers."""
    initializers: Annotated[list[ObjectName], Field(max_length=9, json_schema_extra=ATOMIC)] = []
    """Names of the Jobs that run before the cluster is created, including the one that fetches code from Git."""
    code: ResolvedCode | None = None
    """The source and the version of the user's code."""
    base_snapshot: ObjectName | None = None
    """Snapshot from which the recipes were taken. Unset if the recipes were read again."""
    recipes: Annotated[list[ResolvedRecipe], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """Recipes that the spec is based on, the base recipe first."""
    host_network: bool | None = None
    """Whether the pods share the nodes' network and therefore need ports of their own."""
    decisions: Annotated[list[Decision], Field(max_length=32, json_schema_extra=ATOMIC)] = []
    """Values that the operator chose for fields set to Auto."""


class ContainerFailure(StatusModel):
    """A container that ended before its pod was ready, counted over the pods of one cluster."""

    role: Annotated[str, Field(max_length=63)]
    """Node type of the pods: head or worker."""
    container: Text
    """Name of the container. Empty if only the pods are known to have failed."""
    exit_code: Annotated[int, Field(ge=0, le=2_147_483_647, json_schema_extra={"format": "int32"})] | None = None
    """Exit code of the container. Unset if it could not be created."""
    reason: Text
    """Reason that the kubelet reports."""
    message: Message = ""
    """Last lines of the container, or the error of the container runtime."""
    count: Count
    """Number of identical ends, counted up to 3."""
    time: Time
    """Time of the last of them."""


class Intent(StatusModel):
    """What the operator is about to do, recorded before it acts."""

    cluster_generation: Count
    """Number of the cluster, counted from 1 over the life of the job."""
    cluster_name: ObjectName
    """Name of the RayCluster, of its Secret and of its ConfigMap."""
    time: Time
    """Time at which the intent was recorded."""
    start_deadline: Time
    """Time by which the driver must have reported."""
    start_seconds: Count | None = None
    """Value of deadlines.startSeconds that startDeadline was computed from."""
    cluster_uid: Text | None = Field(default=None, alias="clusterUID")
    """UID of the RayCluster, once it exists."""
    attempt: NonNegative = 0
    """Number of the attempt. 0: nothing has been submitted yet."""
    submission_id: ObjectName | None = None
    """ID of the attempt's Ray job."""
    head_pod_uid: Text | None = Field(default=None, alias="headPodUID")
    """UID of the only pod that may run the attempt."""
    head_node: ObjectName | None = None
    """Node of that pod."""
    container_failures: Annotated[list[ContainerFailure], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """Containers of this cluster that ended before the attempt could begin."""
    awaits_workers: bool = False
    """Whether lost workers of the cluster must be replaced before the next attempt."""
    clusters_without_step: NonNegative = 0
    """Number of clusters in a row before this one that ended at a user's request before a step."""
    ended: bool = False
    """Whether the cluster and its pods are gone for good."""


class AttemptOutcome(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    """The cluster or the head pod is gone, or the start failed."""
    STOPPED = "Stopped"
    """The attempt was stopped on request."""
    PREEMPTED = "Preempted"
    """The pods were evicted in favor of another workload."""


class FailureCause(enum.StrEnum):
    """Category of a failure. Each category has its own budget, or none."""

    CONFIGURATION = "Configuration"
    """A failure of the manifest. Another attempt would fail in the same way."""
    USER = "User"
    """A failure of the run itself, bounded by restart.maxRestarts."""
    INFRASTRUCTURE = "Infrastructure"
    """A failure of pods, nodes, devices or Ray, bounded by restart.maxInfrastructureRestarts."""
    PREEMPTION = "Preemption"
    """The pods were evicted in favor of another workload. Not counted against any budget."""


class Attempt(StatusModel):
    """One run of the driver, or a start that failed."""

    number: Count
    """Number of the attempt, counted from 1."""
    cluster_name: ObjectName
    """RayCluster that the attempt ran in."""
    submission_id: ObjectName
    """ID of the attempt's Ray job."""
    submitted_time: Time
    """Time at which Ray accepted the job. For a start that failed, the time at which its cluster was started."""
    start_time: Time | None = None
    """Time at which the launcher started."""
    end_time: Time | None = None
    """Time at which the operator saw the end of the attempt."""
    outcome: AttemptOutcome | None = None
    """How the attempt ended. Unset while it runs."""
    reason: Word | None = None
    """Reason for the end, one of the reasons in the reference."""
    message: Message | None = None
    """Human-readable explanation of the end."""
    cause: FailureCause | None = None
    """Category of the failure. Unset if the attempt did not fail."""
    node: ObjectName | None = None
    """Node that the failure points to."""
    resumed_from_step: NonNegative = 0
    """Step of the checkpoint that the attempt resumed from. 0: none."""
    last_step: NonNegative = 0
    """Last step that the operator saw."""
    last_step_time: Time | None = None
    """Time of that step. Unset until the end, and if the attempt made none."""
    stop_time: Time | None = None
    """Time at which the operator ordered the stop. Unset if the attempt ended by itself."""
    recovery: Annotated[list[RecoveryTime], Field(max_length=17, json_schema_extra=ATOMIC)] = []
    """Seconds from the last step before this attempt to its first one, by cause. Empty if there was none before."""
    device_seconds: Long | None = None
    """Devices held, in device-seconds. While the attempt runs: devices held since its start."""
    productive_device_seconds: Long | None = None
    """Part of deviceSeconds spent on steps that no later attempt repeated."""
    unproductive: Annotated[list[UnproductiveTime], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """The rest of deviceSeconds by use, once the attempt has ended."""
    card_seconds: Long | None = None
    """Cards held, in card-seconds. A card of Atlas A3 has two devices."""
    productive_card_seconds: Long | None = None
    """productiveDeviceSeconds in card-seconds."""


class Progress(StatusModel):
    """Progress of the run, from the last step that the operator saw."""

    step: NonNegative = 0
    """Number of completed steps."""
    total_steps: NonNegative = 0
    """Number of steps of the whole run."""
    summary: Text = ""
    """Progress as step/totalSteps, such as 12/40."""
    reward: Metric | None = None
    """Mean score of the step."""
    response_tokens_mean: Metric | None = None
    """Mean length of the responses, in tokens."""
    tokens_per_second_per_card: Metric | None = None
    """Throughput of the whole step, in tokens per second per card."""
    first_dp_idle_ratio: Metric | None = Field(default=None, alias="firstDPIdleRatio")
    """Fraction of the rollout during which the first replica to finish waits for the others."""
    cluster_idle_ratio: Metric | None = None
    """Fraction of the rollout during which replicas wait, averaged over all replicas."""
    step_seconds: Metric | None = None
    """Duration of the step, in seconds."""
    median_step_seconds: Metric | None = None
    """Median duration of the attempt's steps in seconds, including saving and validation."""
    record_seconds: Metric | None = None
    """Median time between two records of steps in seconds, where a command does not record every step."""
    median_rollout_seconds: Metric | None = None
    """Median duration of the attempt's rollouts in seconds, from the first request to the last response."""
    save_every_steps: NonNegative | None = None
    """Number of steps between checkpoints that the trainer has decided, where the job states none."""
    eta: Time | None = None
    """Time at which the run is expected to finish at the current pace."""
    observed_time: Time | None = None
    """Time at which the trainer recorded the step."""


class CheckpointStatus(StatusModel):
    """The last checkpoint that the operator saw."""

    step: NonNegative
    """Step of the checkpoint."""
    path: Text
    """Folder of the checkpoints."""
    saved_time: Time
    """Time at which the checkpoint was complete."""
    seconds: Metric | None = None
    """Seconds for which training paused to save it."""
    bytes: Long | None = None
    """Size of the checkpoint, in bytes."""


class Counters(StatusModel):
    """Number of attempts that did not end well, by cause, over the life of the job."""

    user_failures: NonNegative = 0
    """Number of failures of the run itself."""
    infrastructure_failures: NonNegative = 0
    """Number of losses of pods, nodes, devices or Ray."""
    preemptions: NonNegative = 0
    """Number of preemptions and evictions in favor of other workloads."""


class Budget(StatusModel):
    """Failures counted against the limits on restarts.

    A failure starts a new count if a checkpoint was saved since the previous one.
    """

    user_failures: NonNegative = 0
    """Number of failures counted against restart.maxRestarts."""
    infrastructure_failures: NonNegative = 0
    """Number of failures counted against restart.maxInfrastructureRestarts."""
    uncounted: NonNegative = 0
    """Number of restarts by a rule with RestartWithoutCounting. These are bounded separately."""
    since_step: NonNegative = 0
    """Step of the newest checkpoint at the last failure."""


class ExcludedNode(StatusModel):
    """A node that the next clusters of the job avoid."""

    name: ObjectName
    """Value of the node's label kubernetes.io/hostname."""
    reason: Word
    """Reason of the failure that is attributed to the node."""
    until: Time
    """Time until which the node is avoided. It is used again earlier if its fault disappears."""
    message: Text | None = None
    """Human-readable description of the fault."""


class Usage(StatusModel):
    """What the job has held and used, over all attempts that have ended."""

    attempt_seconds: Long = 0
    """Duration of all attempts in seconds, each from submission to end."""
    device_seconds: Long = 0
    """Devices held by all attempts, in device-seconds."""
    productive_device_seconds: Long = 0
    """Part of deviceSeconds spent on steps that no later attempt repeated."""
    unproductive: Annotated[list[UnproductiveTime], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """The rest of deviceSeconds by use."""
    card_seconds: Long = 0
    """deviceSeconds in card-seconds."""
    productive_card_seconds: Long = 0
    """productiveDeviceSeconds in card-seconds."""
    goodput: Metric | None = None
    """productiveDeviceSeconds divided by deviceSeconds."""


class NetworkStatus(StatusModel):
    """Ports of the nodes that are reserved for the job."""

    port_block: Count
    """First of the ports that are reserved for this job on every node, with network.mode Host."""


class RayClusterStatus(StatusModel):
    """The current RayCluster."""

    name: ObjectName
    """Name of the RayCluster."""
    dashboard_url: ObjectName | None = Field(default=None, alias="dashboardURL")
    """URL of Ray's dashboard inside the cluster."""
    runtime_image: ObjectName | None = None
    """Image whose runtime the pods have, with runtime.injection Auto."""
    verl_version: Annotated[str, Field(max_length=64)] | None = None
    """Version of the verl that runs, once the run has reported it."""
    packages: Annotated[str, Field(max_length=800)] | None = None
    """Packages that are installed over those of the image, as name==version, separated by spaces."""


class RLJobStatus(StatusModel):
    """The observed state of the job."""

    observed_generation: Long = 0
    """Generation of the spec that the operator saw last."""
    conditions: Annotated[list[Condition], Field(max_length=16, json_schema_extra=keyed_by("type"))] = []
    """Conditions of the job."""
    state: State = State.PENDING
    """Summary of the conditions."""
    reason: Word | None = None
    """Reason for the state, one of the reasons in the reference."""
    message: Message | None = None
    """Human-readable explanation of the state."""
    restarts: NonNegative = 0
    """Number of attempts that replaced one that did not end well."""
    resolved: Resolved | None = None
    """What was fixed when the job started."""
    intent: Intent | None = None
    """What the operator is about to do."""
    initializer: InitializerStatus | None = None
    """State of the running initializer."""
    services: Annotated[list[Annotated[str, Field(max_length=63)]], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Names of the Deployments, Services and NetworkPolicies of services with placement Shared, from before they exist
    until some minutes after they are deleted."""
    attempts: Annotated[list[Attempt], Field(max_length=10, json_schema_extra=ATOMIC)] = []
    """The last ten attempts."""
    progress: Progress | None = None
    """Progress of the run, from the last step that the operator saw."""
    notes: Annotated[list[Annotated[str, Field(max_length=400)]], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """What the run reported although it continued, such as prompts that were left out: the first four."""
    checkpoint: CheckpointStatus | None = None
    """The last checkpoint that the operator saw."""
    export: ExportStatus | None = None
    """Exports of checkpoints."""
    evaluation: EvaluationStatus | None = None
    """Evaluations of checkpoints."""
    start: StartStatus | None = None
    """What the start of the latest attempt is doing, or did."""
    restart_request: Annotated[str, Field(max_length=253)] | None = None
    """Value of the annotation rljob.dev/restart that was acted on last, or that a new cluster made pointless."""
    stop: StopStatus | None = None
    """A stop in progress."""
    ending: EndingStatus | None = None
    """The driver's end as reported by Ray, kept until the exporter answers with more detail."""
    counters: Counters = Counters()
    """Number of attempts that did not end well, by cause."""
    budget: Budget = Budget()
    """Failures that are compared with the limits on restarts."""
    next_attempt_time: Time | None = None
    """Time before which the next attempt does not start."""
    excluded_nodes: Annotated[list[ExcludedNode], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Nodes that the next clusters of the job avoid."""
    usage: Usage = Usage()
    """What the job has held and used."""
    network: NetworkStatus | None = None
    """Ports reserved for the job, until it is finished and its pods are gone."""
    ray_cluster: RayClusterStatus | None = None
    """The current RayCluster."""
    finished_time: Time | None = None
    """Time at which the job finished."""
