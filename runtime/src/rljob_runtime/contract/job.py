"""job.json: what the launcher runs, rendered by the operator once per cluster generation and mounted read-only.

It holds no data of an attempt (those travel in the submission's environment) and no secret.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

from rljob_runtime.contract import codec

CONTRACT_VERSION = 1

OverrideScalar = str | int | float | bool | None
OverrideValue = OverrideScalar | list[OverrideScalar] | dict[str, OverrideScalar]
"""A value of a Hydra override: a JSON scalar, a list of scalars, or one level of mapping."""


class Platform(enum.StrEnum):
    """Where the workers compute: the same Ray resource `NPU` on both."""

    NPU = "npu"
    CPU = "cpu"


@dataclass(frozen=True)
class RequiredPath:
    """A file or folder that must exist in the pods before Ray work starts (exit 64 names field and path)."""

    field: str
    """The manifest's field, for the message: `reward.path`."""
    path: str


class ResumeMode(enum.StrEnum):
    """Where a run begins."""

    AUTO = "Auto"
    """At the last complete checkpoint, if there is one."""
    NEVER = "Never"
    REQUIRED = "Required"
    """At the last complete checkpoint, or not at all."""


@dataclass(frozen=True)
class ResumeSource:
    """Another job's checkpoint folder to begin from, as long as the own one holds none."""

    path: str
    """Folder with `global_step_<n>` in it."""
    step: int | None = None
    """Default: the last complete one."""


class RuleCondition(enum.StrEnum):
    """What a stop rule looks for; NaN is neither above nor below."""

    IS_NAN = "IsNaN"
    ABOVE = "Above"
    BELOW = "Below"


@dataclass(frozen=True)
class StopRule:
    """When the run ends by its own figures."""

    name: str
    metric: str
    condition: RuleCondition
    threshold: float | None = None
    """Absent with IsNaN."""
    for_steps: int = 1
    """Steps in a row for which the condition must hold."""
    succeeds: bool = False
    """Whether such an end is a success."""


@dataclass(frozen=True)
class LogRule:
    """A restart rule with `onLogPattern`: it matches a failed attempt if a line of the driver's log matches."""

    name: str
    pattern: str
    """Regular expression, in what RE2 and Python both know."""


@dataclass(frozen=True)
class MinimumVersion:
    """The oldest release of a part that works."""

    part: str
    """driver, firmware, cann or torch_npu."""
    version: str


@dataclass(frozen=True)
class NodeNeeds:
    """What every worker node must offer; what is absent is not checked."""

    cpus: int | None = None
    """CPUs that the pod asks for."""
    whole_node: bool = False
    """Whether the pod has every device of its node: then nobody else computes there."""
    shared_memory_bytes: int | None = None
    """Size of /dev/shm."""
    chips: tuple[str, ...] = ()
    """How names of the class's devices begin, as npu-smi shows them."""
    versions: tuple[MinimumVersion, ...] = ()
    """They go before the runtime's own table (node_checks/versions.py)."""


@dataclass(frozen=True)
class JobConfig:
    """One RLJob as the launcher sees it."""

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
    """NPU units (dies) of all nodes together."""
    dies_per_card: int
    """2 on A3, 1 elsewhere: cards = devices / dies_per_card."""
    total_steps: int
    overrides: dict[str, OverrideValue]
    """Hydra key -> value, for verl's `ppo_trainer` configuration; keys that verl's schema lacks carry a leading `+`."""
    required_paths: tuple[RequiredPath, ...] = ()
    checkpoint_path: str | None = None
    log_path: str | None = None
    """Folder on a shared volume: records are mirrored to `<log_path>/<cluster_name>/attempt-<n>/` as they grow."""
    resume: ResumeMode = ResumeMode.AUTO
    resume_from: ResumeSource | None = None
    stop_rules: tuple[StopRule, ...] = ()
    log_rules: tuple[LogRule, ...] = codec.added(())
    """In the manifest's order: of several that match, the first counts."""
    core_binding: bool = codec.added(default=False)
    """Whether processes are bound to CPUs near their device."""
    needs: NodeNeeds = codec.added(NodeNeeds())  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        """Refuse a document of another contract version."""
        if self.version != CONTRACT_VERSION:
            raise codec.ContractError(f"JobConfig.version: {self.version}, this image speaks {CONTRACT_VERSION}")

    @property
    def cards(self) -> float:
        """Cards of the job: the denominator of every per-card figure."""
        return self.devices / self.dies_per_card

    def to_json(self) -> bytes:
        """Give canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> JobConfig:
        """Read one; raises ContractError."""
        return codec.loads(cls, data)

    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hex: what the submission names and the launcher checks."""
        return hashlib.sha256(self.to_json()).hexdigest()
