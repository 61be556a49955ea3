"""The stages of a start in the status, from the queue to the first step, each with the time at which it began.

The operator knows the stages before the launcher runs; from then on the run reports its own, with those that it has
passed. A stage alone is never worth a write: it is recorded with the writes that happen anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rljob.api.status import RLJobStatus
from rljob.api.under_way import BegunStage, StartStatus
from rljob.core import start_message, times
from rljob.core.attempts.recovery_time import BEFORE_THE_RUN, PODS, TRAINING, WAITING, pod_stages
from rljob.core.observed import Manifest
from rljob_runtime.contract import StartProgress


def with_stage(current: RLJobStatus, stage: str, since: str, detail: str = "") -> RLJobStatus:
    """Return the status with this stage, which precedes the run, as the current one; earlier stages are kept."""
    start = current.start
    if start is not None and start.stage == stage:
        return current.model_copy(update={"start": start.model_copy(update={"detail": detail})})
    stages = [] if start is None else start.stages
    # What an attempt reported belongs to another start.
    earlier = stages if all(entry.name in BEFORE_THE_RUN for entry in stages) else []
    before = BEFORE_THE_RUN[: BEFORE_THE_RUN.index(stage)]
    kept = [entry for entry in earlier if entry.name in before]
    return _with(current, kept, BegunStage(name=stage, since=since), detail)


def with_cluster_gone(current: RLJobStatus, now: datetime) -> RLJobStatus:
    """Return the status of a job that waits for its next cluster, also after one that made no attempt."""
    stages = current.start.stages if current.start is not None else []
    waits = bool(stages) and stages[0].name == WAITING and all(stage.name in BEFORE_THE_RUN for stage in stages)
    return _with(current, (), stages[0] if waits else BegunStage(name=WAITING, since=times.to_text(now)))


def before_start(current: RLJobStatus) -> StartStatus | None:
    """Return what is kept for a new cluster of the start before: since when the former cluster is gone."""
    return current.start if current.start is not None and current.start.stage == WAITING else None


def with_pods_placed(current: RLJobStatus, head: Manifest) -> RLJobStatus:
    """Return the status with what the head pod shows of the stages before it was ready, after that of its creation."""
    start = current.start
    if start is None or start.stage != PODS:
        return current
    stages = [*start.stages, *pod_stages(head, start.since)]
    return current.model_copy(update={"start": start.model_copy(update={"stages": stages})})


def with_reported(current: RLJobStatus, reported: StartProgress | None, now: datetime) -> RLJobStatus:
    """Return the status with the stages that the run reports now after those that precede the run."""
    if reported is None:
        return current
    passed = (BegunStage(name=entry.stage, since=_time(entry.begun)) for entry in reported.passed)
    last = BegunStage(name=reported.stage, since=_time(reported.begun))
    stages = (*_before_the_run(current), *passed)
    return _with(current, stages, last, start_message.detail(reported), observed_time=times.to_text(now))


def is_further(current: RLJobStatus, reported: StartProgress | None) -> bool:
    """Report whether a run is in another stage, or further in it, than the status says."""
    known = current.start
    if reported is None or known is None or known.observed_time is None:
        return reported is not None
    return (known.stage, known.detail) != (reported.stage, start_message.detail(reported))


def with_training(current: RLJobStatus, since: str) -> RLJobStatus:
    """Return the status with the end of its start: the first step is complete."""
    if current.start is None or current.start.stage == TRAINING:
        return current
    return _with(current, current.start.stages, BegunStage(name=TRAINING, since=since))


def _with(
    current: RLJobStatus,
    before: Iterable[BegunStage],
    last: BegunStage,
    detail: str = "",
    observed_time: str | None = None,
) -> RLJobStatus:
    stages = [*before, last]
    start = StartStatus(stage=last.name, detail=detail, since=last.since, observed_time=observed_time, stages=stages)
    return current.model_copy(update={"start": start})


def _before_the_run(current: RLJobStatus) -> list[BegunStage]:
    return [entry for entry in (current.start.stages if current.start else ()) if entry.name in BEFORE_THE_RUN]


def _time(begun: float) -> str:
    return times.to_text(times.from_unix(begun))
