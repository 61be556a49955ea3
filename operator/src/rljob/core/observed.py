"""What was seen of one RLJob: the only input of `reconcile` beside the time.

`control` gathers it: the RLJob and its RayClusters and head pod from the store, the rest by requests that
`core.requirements` asks for. Absent (None) means "was asked for and is not there"; `UNSEEN` means "was not asked for,
or could not be read": a decision must never take the one for the other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
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
PARTIAL_SECONDS = 60
"""KubeRay makes the pods of a cluster within seconds, and the scheduler binds hundreds a second; a node that another
job leaves is free when its pods are gone, usually within their grace period of 30 s."""


@dataclass(frozen=True, order=True)
class RecipeId:
    """Which recipe, as seen from a job's namespace."""

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
        """Whether the driver is gone."""
        return self in (RayJobState.STOPPED, RayJobState.SUCCEEDED, RayJobState.FAILED)


@dataclass(frozen=True)
class RayJob:
    """One answer of `GET /api/jobs/<submission id>` at the intended head pod."""

    submission_id: str
    state: RayJobState
    message: str = ""
    driver_exit_code: int | None = None
    log_tail: str = ""
    """The last lines of the driver's log, at most 4 kB; fetched only when the job ended."""


class RefusalCause(enum.StrEnum):
    """Why an effect cannot work: never, but for the last."""

    NAME_TAKEN = "NameTaken"
    """The name belongs to an object of somebody else."""
    INVALID = "Invalid"
    """The API server finds the manifest wrong."""
    DENIED = "Denied"
    """Permissions, a quota or admission say no: that may change, and it is asked for again."""


@dataclass(frozen=True)
class Refusal:
    """An effect that cannot work."""

    kind: str
    name: str
    why: str
    cause: RefusalCause = RefusalCause.NAME_TAKEN


@dataclass(frozen=True)
class Silence:
    """Since when a head answers nothing: the first of the questions in a row that this process asked in vain."""

    since: datetime
    """Of those to the exporter."""
    mute_since: datetime | None = None
    """Of those to which Ray's job API had no answer either; None: it has one, and vouches for the run."""


@dataclass(frozen=True)
class PodGroupApi:
    """What the API server serves of Volcano's PodGroup."""

    fields: frozenset[str] = frozenset()
    """Of its spec, and below these: `networkTopology`, `networkTopology.mode`."""
    problem: str = ""
    """Why none can be made; empty: they can."""


@dataclass(frozen=True)
class KubeRayWork:
    """How far KubeRay is with the RayClusters of all jobs, by what it wrote; RFC 3339, empty: nothing so far."""

    wrote: str = ""
    """The latest `status.lastUpdateTime`, by KubeRay's clock."""
    reached: str = ""
    """The `creationTimestamp` of the youngest cluster that has a status."""

    def seen(self, cluster: Manifest) -> KubeRayWork:
        """Give it with what a cluster shows."""
        state = cluster.get("status") or {}
        if not state:
            return self
        # In UTC, as every metav1.Time: the order of texts is that of moments.
        wrote, made = str(state.get("lastUpdateTime", "")), str(cluster["metadata"].get("creationTimestamp", ""))
        return KubeRayWork(max(self.wrote, wrote), max(self.reached, made))


