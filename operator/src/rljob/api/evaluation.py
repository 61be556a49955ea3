"""Evaluations: every few checkpoints are scored by jobs of their own."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from rljob.api.base import ATOMIC, Count, Metric, Model, NonNegative, Path, Quantity, StatusModel, Time


class Evaluation(Model):
    """Checkpoints that are scored by RLJobs with trainer.mode Evaluate, which this job owns, one at a time.

    Each has an initializer that converts the checkpoint to the folder evaluation below checkpoint.path.
    """

    every: Count = 1
    """Number of checkpoints between evaluations. The last checkpoint of a run that succeeded is always evaluated. While
    an evaluation runs, newer checkpoints replace those that wait. Defaults to 1."""
    validation: Annotated[list[Path], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Files with the prompts. Defaults to those of data.validation."""
    nodes: Count | None = None
    """Number of workers. Defaults to that of the job."""
    devices_per_node: Count | None = None
    """Number of NPU devices per worker. Defaults to that of the job."""
    memory: Quantity | None = None
    """Memory of the conversion. Defaults to what it needs by the size of the model, or else by that of the checkpoint.
    """


class EvaluationState(enum.StrEnum):
    """How far an evaluation is."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class EvaluatedStep(StatusModel):
    """The evaluation of one checkpoint."""

    step: NonNegative
    """Step of the checkpoint."""
    name: Annotated[str, Field(max_length=40)]
    """Name of the RLJob. It is kept for a day after its end."""
    state: EvaluationState
    """How far the evaluation is."""
    score: Metric | None = None
    """Mean score, once it succeeded."""
    message: Annotated[str, Field(max_length=128)] | None = None
    """State of the RLJob while it runs, or why there is no score."""
    created: bool = False
    """Whether the RLJob was seen."""
    started_time: Time
    """Time at which it was decided."""
    finished_time: Time | None = None
    """Time at which its end was seen."""


class EvaluationStatus(StatusModel):
    """Evaluations of checkpoints."""

    steps: Annotated[list[EvaluatedStep], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """The last 16 evaluations, the newest last."""
