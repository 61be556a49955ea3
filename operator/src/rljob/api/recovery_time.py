"""Where the time between two attempts goes, and what made no lasting step, in the status of a job."""

from __future__ import annotations

import enum

from rljob.api.base import Long, NonNegative, StatusModel


class RecoveryCause(enum.StrEnum):
    """What the time between the last step of an attempt and the first step of the next one was spent on."""

    DETECTION = "Detection"
    """Until the end of the attempt was seen or its stop was ordered, with the step that was not completed."""
    STOP = "Stop"
    """From the order to stop to the end of the attempt, with its save."""
    FAILED_START = "FailedStart"
    """Attempts in between that made no step."""
    DELETION = "Deletion"
    """Until no pod of the former cluster was left."""
    WAIT = "Wait"
    """Backoff, pacing, a wait for nodes or devices, and a suspension."""
    INITIALIZERS = "Initializers"
    QUEUE = "Queue"
    SCHEDULING = "Scheduling"
    """Until the head pod has a node; in a cluster that is kept, until its lost workers are replaced."""
    IMAGE = "Image"
    """Images, volumes and init containers of the head pod."""
    RAY = "Ray"
    """Until Ray runs on all pods and has accepted the driver."""
    CHECKS = "Checks"
    """Checks of configuration, nodes and devices, and the claim on the checkpoints."""
    IMPORTS = "Imports"
    """Processes, their libraries and the data."""
    MODEL = "Model"
    """Models and the checkpoint."""
    ENGINES = "Engines"
    WEIGHTS = "Weights"
    """Weights of the trainer to the engines."""
    FIRST_STEP = "FirstStep"
    """Validation, first rollout and first update: the step itself is in it."""
    REPEATED = "Repeated"
    """Further steps that were done before, at the pace of the new attempt."""


class RecoveryTime(StatusModel):
    """Seconds of one cause."""

    cause: RecoveryCause
    """What they were spent on."""
    seconds: NonNegative
    """Whole seconds."""


class UnproductiveUse(enum.StrEnum):
    """What devices were held for, other than steps that no later attempt repeats."""

    START = "Start"
    """From the node of a worker, or the end of the attempt before in the same cluster, to a median step before the end
    of the first step; all of an attempt without a step."""
    BETWEEN = "Between"
    """Between the first and the last step: validation, saves, and what steps took beyond their median."""
    REPEATED = "Repeated"
    """Steps after the checkpoint from which the run continues."""
    END = "End"
    """After the last step that the operator saw: the step that was not completed, detection, stop and save."""


class UnproductiveTime(StatusModel):
    """Device-seconds of one use."""

    use: UnproductiveUse
    """What the devices were held for."""
    device_seconds: Long
    """Whole device-seconds."""