@dataclass(frozen=True)
class Observed:
    """A snapshot of one RLJob's world."""

    job: Manifest
    """The RLJob with metadata, spec and status, at its committed resourceVersion."""
    status: RLJobStatus | None = field(default=None, compare=False, repr=False)
    """Its status, where it was read already."""
    clusters: tuple[Manifest, ...] = ()
    """Every RayCluster that carries this job's uid label."""
    live_cluster: Manifest | Unseen | None = UNSEEN
    """The intended RayCluster by a live read; asked for when the watch lacks a cluster that was there before."""
    kuberay: KubeRayWork = field(default_factory=KubeRayWork)
    head_pod: Manifest | None = None
    """The head pod of the intended cluster."""
    former_heads: tuple[Manifest, ...] = ()
    """Head pods of clusters that had its name before."""
    workload: Manifest | Unseen | None = UNSEEN
    """Kueue's Workload of the intended cluster."""
    pod_groups: tuple[Manifest, ...] = ()
    """Every PodGroup that this job owns."""
    pod_group_api: PodGroupApi | Unseen = UNSEEN
    """Asked for when a gang is decided or made."""
    pods: tuple[Manifest, ...] | Unseen = UNSEEN
    """All pods of the intended cluster, or of the initializers; for the diagnosis of what does not start."""
    config: Manifest | Unseen | None = UNSEEN
    """The frozen ConfigMap of the intended cluster generation."""
    snapshot: Manifest | Unseen | None = UNSEEN
    """The ConfigMap with the merged spec; the latest one when the status is lost."""
    base_snapshot: Manifest | Unseen | None = UNSEEN
    """The ConfigMap whose recipes a snapshot that is still to be made stands on."""
    last_generation: int = 0
    """The last cluster generation that may have been made; asked for when the status is lost."""
    final: State | None = None
    """How the job had finished, by the same; None: it had not."""
    attempts: tuple[Attempt, ...] = ()
    """Those that are written down as ended; asked for when the status is lost."""
    code: Manifest | Unseen | None = UNSEEN
    """The ConfigMap that spec.code names."""
    code_copy: Manifest | Unseen | None = UNSEEN
    """Our frozen copy of it."""
    initializers: Mapping[str, Manifest | None] = field(default_factory=dict)
    """Initializer Jobs by name; empty when not asked for."""
    initializer_log: str | Unseen = UNSEEN
    """The last lines of the running initializer's log, at most 80 kB."""
    ray_job: RayJob | Unseen | None = UNSEEN
    """None: the intended head pod answered that it does not know the submission."""
    progress: Progress | Unseen = UNSEEN
    """The exporter's answer, already checked against pod uid and submission id."""
    silence: Silence | None = None
    """None: the exporter answers, or was not asked."""
    evidence: Manifest | Unseen | None = UNSEEN
    """The ConfigMap of ended attempts; asked for when one has just ended."""
    warnings: tuple[Manifest, ...] | Unseen = UNSEEN
    """Warning events of the namespace, at most 500; with the evidence that is yet to be written."""
    cluster_events: tuple[Manifest, ...] = ()
    """Events about the intended RayCluster, at most 500, with KubeRay's words of pods that it deleted, when an attempt
    has ended badly; of a cluster that it refuses, when it does not touch one."""
    nodes: Nodes | Unseen = UNSEEN
    """The cluster's nodes; asked for when a generation is about to begin, and while pods wait."""
    taken: Mapping[str, int] | Unseen = UNSEEN
    """Devices that the clusters of the other jobs have, by accelerator class; a job that waits asks for it."""
    held: tuple[Held, ...] | Unseen = UNSEEN
    """The nodes of the running attempt's pods."""
    looks: Mapping[str, NodeLook] = field(default_factory=dict)
    """By name: of these nodes, or of those that the job avoids, the ones that could be read lately."""
    allocations: Allocations | Unseen = UNSEEN
    """The blocks of ports, with what the statuses of the other jobs say of them; for network.mode Host."""
    refusals: tuple[Refusal, ...] = ()
    recipes: Mapping[RecipeId, Manifest] = field(default_factory=dict)
    """Every recipe that the job's recipeRef leads to, or led to when its spec was frozen, as far as it is there."""
    siblings: Mapping[str, Manifest] = field(default_factory=dict)
    """The other RLJobs of the namespace by name; filled when a cluster generation is about to begin."""
    unreadable: Mapping[RecipeKind, str] = field(default_factory=dict)
    """Kinds of recipes of which nothing can be said, and why."""
    progress_write_seconds: float = 30.0
    """Shortest time between two status writes that only tell of a further step."""
    partial_seconds: float = PARTIAL_SECONDS
    """How long a cluster may hold some of its nodes while the others are somebody else's, without jitter."""
