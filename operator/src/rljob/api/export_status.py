"""The part of the status about exports of checkpoints."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from rljob.api.base import ATOMIC, Long, NonNegative, ObjectName, StatusModel, Time, Word


class ExportState(enum.StrEnum):
    """How far an export is."""

    WAITING = "Waiting"
    """The next try waits: the cluster refused the last one."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ExportedStep(StatusModel):
    """An export of one checkpoint."""

    step: NonNegative
    """Step of the checkpoint. 0: the best one, until the export has chosen it."""
    name: ObjectName
    """Name of the Kubernetes Job."""
    state: ExportState
    """How far the export is."""
    automatic: bool = False
    """Whether spec.export.when asked for it, and not a request."""
    saved_time: Time | None = None
    """Time at which the checkpoint was saved, if the export was automatic."""
    target: Annotated[str, Field(max_length=256)]
    """Where the export goes."""
    path: Annotated[str, Field(max_length=400)] | None = None
    """Where it is, once it succeeded."""
    digest: Annotated[str, Field(max_length=64)] | None = None
    """SHA-256 of its manifest, rljob-export.json, which has the SHA-256 of every file."""
    bytes: Long | None = None
    """Size of its files."""
    reason: Word | None = None
    """Reason for the state, one of the reasons in the reference."""
    message: Annotated[str, Field(max_length=256)] | None = None
    """Human-readable explanation of the state."""
    attempts: NonNegative = 0
    """Number of pods that have started it."""
    refusals: NonNegative = 0
    """Number of times that the cluster refused its Job."""
    started_time: Time
    """Time at which it was decided, or the last try after a refusal."""
    finished_time: Time | None = None
    """Time at which its end was seen."""


class ExportStatus(StatusModel):
    """Exports of checkpoints."""

    request: Annotated[str, Field(max_length=256)] | None = None
    """Value of the annotation rljob.dev/export that was taken up last."""
    steps: Annotated[list[ExportedStep], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """The last eight exports, the newest last."""
