"""Everything that was observed of one RLJob: the only input of `reconcile` besides the time.

`control` gathers it: the RLJob, its RayClusters and its head pod from the store, the rest by the requests that steps
require. Absent (None) means "was requested and does not exist"; `UNSEEN` means "was not requested, or could not be
read". A decision must never take one for the other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from rljob.api.status import Attempt, RLJobStatus, State
from rljob.api.v1alpha1 import RecipeKind
from rljob.core.scheduling.discovery import Nodes
from rljob.core.scheduling.node_faults import Held, NodeLook
from rljob.core.scheduling.port_blocks import Allocations
from rljob_runtime.contract import Progress

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""
PROGRESS_WRITE_SECONDS = 30.0
"""Shortest interval between two status writes of a job that only report progress, unless many jobs share the rate."""
PODS_LISTED_MAX = 500
"""Enough to explain why a cluster of 64 nodes does not start. Of a larger one, some pods are not seen."""
PARTIAL_SECONDS = 60
"""KubeRay creates the pods of a cluster within seconds, and the scheduler binds hundreds a second; a node that another
job leaves is free when its pods are gone, usually within their grace period of 30 s."""


@dataclass(frozen=True, order=True)
class RecipeId:
    """Kind and name of a recipe, as seen from a job's namespace."""

    kind: RecipeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Unseen(enum.Enum):
    """The type of UNSEEN."""

    UNSEEN = "unseen"


UNSEEN = Unseen.UNSEEN


class RayJobState(enum.StrEnum):
    """States of Ray's job API (ray.job_submission.JobStatus)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """Whether the driver has ended."""
        return self in (RayJobState.STOPPED, RayJobState.SUCCEEDED, RayJobState.FAILED)


@dataclass(frozen=True)
class RayJob:
    """One answer of `GET /api/jobs/<submission id>` at the intended head pod."""

    submission_id: str
    state: RayJobState
    message: str = ""
    driver_exit_code: int | None = None
    log_tail: str = ""
    """The last lines of the driver's log, at most 4 kB; read only after the job ended."""


class RefusalCause(enum.StrEnum):
    """Why an effect cannot work. Only DENIED may change."""

    NAME_TAKEN = "NameTaken"
    """The name belongs to an object of somebody else."""
    INVALID = "Invalid"
    """The API server refuses the manifest as invalid."""
    OPEN = "Open"
    """The head's job API accepts requests without the token of the cluster."""
    DENIED = "Denied"
    """A permission, a quota or an admission policy refuses it: that may change, so it is tried again."""


@dataclass(frozen=True)
class Refusal:
    """An effect that cannot work."""

    kind: str
    name: str
    why: str
    cause: RefusalCause = RefusalCause.NAME_TAKEN


@dataclass(frozen=True)
class Silence:
    """Since when a head does not answer: the time of the first of this process's unanswered requests in a row."""

    since: datetime
    """Of requests to the exporter."""
    mute_since: datetime | None = None
    """Of requests that Ray's job API did not answer either; None: it answers, so the run is alive."""


@dataclass(frozen=True)
class PodGroupApi:
    """What the API server serves of Volcano's PodGroup."""

    fields: frozenset[str] = frozenset()
    """Fields of its spec and their own fields: `networkTopology`, `networkTopology.mode`."""
    problem: str = ""
    """Why none can be created; empty if they can."""


@dataclass(frozen=True)
class ExportSeen:
    """What was read of an export under way."""

    job: Manifest | Unseen | None = UNSEEN
    """Its Job."""
    pods: tuple[Manifest, ...] | Unseen = UNSEEN
    """The pods of the Job; requested when it has ended, or none of them is ready."""


@dataclass(frozen=True)
class JobsSeen:
    """What was read of the Jobs and the shared services of an RLJob, and of the RLJob that evaluates a checkpoint."""

    initializers: Mapping[str, Manifest | None] = field(default_factory=dict)
    export: ExportSeen = field(default_factory=ExportSeen)
    evaluation: Manifest | Unseen | None = UNSEEN
    services: Mapping[str, SharedServiceSeen] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """The same as fields of `Observed`."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


@dataclass(frozen=True)
class SharedServiceSeen:
    """What was read of a service with placement Shared."""

    deployment: Manifest | Unseen | None = UNSEEN
    service: Manifest | Unseen | None = UNSEEN
    policy: Manifest | Unseen | None = UNSEEN

    @property
    def parts(self) -> tuple[Manifest | Unseen | None, ...]:
        """All of its objects."""
        return self.deployment, self.service, self.policy


@dataclass(frozen=True)
class KubeRayWork:
    """How far KubeRay is with the RayClusters of all jobs, by what it wrote; RFC 3339, empty if it wrote nothing."""

    wrote: str = ""
    """The latest `status.lastUpdateTime`, by KubeRay's clock."""
    reached: str = ""
    """The `creationTimestamp` of the youngest cluster that has a status."""

    def seen(self, cluster: Manifest) -> KubeRayWork:
        """Return the record, updated with what a RayCluster shows."""
        state = cluster.get("status") or {}
        if not state:
            return self
        # In UTC, as every metav1.Time: texts sort as the times do.
        wrote, made = str(state.get("lastUpdateTime", "")), str(cluster["metadata"].get("creationTimestamp", ""))
        return KubeRayWork(max(self.wrote, wrote), max(self.reached, made))


