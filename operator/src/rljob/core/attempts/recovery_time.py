"""Where the seconds between two attempts go: from the last step of one to the first step of the next, by cause.

The causes of an attempt add up to that span, and `Repeated` comes on top: steps that were done before. What each cause
contains is in docs/reference/definitions.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from rljob.api.recovery_time import RecoveryCause, RecoveryTime
from rljob.api.status import Attempt
from rljob.api.under_way import BegunStage
from rljob.core import times
from rljob.core.observed import Manifest
from rljob_runtime.contract import StartStage

WAITING = "Waiting"
INITIALIZING = "Initializing"
QUEUED = "Queued"
PODS = "Pods"
IMAGE = "Image"
RAY = "Ray"
SUBMITTING = "Submitting"
TRAINING = "Training"
BEFORE_THE_RUN = (WAITING, INITIALIZING, QUEUED, PODS, IMAGE, RAY, SUBMITTING)
"""In their order; a cluster may come back into its queue."""
CAUSES: Mapping[str, RecoveryCause] = {
    WAITING: RecoveryCause.WAIT,
    INITIALIZING: RecoveryCause.INITIALIZERS,
    QUEUED: RecoveryCause.QUEUE,
    PODS: RecoveryCause.SCHEDULING,
    IMAGE: RecoveryCause.IMAGE,
    RAY: RecoveryCause.RAY,
    SUBMITTING: RecoveryCause.RAY,
    **dict.fromkeys(
        (
            *(StartStage.PREPARING, StartStage.CONNECTING, StartStage.WAITING_FOR_NODES, StartStage.CHECKING_NODES),
            *(StartStage.WAITING_FOR_DEVICES, StartStage.CLAIMING_CHECKPOINTS),
        ),
        RecoveryCause.CHECKS,
    ),
    **dict.fromkeys((StartStage.STARTING_TRAINER, StartStage.LOADING_DATA), RecoveryCause.IMPORTS),
    StartStage.STARTING_RANKS: RecoveryCause.IMPORTS,
    **dict.fromkeys(
        (StartStage.LOADING_CRITIC, StartStage.LOADING_MODEL, StartStage.LOADING_CHECKPOINT), RecoveryCause.MODEL
    ),
    StartStage.STARTING_REPLICAS: RecoveryCause.ENGINES,
    StartStage.SENDING_WEIGHTS: RecoveryCause.WEIGHTS,
}
"""Stages of a start; all others belong to the first step."""


def pod_stages(pod: Manifest, since: str) -> list[BegunStage]:
    """Return when a pod that was created for this start got its node, and when Ray started in it.

    The last worker may be later: that is part of the stage Ray.
    """
    state: Mapping[str, Any] = pod.get("status") or {}
    if str(pod["metadata"].get("creationTimestamp", "")) < since:
        return []
    placed = [
        entry.get("lastTransitionTime")
        for entry in state.get("conditions") or ()
        if entry["type"] == "PodScheduled" and entry["status"] == "True"
    ]
    started = [
        ((entry.get("state") or {}).get("running") or {}).get("startedAt")
        for entry in state.get("containerStatuses") or ()
        if entry["name"] == "ray-head"
    ]
    found = ((IMAGE, placed), (RAY, started))
    return [BegunStage(name=name, since=max(since, moments[0])) for name, moments in found if moments and moments[0]]


def recovery_of(
    attempts: Sequence[Attempt], stages: Sequence[BegunStage], first_step: str, step_seconds: float, made: int = 1
) -> list[RecoveryTime]:
    """Return the seconds by cause before the first step of the last attempt; nothing if none before it had trained.

    `made` is the number of steps that were made until then: a command may record only every tenth.
    """
    trained = [index for index, entry in enumerate(attempts[:-1]) if entry.last_step_time is not None]
    if not trained:
        return []
    before, failed = attempts[trained[-1]], attempts[trained[-1] + 1 : -1]
    seconds = Counter[RecoveryCause]()
    moments = [*_moments(before, failed, stages), (first_step, None)]
    last = times.from_text(moments[0][0])
    end = max(times.from_text(first_step), last)
    for (_, cause), (following, _) in pairwise(moments):
        # Clocks of other nodes are in it: what they contradict takes no time.
        until = min(max(times.from_text(following), last), end)
        if cause is not None:
            seconds[cause] += _whole(last, until)
        last = until
    repeated = max(before.last_step - attempts[-1].resumed_from_step - made, 0)
    seconds[RecoveryCause.REPEATED] = round(repeated * step_seconds)
    return [RecoveryTime(cause=cause, seconds=seconds[cause]) for cause in RecoveryCause if seconds[cause]]


def _moments(
    before: Attempt, failed: Sequence[Attempt], stages: Sequence[BegunStage]
) -> Iterator[tuple[str, RecoveryCause | None]]:
    """Yield when something began, and what."""
    yield str(before.last_step_time), RecoveryCause.DETECTION
    if before.stop_time is not None:
        yield before.stop_time, RecoveryCause.STOP
    after = RecoveryCause.DELETION if stages and stages[0].name == WAITING else RecoveryCause.WAIT
    yield str(before.end_time), RecoveryCause.FAILED_START if failed else after
    if failed:
        yield str(failed[-1].end_time), after
    for stage in stages:
        yield stage.since, CAUSES.get(stage.name, RecoveryCause.FIRST_STEP)


def _whole(since: datetime, until: datetime) -> int:
    return round((until - since).total_seconds())
