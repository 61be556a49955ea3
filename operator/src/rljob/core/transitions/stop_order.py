"""The order to stop a run: why, how, and until when it may save. The step module `stopping` carries it out."""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus, State
from rljob.api.under_way import StopStatus
from rljob.core import times
from rljob.core.attempts.stop_mode import Choice, choose_mode
from rljob.core.context import Context
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob_runtime.contract import COLLECT_SECONDS, STALL_SECONDS, StopMode

STALLED_GRACE_SECONDS = round(STALL_SECONDS + COLLECT_SECONDS) + 40
"""Time to dump the stacks and to collect the nodes' logs, and for two polls of a head that answers slowly."""

ENDED_GRACE_SECONDS = 10
"""Time for two polls of a head that must end its run at once."""
ENDS_JOB = frozenset({Reason.ACTIVE_DEADLINE_EXCEEDED, Reason.DEVICE_FAULT, Reason.STOP_REQUESTED})
"""Reasons after which the cluster may stay, by `cleanup.clusterAfterSeconds`."""
ASKED = frozenset({Reason.SUSPENDED, Reason.DELETED, Reason.STOP_REQUESTED, Reason.RESTART_REQUESTED})
"""Reasons that are a user's wish and no problem."""

NODES_MAX = 8
"""As many as a job avoids."""


def order_stop(
    context: Context,
    reason: Reason,
    message: str = "",
    *,
    fault: str | None = None,
    nodes: tuple[str, ...] = (),
    current: RLJobStatus | None = None,
) -> Plan:
    """Record that the run is to stop for this reason, or for a fault of these nodes; one order at a time.

    `current` is the status to record it in, if it says more than that which was read.
    """
    choice, grace = _how(context, reason)
    deadline = times.to_text(context.now + timedelta(seconds=grace))
    stop = StopStatus(
        reason=reason,
        mode=choice.mode.value,
        decision=choice.why,
        requested_time=times.to_text(context.now),
        deadline=deadline,
        message=message,
        fault=fault,
        nodes=list(nodes[:NODES_MAX]),
    )
    allowed = _allowed(context, choice, grace, deadline)
    text = f"{message}; {allowed}" if message else allowed
    new = (current or context.status).model_copy(update={"stop": stop})
    if reason is Reason.SUSPENDED:
        kind, word = ConditionType.SUSPENDED, Reason.SUSPENDING
    else:
        kind, word = ConditionType.PROGRESSING, reason
    new = context.writer.with_condition(new, kind, ConditionStatus.FALSE, word, text if grace else message)
    new = context.writer.summarised(new, State.STOPPING, word, text)
    event = EventType.NORMAL if reason in ASKED else EventType.WARNING
    return context.write(new, EventNote(event, word, text))


def _how(context: Context, reason: Reason) -> tuple[Choice, int]:
    """Return how the trainer is asked to stop, and the seconds that it gets."""
    if reason is Reason.PROGRESS_DEADLINE_EXCEEDED:
        return Choice(StopMode.STALLED, "no step is reached: the stacks are dumped first"), STALLED_GRACE_SECONDS
    if reason is Reason.WORKER_LOST:
        return Choice(StopMode.IMMEDIATE, "a part of the run is gone"), ENDED_GRACE_SECONDS
    choice = choose_mode(context.stop, context.status.progress, context.status.checkpoint)
    saves = context.frozen_spec is not None and context.frozen_spec.checkpoint is not None
    runs = context.open_attempt is not None
    if runs and saves and choice.mode is not StopMode.IMMEDIATE:
        return choice, context.stop.grace_seconds
    if runs and reason in ENDS_JOB and context.cleanup.cluster_after_seconds:
        # Nothing else would end the run in a cluster that stays.
        return Choice(StopMode.IMMEDIATE, "the cluster may stay, but the run must not"), ENDED_GRACE_SECONDS
    if runs and saves and reason is Reason.STOP_REQUESTED:
        # The hooks of pods that were created with another mode would let the run save.
        return choice, ENDED_GRACE_SECONDS
    return choice, 0


def _allowed(context: Context, choice: Choice, grace: int, deadline: str) -> str:
    """Return what the run may still do, for the message of the stop."""
    spec = context.frozen_spec
    if choice.mode is StopMode.STALLED:
        return f"the stacks of its processes are saved, and it ends by {deadline}"
    if context.open_attempt is None:
        return "no running attempt to checkpoint"
    if choice.mode is StopMode.IMMEDIATE:
        return "the run is ended immediately"
    if grace:
        return f"the run may save until {deadline}"
    why = "the snapshot of its spec was not found" if spec is None else "spec.checkpoint is not set"
    return f"the run is ended without a checkpoint: {why}"