@dataclass(frozen=True)
class Observed:
    """Everything that was observed of one RLJob."""

    job: Manifest
    """The RLJob with metadata, spec and status, at its committed resourceVersion."""
    status: RLJobStatus | None = field(default=None, compare=False, repr=False)
    """Its parsed status, if it was parsed before."""
    clusters: tuple[Manifest, ...] = ()
    """Every RayCluster that carries this job's uid label."""
    live_cluster: Manifest | Unseen | None = UNSEEN
    """The intended RayCluster by a live read; requested when the watch lacks a cluster that existed before."""
    kuberay: KubeRayWork = field(default_factory=KubeRayWork)
    head_pod: Manifest | None = None
    """The head pod of the intended cluster."""
    ended_heads: tuple[Manifest, ...] = ()
    """The last state of head pods of the intended cluster that ended and are gone, as far as this process saw them."""
    former_heads: tuple[Manifest, ...] = ()
    """Head pods of former clusters with its name."""
    workload: Manifest | Unseen | None = UNSEEN
    """Kueue's Workload of the intended cluster."""
    pod_groups: tuple[Manifest, ...] = ()
    """Every PodGroup that this job owns."""
    pod_group_api: PodGroupApi | Unseen = UNSEEN
    """Requested when the gang scheduler is decided, or a PodGroup is created."""
    pods: tuple[Manifest, ...] | Unseen = UNSEEN
    """All pods of the intended cluster, of the initializers or of the shared services; to diagnose what does not start.
    """
    config: Manifest | Unseen | None = UNSEEN
    """The frozen ConfigMap of the intended cluster generation."""
    snapshot: Manifest | Unseen | None = UNSEEN
    """The ConfigMap with the merged spec; the latest one when the status is lost."""
    base_snapshot: Manifest | Unseen | None = UNSEEN
    """The ConfigMap with the recipes for a snapshot that is still to be created."""
    last_generation: int = 0
    """The last cluster generation that may have been created; requested when the status is lost."""
    final: State | None = None
    """How the job had finished, by its ConfigMaps; None if it had not."""
    attempts: tuple[Attempt, ...] = ()
    """Attempts that are recorded as ended; requested when the status is lost."""
    code: Manifest | Unseen | None = UNSEEN
    """The ConfigMap that spec.code names."""
    code_copy: Manifest | Unseen | None = UNSEEN
    """Our frozen copy of it."""
    initializers: Mapping[str, Manifest | None] = field(default_factory=dict)
    """Initializer Jobs by name; empty if not requested."""
    initializer_log: str | Unseen = UNSEEN
    """The last lines of the running initializer's log, at most 80 kB."""
    initializer_events: tuple[Manifest, ...] = ()
    """Why the pod of the running initializer cannot be created; requested when it has none."""
    export: ExportSeen = field(default_factory=ExportSeen)
    """What was read of the export under way."""
    evaluation: Manifest | Unseen | None = UNSEEN
    """The RLJob of the evaluation under way."""
    services: Mapping[str, SharedServiceSeen] = field(default_factory=dict)
    """Shared services by the name of their objects; requested before the cluster is created, and when they are deleted.
    """
    ray_job: RayJob | Unseen | None = UNSEEN
    """None: the intended head pod answered that it does not know the submission."""
    progress: Progress | Unseen = UNSEEN
    """The exporter's answer, already checked against pod uid and submission id."""
    silence: Silence | None = None
    """None if the exporter answers, or was not asked."""
    evidence: Manifest | Unseen | None = UNSEEN
    """The ConfigMap of ended attempts; requested when one has just ended."""
    warnings: tuple[Manifest, ...] | Unseen = UNSEEN
    """Warning events of the namespace, at most 500; requested with evidence that is still to be recorded."""
    cluster_events: tuple[Manifest, ...] = ()
    """Events about the intended RayCluster, at most 500: about pods that KubeRay deleted, after an attempt failed or
    while pods are replaced at the start; about a refusal, while KubeRay does not touch the cluster."""
    nodes: Nodes | Unseen = UNSEEN
    """The cluster's nodes; requested when a generation is about to begin, and while pods wait."""
    taken: Mapping[str, int] | Unseen = UNSEEN
    """Devices of the other jobs' clusters by accelerator class; requested by a job that waits for devices."""
    held: tuple[Held, ...] | Unseen = UNSEEN
    """The nodes of the running attempt's pods."""
    looks: Mapping[str, NodeLook] = field(default_factory=dict)
    """What was read lately of these nodes, or of the nodes that the job avoids, by name."""
    allocations: Allocations | Unseen = UNSEEN
    """The blocks of ports, completed by the statuses of the other jobs; for network.mode Host."""
    refusals: tuple[Refusal, ...] = ()
    recipes: Mapping[RecipeId, Manifest] = field(default_factory=dict)
    """Every existing recipe that the job's recipeRef leads to, or led to when its spec was frozen."""
    siblings: Mapping[str, Manifest] = field(default_factory=dict)
    """The other RLJobs of the namespace by name; filled when a cluster generation is about to begin."""
    unreadable: Mapping[RecipeKind, str] = field(default_factory=dict)
    """Kinds of recipes that cannot be read, and why."""
    progress_write_seconds: float = PROGRESS_WRITE_SECONDS
    """Shortest interval between two status writes that only report a further step."""
    namespace_is_closed: bool = False
    """Whether policies of the chart close the ports of jobs in this namespace and judge its limits."""
    partial_seconds: float = PARTIAL_SECONDS
    """How long a cluster may hold some of its nodes while other jobs have the rest, without jitter."""
