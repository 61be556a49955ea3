"""What the exporter answers at `/v1/progress`, and what `POST /v1/stop` takes.

The answer carries the pod's uid and the submission id, so that the operator can drop an answer of something else.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec
from rljob_runtime.contract.exit_codes import Outcome


class Phase(enum.StrEnum):
    """Where an attempt stands."""

    IDLE = "Idle"
    """No attempt was submitted to this pod yet."""
    STARTING = "Starting"
    TRAINING = "Training"
    """At least one step is complete."""
    STOPPING = "Stopping"
    ENDED = "Ended"


class StopMode(enum.StrEnum):
    """How to stop: after the current step, abandoning the rollout in progress, or at once."""

    AFTER_STEP = "AfterStep"
    ABORT_ROLLOUT = "AbortRollout"
    IMMEDIATE = "Immediate"
    STALLED = "Stalled"
    """At once, because no step comes: the stacks of every process are kept first (exit 67)."""


STALL_SECONDS = 20.0
"""How long an attempt takes at most after `Stalled` until its outcome stands; another few and its process is gone."""


@dataclass(frozen=True)
class StopRequest:
    """Body of `POST /v1/stop`; a request for another attempt is refused with 409."""

    attempt: int
    mode: StopMode

    def to_json(self) -> bytes:
        """Give canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> StopRequest:
        """Read one; raises ContractError."""
        return codec.loads(cls, data)


@dataclass(frozen=True)
class CoreBinding:
    """Which CPUs the processes of a run may use, as asked and as seen."""

    nodes: int
    """Nodes with devices."""
    planned_nodes: int
    """Those that have a plan; the notes tell why others do not."""
    bound_processes: int | None = None
    """Processes that keep to their plan; absent until looked at, after the first step."""
    strayed_processes: int | None = None
    """Processes of which some thread may leave its plan."""
    plans: tuple[str, ...] = ()
    """Each plan with the nodes that have it."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Give canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> CoreBinding:
        """Read one, leniently; raises ContractError."""
        return codec.loads(cls, data, strict=False)


@dataclass(frozen=True)
class CheckResult:
    """One row of the check of the nodes before a run."""

    check: str
    passed: int
    """Nodes."""
    failed: int
    warned: int
    seen: str
    """What was seen: the same on all nodes, the range, or the first failure."""


@dataclass(frozen=True)
class NodeFinding:
    """What is wrong with one node."""

    check: str
    node: str
    message: str
    device: int | None = None
    fatal: bool = True


@dataclass(frozen=True)
class Preflight:
    """The check of the nodes before a run."""

    nodes: int
    seconds: float
    checks: tuple[CheckResult, ...]
    findings: tuple[NodeFinding, ...] = ()
    """At most 32, fatal ones first."""


@dataclass(frozen=True)
class Progress:
    """One answer of `/v1/progress`; figures are of the last complete step and absent until seen."""

    pod_uid: str
    phase: Phase
    attempt: int = 0
    submission_id: str = ""
    step: int = 0
    total_steps: int = 0
    observed_time: float = 0.0
    """Unix seconds at which the last step (or phase) was recorded."""
    start_time: float = 0.0
    """Unix seconds at which the launcher began; 0 until then."""
    reward: float | None = None
    """Mean of the step's `critic/score/mean`."""
    response_tokens_mean: float | None = None
    tokens_per_second_per_card: float | None = None
    """Prompt and response tokens of the trained batch / whole step seconds / cards."""
    first_dp_idle_ratio: float | None = None
    cluster_idle_ratio: float | None = None
    step_seconds: float | None = None
    first_step: int | None = None
    """The first step that this attempt completed."""
    median_step_seconds: float | None = None
    """Median over the attempt's last thousand steps of the time from a step's begin to its record: with saving and
    validation, which `step_seconds` (of the last step, by verl's own clock) partly leaves out."""
    median_rollout_seconds: float | None = None
    """Median over the same steps of the time from a rollout's first request to its last answer."""
    resumed_from_step: int | None = None
    """The step that this attempt has loaded; 0: it began with the model. Absent until verl has loaded."""
    checkpoint_step: int | None = None
    """Step of the newest complete checkpoint of this job, saved or resumed from by this attempt."""
    checkpoint_time: float | None = None
    """Unix seconds at which it was complete."""
    checkpoint_seconds: float | None = None
    """How long the trainer stood still for it; absent for one that an earlier attempt saved."""
    checkpoint_bytes: int | None = None
    """Size of its files together; absent if they could not be counted within two seconds."""
    preflight: Preflight | None = None
    core_binding: CoreBinding | None = None
    """Absent where nothing is to be bound."""
    outcome: Outcome | None = None

    def to_json(self) -> bytes:
        """Give canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Progress:
        """Read one, leniently; raises ContractError."""
        return codec.loads(cls, data, strict=False)
