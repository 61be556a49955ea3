"""What a user asks of a job that exists: to end it for good, or to continue in a new cluster.

Both let the run save first, by the order to stop that `stopping` carries out. The request to end wins over everything
else that the job waits for. A request to restart is acted on once: its value is recorded with the order, and whatever
begins a new cluster generation anyway takes it along.
"""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import RLJobStatus
from rljob.core import times
from rljob.core.context import Context
from rljob.core.manifest_facts import asks_to_stop
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import STOPS_HERE
from rljob.core.step import step
from rljob.core.transitions.conclusions import end_on_request
from rljob.core.transitions.pacing import next_cluster, without_step
from rljob.core.transitions.stop_order import ENDED_GRACE_SECONDS, order_stop
from rljob.core.watched import Watched
from rljob_runtime.contract import StopMode

REQUESTED = frozenset({Reason.STOP_REQUESTED, Reason.RESTART_REQUESTED, Reason.SUSPENDED})
"""Reasons of a stop that a user asked for, and can ask to be quicker."""
TOO_LATE = (
    "spec.stop.requested is no longer true, which has no effect: the job has finished and does not start again; create "
    "a new job, whose checkpoint.from.job may name this one"
)


def _is_taken_back(seen: Watched) -> bool:
    generation = int(seen.manifest["metadata"].get("generation", 0))
    return (
        seen.finished
        and seen.status.reason == Reason.STOP_REQUESTED
        and not asks_to_stop(seen.raw_spec)
        and generation > seen.status.observed_generation
    )


@step(STOPS_HERE, when=_is_taken_back)
def refuse_to_go_on(context: Context) -> Plan:
    """Warn a user who withdraws the stop request of a job that the job has ended, once per edit."""
    # Everything else in the status of a finished job stays.
    new = context.status.model_copy(update={"observed_generation": context.writer.generation})
    return context.write(new, EventNote(EventType.WARNING, Reason.STOP_REQUESTED, TOO_LATE))


def _ends_now(seen: Watched) -> bool:
    """Report whether the request is acted on now: a stop under way completes first, whatever follows it."""
    if not seen.stop_requested:
        return False
    if seen.status.stop is not None:
        return not _runs(seen) and seen.status.stop.reason != Reason.STOP_REQUESTED
    # After a lost status, a run is first recorded again.
    return seen.began or not seen.clusters


def _runs(seen: Watched) -> bool:
    """Report whether a driver may run: its attempt is open, or intended and perhaps submitted."""
    return seen.active and seen.intent.attempt > 0 and (seen.attempt is None or seen.open_attempt is not None)


@step(STOPS_HERE, when=_ends_now)
def end(context: Context) -> Plan:
    """End a job in which nothing runs, or stop its run first."""
    return order_stop(context, Reason.STOP_REQUESTED) if _runs(context) else end_on_request(context, context.status)


@step()
def hasten(context: Context) -> Plan | None:
    """End a run at once that is already stopping, if the user no longer wants to wait for its checkpoint."""
    stop = context.status.stop
    if stop is None or stop.reason not in REQUESTED or not context.stop_requested or context.stop.mode != "Immediate":
        return None
    if stop.mode == StopMode.IMMEDIATE or context.open_attempt is None:
        return None
    soon = times.to_text(context.now + timedelta(seconds=ENDED_GRACE_SECONDS))
    update = {
        "mode": StopMode.IMMEDIATE.value,
        "decision": "stop.mode became Immediate",
        "deadline": min(stop.deadline, soon),
    }
    return context.write(context.status.model_copy(update={"stop": stop.model_copy(update=update)}))


def _restarts_now(seen: Watched) -> bool:
    return seen.began and seen.status.stop is None and seen.restart_request is not None


@step(STOPS_HERE, when=_restarts_now)
def restart(context: Context) -> Plan:
    """Stop the run of a job that continues in a new cluster; where nothing runs, the next cluster is new anyway."""
    due: dict[str, object] = {"restart_request": context.restart_request}
    if context.active or context.restarts_by_itself:
        # A job that waits for its next attempt begins it now, and one with an invalid edit keeps its frozen spec.
        due["next_attempt_time"] = times.to_text(max(context.now, next_cluster(context.status) or context.now))
        if context.active:
            count = {"clusters_without_step": without_step(context.status, asked=True)}
            due["intent"] = context.intent.model_copy(update=count)
    new: RLJobStatus = context.status.model_copy(update=due)
    return order_stop(context, Reason.RESTART_REQUESTED, current=new) if context.active else context.write(new)
