"""Where the time between two attempts goes, in the status of a job."""

from __future__ import annotations

import enum

from rljob.api.base import NonNegative, StatusModel


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
