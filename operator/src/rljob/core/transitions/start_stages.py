"""The stages of a start in the status, from the queue to the first step, each with the time at which it began.

The operator knows the stages before the launcher runs; from then on the run reports its own, with those that it has
passed. A stage alone is never worth a write: it is recorded with the writes that happen anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from rljob.api.status import RLJobStatus
from rljob.api.under_way import BegunStage, StartStatus
from rljob.core import start_message, times
from rljob_runtime.contract import StartProgress

INITIALIZING = "Initializing"
QUEUED = "Queued"
PODS = "Pods"
SUBMITTING = "Submitting"
BEFORE_THE_RUN = (INITIALIZING, QUEUED, PODS, SUBMITTING)
"""In their order; a cluster may come back into its queue."""
TRAINING = "Training"


def with_stage(current: RLJobStatus, stage: str, since: str, detail: str = "") -> RLJobStatus:
    """Return the status in a stage before the run, behind those that come before it."""
    start = current.start
    if start is not None and start.stage == stage:
        return current.model_copy(update={"start": start.model_copy(update={"detail": detail})})
    stages = [] if start is None else start.stages
    # What an attempt reported belongs to another start.
    earlier = stages if all(entry.name in BEFORE_THE_RUN for entry in stages) else []
    before = BEFORE_THE_RUN[: BEFORE_THE_RUN.index(stage)]
    kept = [entry for entry in earlier if entry.name in before]
    return _with(current, kept, BegunStage(name=stage, since=since), detail)


def with_reported(current: RLJobStatus, told: StartProgress | None) -> RLJobStatus:
    """Return the status with the stages that the run reports, behind those before the run."""
    if told is None:
        return current
    passed = (BegunStage(name=entry.stage, since=_time(entry.begun)) for entry in told.passed)
    last = BegunStage(name=told.stage, since=_time(told.begun))
    return _with(current, (*_before_the_run(current), *passed), last, start_message.detail(told))


def with_training(current: RLJobStatus, since: str) -> RLJobStatus:
    """Return the status with the end of its start: the first step is complete."""
    if current.start is None or current.start.stage == TRAINING:
        return current
    return _with(current, current.start.stages, BegunStage(name=TRAINING, since=since))


def _with(current: RLJobStatus, before: Iterable[BegunStage], last: BegunStage, detail: str = "") -> RLJobStatus:
    start = StartStatus(stage=last.name, detail=detail, since=last.since, stages=[*before, last])
    return current.model_copy(update={"start": start})


def _before_the_run(current: RLJobStatus) -> list[BegunStage]:
    return [entry for entry in (current.start.stages if current.start else ()) if entry.name in BEFORE_THE_RUN]


def _time(begun: float) -> str:
    return times.to_text(times.from_unix(begun))
