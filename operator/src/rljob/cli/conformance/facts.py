"""What was gathered for the claims. None stands for what was not reached, or could not be read. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rljob.core.observed import Manifest


@dataclass(frozen=True)
class ConformancePlan:
    """What the run uses and does."""

    run: str
    """Identifies the run: value of the label on its objects, and part of their names."""
    accelerator: str
    resource: str
    """Extended resource of the class."""
    is_npu: bool
    devices: int
    image: str
    node_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Labels of the class's nodes with their accepted values; none accepts any value."""
    queue: str | None = None
    gang: str | None = None
    storage_class: str | None = None
    """None: the cluster's default."""
    access_mode: str = "ReadWriteMany"
    node: str | None = None
    pull_secrets: tuple[str, ...] = ()
    keep: bool = False
    steps: int = 40
    save_every: int = 5

    @property
    def name(self) -> str:
        """Name of the RLJob and of the claim for its volume."""
        return f"conformance-{self.run}"


@dataclass(frozen=True)
class ClusterFacts:
    """The cluster before anything is created."""

    now: float
    """Unix time of this machine."""
    kubernetes: str = ""
    """Release of the API server."""
    crds: Sequence[Manifest] | None = None
    operators: Sequence[Manifest] | None = None
    """Deployments of the operator."""
    leases: Sequence[Manifest] | None = None
    kuberay: Sequence[Manifest] | None = None
    """Deployments of KubeRay."""
    storage_classes: Sequence[Manifest] | None = None
    nodes: Sequence[Manifest] | None = None
    queues: Sequence[Manifest] | None = None
    """LocalQueues of Kueue in the namespace."""
    volcano: bool = False
    """Whether the cluster serves PodGroups of Volcano."""


@dataclass(frozen=True)
class ImageFacts:
    """Answer of the image check."""

    verdict: str = ""
    """fits, untried, degraded or refused."""
    seen: str = ""
    reasons: tuple[str, ...] = ()
    """All reasons of a verdict that is not `fits`."""
    skipped: str = ""
    """Why the image was not checked. Empty: it was."""


@dataclass(frozen=True)
class Waited:
    """The job at the end of a stage."""

    status: Mapping[str, Any]
    reached: bool
    """Whether the job reached what the stage waits for."""
    seconds: float
    conditions: frozenset[str] = frozenset()
    """Types of the conditions that were True at any time of the stage."""
    why: str = ""
    """If it was not reached: the answer of `rljob describe`, and whether the deadline passed."""


@dataclass(frozen=True)
class PodFacts:
    """What the Ray containers of a running job have, read by `in_pod.py`."""

    progress: Mapping[str, Any] = field(default_factory=dict)
    """Progress of the head (rljob_runtime.contract.Progress as JSON)."""
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Samples of the exporter by metric."""
    checkpoints: Sequence[int] = ()
    """Steps with a folder in the checkpoint folder."""
    tracker: str = ""
    """Content of the tracker file there."""
    hccl: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker container that configure HCCL."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Python packages of the worker container."""
    problem: str = ""
    """Why something could not be read."""


@dataclass(frozen=True)
class Fault:
    """A fault or a suspension, with the job before and after it."""

    before: Mapping[str, Any]
    """Status before."""
    after: Waited
    target: str = ""
    """Pod that was killed."""
    pods_left: Sequence[str] = ()
    """Pods that remained while the job was suspended."""
    suspended: Waited | None = None
    """The job when it was suspended."""


@dataclass(frozen=True)
class Facts:
    """Everything that was gathered."""

    plan: ConformancePlan
    cluster: ClusterFacts | None = None
    image: ImageFacts | None = None
    workload: Manifest | None = None
    """Workload of Kueue of the job's RayCluster, or its PodGroup."""
    started: Waited | None = None
    """Until the first step is complete."""
    trained: Waited | None = None
    """Until the first checkpoint is saved."""
    pods: PodFacts | None = None
    killed: Fault | None = None
    suspended: Fault | None = None
    finished: Waited | None = None
    left: Sequence[str] | None = None
    """Objects of the run that the cleanup left."""
    interrupted: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)
    """Stage -> error that ended it."""
