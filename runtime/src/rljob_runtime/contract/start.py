"""What an attempt is doing between the start of its launcher and its first step.

A stage is a value of an enumeration with two numbers at most, never a text from the pod: the operator shows it to
people in its own words.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec


class StartStage(enum.StrEnum):
    """Stages in their usual order. A trainer leaves out those that it does not have."""

    PREPARING = "Preparing"
    """The configuration is composed and checked."""
    CONNECTING = "Connecting"
    """The driver connects to Ray."""
    WAITING_FOR_NODES = "WaitingForNodes"
    """Counts nodes with devices that have joined Ray."""
    CHECKING_NODES = "CheckingNodes"
    WAITING_FOR_DEVICES = "WaitingForDevices"
    """Counts devices that no earlier run holds any more."""
    CLAIMING_CHECKPOINTS = "ClaimingCheckpoints"
    STARTING_TRAINER = "StartingTrainer"
    """The process of the training loop starts and imports its libraries."""
    LOADING_DATA = "LoadingData"
    STARTING_RANKS = "StartingRanks"
    """Counts ranks whose process runs."""
    LOADING_CRITIC = "LoadingCritic"
    """Counts ranks that have loaded it, as the next one does."""
    LOADING_MODEL = "LoadingModel"
    STARTING_REPLICAS = "StartingReplicas"
    """Counts rollout replicas that serve."""
    LOADING_CHECKPOINT = "LoadingCheckpoint"
    SENDING_WEIGHTS = "SendingWeights"
    """The rollout replicas get the weights of the trainer."""
    VALIDATING = "Validating"
    """The validation before the first step."""
    FIRST_ROLLOUT = "FirstRollout"
    FIRST_UPDATE = "FirstUpdate"
    WAITING_FOR_RECORDS = "WaitingForRecords"
    """A command runs, and what its steps are learned from does not exist yet."""
    RUNNING_COMMAND = "RunningCommand"
    """A command runs and has reported no step."""


@dataclass(frozen=True)
class PassedStage:
    """A stage that a start has left."""

    stage: str
    begun: float
    """Unix time at which it began; it lasted until the next one did."""


@dataclass(frozen=True)
class StartProgress:
    """The stage that a start is in."""

    stage: str
    """A value of `StartStage`. A text here, so that an operator reads an image that has further stages."""
    begun: float
    """Unix time at which the stage began."""
    done: int | None = None
    """How many of `total` have passed the stage; absent where nothing is counted."""
    total: int | None = None
    passed: tuple[PassedStage, ...] = codec.added(())
    """The stages before this one in the order of their beginning; of one that came twice, the later time."""

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> StartProgress:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)
