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
    """Types of conditions; True is the good news, except for Degraded, PendingChanges, both drifts, and Paused."""

    VALIDATED = "Validated"
    INITIALIZED = "Initialized"
    ADMITTED = "Admitted"
    CLUSTER_READY = "ClusterReady"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
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
    host_network: bool | None = None
    """Whether the pods share the nodes' network, and so need ports of their own."""
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
    """The driver must show itself by then."""
    start_seconds: Count | None = None
    """By deadlines.startSeconds."""
    cluster_uid: Text | None = Field(default=None, alias="clusterUID")
    """Known once the RayCluster exists."""
    attempt: NonNegative = 0
    """0: nothing is submitted yet."""
    submission_id: ObjectName | None = None
    """Ray job of the attempt."""
    head_pod_uid: Text | None = Field(default=None, alias="headPodUID")
    """The only pod that may run the attempt."""
    head_node: ObjectName | None = None
    """Where that pod runs."""
    ended: bool = False
    """Its cluster and pods are gone for good."""


class AttemptOutcome(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    """Its cluster or head pod is gone, or the start failed."""
    STOPPED = "Stopped"
    """On request."""
    PREEMPTED = "Preempted"
    """Its pods were taken for somebody else."""


class FailureCause(enum.StrEnum):
    """Whose failure the end of an attempt is: each has a budget of its own, or none."""

    CONFIGURATION = "Configuration"
    """Of the manifest: another attempt would fail alike."""
    USER = "User"
    """Of the run itself; restart.maxRestarts bounds these."""
    INFRASTRUCTURE = "Infrastructure"
    """Of pods, nodes, devices or Ray; restart.maxInfrastructureRestarts bounds these."""
    PREEMPTION = "Preemption"
    """Nobody's: the pods were given to somebody else. Not counted against any budget."""


class Attempt(StatusModel):
    """One run of the driver, or a start that failed."""

    number: Count
    """1 for the first."""
    cluster_name: ObjectName
    """Where it ran."""
    submission_id: ObjectName
    """Ray job."""
    submitted_time: Time
    """When Ray took it; of a failed start, when its cluster began."""
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
    cause: FailureCause | None = None
    """Whose failure it was; none where it did not fail."""
    node: ObjectName | None = None
    """The node to which the failure points."""
    resumed_from_step: NonNegative = 0
    """The checkpoint that it began with; 0: none."""
    last_step: NonNegative = 0
    """The last step that was seen."""
    device_seconds: Long | None = None
    """Devices times seconds held; while it runs: by its start."""
    productive_device_seconds: Long | None = None
    """Of these, for steps that no later attempt repeated."""
    card_seconds: Long | None = None
    """deviceSeconds in cards; one of Atlas A3 has two devices."""
    productive_card_seconds: Long | None = None
    """productiveDeviceSeconds in cards."""


class Progress(StatusModel):
    """The last step that was seen."""

    step: NonNegative = 0
    """Steps done."""
    total_steps: NonNegative = 0
    """Steps of the whole run."""
    summary: Text = ""
    """step/totalSteps"""
    reward: Metric | None = None
    """Its mean score."""
    response_tokens_mean: Metric | None = None
    """Mean length of the responses."""
    tokens_per_second_per_card: Metric | None = None
    """Throughput of the whole step."""
    first_dp_idle_ratio: Metric | None = Field(default=None, alias="firstDPIdleRatio")
    """Share of the rollout that the first replica to finish then waits."""
    cluster_idle_ratio: Metric | None = None
    """Share of the rollout that all replicas together wait."""
    step_seconds: Metric | None = None
    """Its duration."""
    median_step_seconds: Metric | None = None
    """Median duration of the attempt's steps, with saving and validation."""
    median_rollout_seconds: Metric | None = None
    """Median duration of the attempt's rollouts, first request to last answer."""
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
    """A stop under way."""

    reason: Word
    """What asked for it."""
    mode: Word
    """How the trainer is asked."""
    decision: Text = ""
    """Why it is asked so."""
    requested_time: Time
    """When it began."""
    deadline: Time
    """The run is ended then."""
    message: Message = ""
    """The reason for people."""
    fault: Word | None = None
    """Class of the fault."""
    nodes: Annotated[list[ObjectName], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Nodes at fault, the worst first."""


class EndingStatus(StatusModel):
    """What Ray said of the driver's end, until the exporter, which knows more, answers."""

    time: Time
    """When Ray said so."""
    deadline: Time
    """From then on Ray's word alone counts."""
    exit_code: Annotated[int, Field(ge=-2_147_483_647, le=2_147_483_647, json_schema_extra={"format": "int32"})]
    """Of the driver."""
    reason: Word | None = None
    """Why, in a word."""
    message: Message = ""
    """Why, for people."""
    rule: Text | None = None
    """The rule of the manifest that matched."""
    last_step: NonNegative = 0
    """The last step that was known then."""
    unruled_exit_code: (
        Annotated[int, Field(ge=-2_147_483_647, le=2_147_483_647, json_schema_extra={"format": "int32"})] | None
    ) = None
    """Where a restart rule matched: the exit code without it."""
    nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Nodes at fault, the worst first."""
    suspect: Annotated[str, Field(max_length=253)] | None = None
    """The node that was lost."""


class CheckpointStatus(StatusModel):
    """The last checkpoint that was seen."""

    step: NonNegative
    """The step that it holds."""
    path: Text
    """Folder of the checkpoints."""
    saved_time: Time
    """When it was complete."""
    seconds: Metric | None = None
    """How long the trainer stood still for it."""
    bytes: Long | None = None
    """Its size."""


class Counters(StatusModel):
    """Attempts that did not end well, by cause, over the life of the job."""

    user_failures: NonNegative = 0
    """Failures of the run itself."""
    infrastructure_failures: NonNegative = 0
    """Losses of pods, nodes, devices, and of Ray."""
    preemptions: NonNegative = 0
    """Pods given to somebody else."""


class Budget(StatusModel):
    """Failures since the last one before which a newer checkpoint had been saved."""

    user_failures: NonNegative = 0
    """Counted against restart.maxRestarts."""
    infrastructure_failures: NonNegative = 0
    """Counted against restart.maxInfrastructureRestarts."""
    uncounted: NonNegative = 0
    """Restarts by a rule with RestartWithoutCounting; bounded all the same."""
    since_step: NonNegative = 0
    """The newest checkpoint at the last failure."""


class ExcludedNode(StatusModel):
    """A node that the next cluster generations avoid."""

    name: ObjectName
    """Label kubernetes.io/hostname."""
    reason: Word
    """The failure that it is blamed for."""
    until: Time
    """From then on it is used again, or earlier, when its fault is gone."""
    message: Text | None = None
    """The fault, for people."""


class Usage(StatusModel):
    """What the job held, and what it got out of it; attempts that have ended."""

    attempt_seconds: Long = 0
    """Of all attempts, from submission to end."""
    device_seconds: Long = 0
    """Devices times the seconds of all attempts."""
    productive_device_seconds: Long = 0
    """Of these, for steps that no later attempt repeated."""
    card_seconds: Long = 0
    """deviceSeconds in cards."""
    productive_card_seconds: Long = 0
    """productiveDeviceSeconds in cards."""
    goodput: Metric | None = None
    """productiveDeviceSeconds / deviceSeconds."""


class NetworkStatus(StatusModel):
    """What the job has of the nodes' network."""

    port_block: Count
    """First of the ports that are this job's alone on every node, with network.mode Host."""


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
    """Attempts that took the place of one that did not end well."""
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
    ending: EndingStatus | None = None
    """An end that Ray has told and the exporter not yet."""
    counters: Counters = Counters()
    """Attempts that did not end well."""
    budget: Budget = Budget()
    """What the bounds on restarts are compared with."""
    next_attempt_time: Time | None = None
    """The next attempt waits until then."""
    excluded_nodes: Annotated[list[ExcludedNode], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Nodes that the next cluster generations avoid."""
    usage: Usage = Usage()
    """What the job held."""
    network: NetworkStatus | None = None
    """What the job has of the nodes' network, until it is finished and its pods are gone."""
    ray_cluster: RayClusterStatus | None = None
    """Where to look."""
    finished_time: Time | None = None
    """When the job ended."""
