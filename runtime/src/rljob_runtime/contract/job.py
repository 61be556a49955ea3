"""job.json: what the launcher runs. The operator renders it once per cluster generation and mounts it read-only.

It contains no data of an attempt (the submission's environment carries that) and no secrets.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

from rljob_runtime.contract import codec
from rljob_runtime.contract.command import CommandConfig
from rljob_runtime.contract.drafts import Drafts
from rljob_runtime.contract.optimizations import Optimizations
from rljob_runtime.contract.samples import SampleSettings

CONTRACT_VERSION = 1
RUNTIME_VERSION = "0.1.0"
"""Version of this distribution, for messages about an image whose runtime does not fit the operator."""

OverrideScalar = str | int | float | bool | None
OverrideValue = OverrideScalar | list[OverrideScalar] | dict[str, OverrideScalar]
"""A value of a Hydra override: a JSON scalar, a list of scalars, or one level of mapping."""


class Platform(enum.StrEnum):
    """Where the workers compute. Both platforms use the Ray resource `NPU`."""

    NPU = "npu"
    CPU = "cpu"


class TrainerMode(enum.StrEnum):
    """How training and generation take turns (`trainer.mode`)."""

    SYNC = "Sync"
    """A step trains the responses to its own prompts."""
    COLOCATE_ASYNC = "ColocateAsync"
    """On the same devices in turns: prompts in flight pause while a step trains, and continue with the new weights."""
    SEPARATE_ASYNC = "SeparateAsync"
    """On nodes of their own: prompts in flight pause only while the rollout receives new weights."""


class Role(enum.StrEnum):
    """What the nodes of a group do."""

    TRAINER = "Trainer"
    ROLLOUT = "Rollout"
    JUDGE = "Judge"


@dataclass(frozen=True)
class NodeGroup:
    """Worker nodes of one role, for a job with several groups.

    Those with role Trainer also generate, in turns, where no group has role Rollout.
    """

    name: str
    """Of the worker group."""
    role: Role
    nodes: int
    devices: int
    """NPU units (dies) on all its nodes together."""


@dataclass(frozen=True)
class RequiredPath:
    """A file or folder that must exist in the pods before Ray work starts; otherwise exit 64 names field and path."""

    field: str
    """Field of the manifest, for the message: `reward.path`."""
    path: str


class ResumeMode(enum.StrEnum):
    """Where a run starts."""

    AUTO = "Auto"
    """At the last complete checkpoint, if there is one."""
    NEVER = "Never"
    REQUIRED = "Required"
    """At the last complete checkpoint; refused if there is none."""


class ResumeData(enum.StrEnum):
    """What a run does that resumes from a step with other training data."""

    SAME = "Same"
    """It is refused."""
    NEW_EPOCH = "NewEpoch"
    """It begins the data from its start."""


@dataclass(frozen=True)
class ResumeSource:
    """Another job's checkpoint folder to start from while the job's own folder holds no checkpoint."""

    path: str
    """Folder that contains `global_step_<n>`."""
    step: int | None = None
    """Default: the last complete step."""


class RuleCondition(enum.StrEnum):
    """Condition of a stop rule. NaN is neither above nor below a threshold."""

    IS_NAN = "IsNaN"
    ABOVE = "Above"
    BELOW = "Below"


@dataclass(frozen=True)
class StopRule:
    """A condition on the run's metrics that ends the run."""

    name: str
    metric: str
    condition: RuleCondition
    threshold: float | None = None
    """Absent for IsNaN."""
    for_steps: int = 1
    """Consecutive steps for which the condition must hold."""
    succeeds: bool = False
    """Whether the run then counts as succeeded."""


@dataclass(frozen=True)
class LogRule:
    """A restart rule with `onLogPattern`. It matches a failed attempt if a line of the driver's log matches."""

    name: str
    pattern: str
    """Regular expression in the common subset of RE2 and Python."""


@dataclass(frozen=True)
class MinimumVersion:
    """The oldest supported release of a component."""

    part: str
    """driver, firmware, cann or torch_npu."""
    version: str


