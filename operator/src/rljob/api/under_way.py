"""The parts of the status of an RLJob that describe something under way: an initializer, a start, a stop, an end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rljob.api.base import ATOMIC, Message, NonNegative, ObjectName, StatusModel, Text, Time, Word
from rljob.api.forms import REASON_WORD


class InitializerStatus(StatusModel):
    """State of the running initializer."""

    name: Text
    """Name of the initializer in the spec."""
    line: Text = ""
    """Last line of its log."""
    observed_time: Time
    """Time at which the log was read."""


class BegunStage(StatusModel):
    """A stage of a start."""

    name: Annotated[str, Field(max_length=64, pattern=REASON_WORD.pattern)]
    """Name of the stage."""
    since: Time
    """Time at which it began; it lasted until the next one began."""


class StartStatus(StatusModel):
    """What a start is doing, from its pods to the first step."""

    stage: Word
    """What the start does now: Waiting for the next cluster, Pods, or a stage that the run reports, such as
    LoadingModel, StartingReplicas or FirstRollout; Training once a step is complete."""
    detail: Text = ""
    """How far the stage is, such as: 3 of 16 ranks are done. It is as old as the last write of the status."""
    since: Time
    """Time at which the stage began."""
    observed_time: Time | None = None
    """Time at which the operator saw stage and detail in a report of the run; absent before the run reports."""
    stages: Annotated[list[BegunStage], Field(max_length=28, json_schema_extra=ATOMIC)] = []
    """Stages of this start in the order of their beginning, the current one last."""


class StopStatus(StatusModel):
    """A stop in progress."""

    reason: Word
    """Reason for the stop."""
    mode: Word
    """How the trainer is asked to stop."""
    decision: Text = ""
    """Why this mode was chosen."""
    requested_time: Time
    """Time at which the stop was requested."""
    deadline: Time
    """Time at which the run is killed if it has not stopped."""
    message: Message = ""
    """Human-readable explanation."""
    fault: Word | None = None
    """Class of the NPU fault that caused the stop."""
    nodes: Annotated[list[ObjectName], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Faulty nodes, the most severe first, or those of lost workers."""


class EndingStatus(StatusModel):
    """The driver's end as reported by Ray, kept until the exporter answers with more detail."""

    time: Time
    """Time at which Ray reported the end."""
    deadline: Time
    """Time after which the operator acts on Ray's report alone."""
    exit_code: Annotated[int, Field(ge=-2_147_483_647, le=2_147_483_647, json_schema_extra={"format": "int32"})]
    """Exit code of the driver."""
    reason: Word | None = None
    """Reason for the end, one of the reasons in the reference."""
    message: Message = ""
    """Human-readable explanation."""
    rule: Text | None = None
    """Name of the restart rule that matched."""
    last_step: NonNegative = 0
    """Last step that was known at the end."""
    unruled_exit_code: (
        Annotated[int, Field(ge=-2_147_483_647, le=2_147_483_647, json_schema_extra={"format": "int32"})] | None
    ) = None
    """Exit code without the restart rule, if a rule matched."""
    nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Faulty nodes, the most severe first."""
    suspect: Annotated[str, Field(max_length=253)] | None = None
    """Node that was lost."""
