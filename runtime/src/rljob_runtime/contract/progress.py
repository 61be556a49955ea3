"""Response of the exporter at `/v1/progress`, and request body of `POST /v1/stop`.

The response contains the pod's uid and the submission id, so that the operator can discard an answer from another pod
or submission.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec
from rljob_runtime.contract.exit_codes import Outcome
from rljob_runtime.contract.start import StartProgress


class Phase(enum.StrEnum):
    """Phase of an attempt."""

    IDLE = "Idle"
    """No attempt has been submitted to this pod."""
    STARTING = "Starting"
    TRAINING = "Training"
    """At least one step is complete."""
    STOPPING = "Stopping"
    ENDED = "Ended"


class StopMode(enum.StrEnum):
    """How to stop: after the current step, by abandoning the rollout in progress, or at once."""

    AFTER_STEP = "AfterStep"
    ABORT_ROLLOUT = "AbortRollout"
    IMMEDIATE = "Immediate"
    STALLED = "Stalled"
    """At once, because no step completes. The stacks of every process are saved first (exit 67)."""


STALL_SECONDS = 20.0
"""Maximum time after `Stalled` until an attempt has an outcome. Its process exits within a few more seconds."""


NOTES_MAX = 4
NOTE_LIMIT = 400


@dataclass(frozen=True)
class StopRequest:
    """Body of `POST /v1/stop`. A request for another attempt is refused with 409."""

    attempt: int
    mode: StopMode

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> StopRequest:
        """Read one. Raises ContractError."""
        return codec.loads(cls, data)


@dataclass(frozen=True)
class CoreBinding:
    """CPU binding of a run's processes, as planned and as observed."""

    nodes: int
    """Nodes with devices."""
    planned_nodes: int
    """Nodes with a plan. `notes` contains the reasons of the others."""
    bound_processes: int | None = None
    """Processes that stay within their plan; absent until the first check, after the first step."""
    strayed_processes: int | None = None
    """Processes with a thread that may leave the plan."""
    plans: tuple[str, ...] = ()
    """Each plan with its nodes."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> CoreBinding:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)


@dataclass(frozen=True)
class CheckResult:
    """One row of the node checks before a run."""

    check: str
    passed: int
    """Number of nodes, like `failed` and `warned`."""
    failed: int
    warned: int
    seen: str
    """What was observed: the common value, the range, or the first failure."""


@dataclass(frozen=True)
class NodeFinding:
    """A problem of one node."""

    check: str
    node: str
    message: str
    device: int | None = None
    fatal: bool = True


@dataclass(frozen=True)
class Preflight:
    """Result of the node checks before a run."""

    nodes: int
    seconds: float
    checks: tuple[CheckResult, ...]
    findings: tuple[NodeFinding, ...] = ()
    """At most 32, fatal ones first."""


@dataclass(frozen=True)
class Progress:
    """Response of `/v1/progress`. Metrics are those of the last complete step and absent until recorded."""

    pod_uid: str
    phase: Phase
    attempt: int = 0
    submission_id: str = ""
    step: int = 0
    total_steps: int = 0
    observed_time: float = 0.0
    """Unix time at which the last step (or phase) was recorded."""
    start_time: float = 0.0
    """Unix time at which the launcher started; 0 before."""
    reward: float | None = None
    """Mean of the step's `critic/score/mean`."""
    response_tokens_mean: float | None = None
    tokens_per_second_per_card: float | None = None
    """Prompt and response tokens of the trained batch / duration of the whole step / cards."""
    first_dp_idle_ratio: float | None = None
    cluster_idle_ratio: float | None = None
    step_seconds: float | None = None
    step_time: float | None = None
    """Unix time at which the last step was recorded: `observed_time` is later once anything else has changed."""
    first_step: int | None = None
    """The first step that this attempt completed."""
    median_step_seconds: float | None = None
    """Median over the attempt's last thousand records, from the start of a step to its record. It includes saving and
    validation, which `step_seconds` (the last step, by verl's own clock) partly excludes."""
    record_seconds: float | None = None
    """Median time between two records of a command that does not record every step; absent elsewhere."""
    median_rollout_seconds: float | None = None
    """Median over the same steps, from a rollout's first request to its last response. With prompts in flight across
    steps, of the time that a step waits for responses: what a stop during it would save."""
    resumed_from_step: int | None = None
    """The step that this attempt has loaded; 0 if it started from the model. Absent until verl has loaded."""
    checkpoint_step: int | None = None
    """Newest complete checkpoint of this job that this attempt has saved or resumed from."""
    checkpoint_time: float | None = None
    """Unix time at which that checkpoint was complete."""
    checkpoint_seconds: float | None = None
    """How long the trainer was blocked by saving it; absent for a checkpoint of an earlier attempt."""
    checkpoint_bytes: int | None = None
    """Total size of its files; absent if counting took longer than two seconds."""
    save_every_steps: int | None = None
    """Steps between two checkpoints, where the trainer decides that; absent elsewhere."""
    preflight: Preflight | None = None
    start: StartProgress | None = None
    """What the start is doing; absent once a step is complete, and from images that do not report it."""
    core_binding: CoreBinding | None = None
    """Absent if binding is disabled."""
    notes: tuple[str, ...] = codec.added(())
    """What people should know about the attempt although it continues, such as prompts that were left out: at most
    `NOTES_MAX` texts of `NOTE_LIMIT` characters."""
    verl_version: str = codec.added("")
    """Version of the verl that runs, at most 64 characters; empty until it is known, and where a command trains."""
    replicas_serving: int | None = None
    """Replicas that generate, of a rollout with workers of its own; absent elsewhere."""
    replicas_wanted: int | None = None
    outcome: Outcome | None = None

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Progress:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)