@dataclass(frozen=True)
class NodeNeeds:
    """Requirements on every worker node. Absent values are not checked."""

    cpus: int | None = None
    """CPUs that the pod asks for."""
    whole_node: bool = False
    """Whether the pod has every device of its node, so that no other pod computes there."""
    shared_memory_bytes: int | None = None
    """Size of /dev/shm."""
    chips: tuple[str, ...] = ()
    """Name prefixes of the class's devices, as npu-smi shows them."""
    versions: tuple[MinimumVersion, ...] = ()
    """Checked instead of the same rows of the runtime's own table (node_checks/versions.py)."""


@dataclass(frozen=True)
class JobConfig:
    """One RLJob as configured for the launcher."""

    version: int
    namespace: str
    name: str
    uid: str
    cluster_name: str
    cluster_generation: int
    platform: Platform
    nodes: int
    """Worker pods."""
    devices: int
    """NPU units (dies) on all nodes together."""
    dies_per_card: int
    """2 on A3, otherwise 1: cards = devices / dies_per_card."""
    total_steps: int
    overrides: dict[str, OverrideValue]
    """Hydra key -> value, for verl's `ppo_trainer` configuration. Keys that verl's schema lacks have a leading `+`."""
    required_paths: tuple[RequiredPath, ...] = ()
    checkpoint_path: str | None = None
    log_path: str | None = None
    """Folder on a shared volume. Records are mirrored to `<log_path>/<cluster_name>/attempt-<n>/` as they grow."""
    resume: ResumeMode = ResumeMode.AUTO
    resume_from: ResumeSource | None = None
    stop_rules: tuple[StopRule, ...] = ()
    log_rules: tuple[LogRule, ...] = codec.added(())
    """In the manifest's order. The first match counts."""
    core_binding: bool = codec.added(default=False)
    """Whether to bind processes to CPUs near their device."""
    needs: NodeNeeds = codec.added(NodeNeeds())  # noqa: RUF009 - frozen
    optimizations: Optimizations = codec.added(Optimizations())  # noqa: RUF009 - frozen
    mode: TrainerMode = codec.added(TrainerMode.SYNC)  # noqa: RUF009 - a constant
    groups: tuple[NodeGroup, ...] = codec.added(())
    """One per role; empty if the same nodes train and generate."""
    samples: SampleSettings = codec.added(SampleSettings())  # noqa: RUF009 - frozen
    background_saves: bool = codec.added(default=False)
    """Whether the ranks write their checkpoints while the run continues."""
    auto_saves: bool = codec.added(default=False)
    """Whether the trainer decides how often it saves."""
    drafts: Drafts | None = None
    """When the rollout drafts tokens; None if it does not."""
    resume_data: ResumeData = codec.added(ResumeData.SAME)  # noqa: RUF009 - a constant
    command: CommandConfig | None = None
    """The user's command that trains instead of the image's trainer. `overrides` is then empty."""

    def __post_init__(self) -> None:
        """Reject a document of another contract version."""
        if self.version != CONTRACT_VERSION:
            raise codec.ContractError(f"JobConfig.version: {self.version}, this image supports {CONTRACT_VERSION}")

    def nodes_of(self, role: Role) -> int:
        """Return the number of nodes that train, or that generate."""
        return self._group_of(role).nodes

    def devices_of(self, role: Role) -> int:
        """Return the number of devices that train, or that generate."""
        return self._group_of(role).devices

    def _group_of(self, role: Role) -> NodeGroup:
        found = {group.role: group for group in self.groups}
        return found.get(role) or found.get(Role.TRAINER) or NodeGroup("", role, self.nodes, self.devices)

    @property
    def devices_per_node(self) -> int:
        """Return the devices of each node; where the groups differ, the number that every node has."""
        groups = self.groups or (NodeGroup("", Role.TRAINER, self.nodes, self.devices),)
        return min(group.devices // group.nodes for group in groups)

    @property
    def cards(self) -> float:
        """Cards of the job: the denominator of every per-card figure."""
        return self.devices / self.dies_per_card

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> JobConfig:
        """Read one. Raises ContractError."""
        return codec.loads(cls, data)

    def digest(self) -> str:
        """Return the SHA-256 of the canonical bytes in hex. The submission names it and the launcher checks it."""
        return hashlib.sha256(self.to_json()).hexdigest()
