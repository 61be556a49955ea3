"""The hardware under a run: told when it is degraded, left when it is at fault, waited for when nothing else is there.

Nothing here evicts a pod or touches a node: drains, taints and resets are Kubernetes' and the plug-in's own business.
A run is stopped only where another attempt may follow; otherwise it goes on as long as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rljob.api.status import Condition, ConditionStatus, ConditionType, ExcludedNode, RLJobStatus, State
from rljob.build.accelerators import ACCELERATORS, facts_of
from rljob.core import clock, status
from rljob.core.discovery import Room, room_for
from rljob.core.faults import CLASSES, NODE_CORDONED, Effect, Trouble, listed, node_troubles
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.policies.failures import Action, fault_rule, judge_fault
from rljob.core.reasons import Reason
from rljob.core.steps.ordering import order_stop
from rljob.core.view import View

WAIT_SECONDS = 15.0
"""Between two looks at nodes that are waited for."""
EXCLUDED_SECONDS = 24 * 3600
"""A day: time for somebody to look at the node; afterwards it gets another chance."""
BLAMED_SECONDS = 300.0
"""How long mere blame keeps all other devices waiting: within a minute or two Kubernetes (kube-controller-manager
--node-monitor-grace-period, 50 s) or the device plug-in say what is wrong with a node."""
NODES_NAMED = 4
RETURNING = frozenset(row.reason for row in CLASSES.values() if row.effect >= Effect.AVOIDS)
"""Reasons to avoid a node that may be seen to be gone; other blame lasts until its time is over."""


def mind_nodes(view: View) -> Plan | None:
    """Tell what is wrong with the nodes of a run, and stop it where it must not go on; None: go on."""
    troubles = view.troubles
    if isinstance(troubles, Unseen):
        return None
    told = status.condition(view.status, ConditionType.DEGRADED)
    acting = _acting(view, troubles)
    goes_on = _why_it_goes_on(view, acting)
    if (plan := _tell(view, told, troubles, goes_on)) is not None:
        return plan
    if not acting or goes_on or told is None:
        return None
    lasts = view.now - clock.from_text(told.last_transition_time)
    if lasts < timedelta(seconds=acting[0].row.wait_seconds):
        return None
    nodes = dict.fromkeys(trouble.node for trouble in acting)
    return order_stop(view, Reason.DEVICE_FAULT, listed(acting), fault=acting[0].name, nodes=tuple(nodes))


def _acting(view: View, troubles: Sequence[Trouble]) -> tuple[Trouble, ...]:
    """Give what a run is stopped for: what the user has a rule for, then what is bad enough."""
    ruled = {trouble: fault_rule(view.restart.rules, trouble.name) is not None for trouble in troubles}
    found = [trouble for trouble in troubles if ruled[trouble] or trouble.row.effect >= Effect.RESTARTS]
    return tuple(sorted(found, key=lambda trouble: not ruled[trouble]))


def _why_it_goes_on(view: View, acting: Sequence[Trouble]) -> str:
    """Say why no attempt would follow that anybody asked for: a run on bad hardware is worth more than none."""
    if not acting:
        return ""
    rule = fault_rule(view.restart.rules, acting[0].name)
    if rule is not None and rule.action in ("Fail", "Stop"):
        return ""
    saved = view.status.checkpoint.step if view.status.checkpoint else 0
    verdict = judge_fault(acting[0].name, view.restart, view.status.budget, saved, seed="")
    if verdict.action is not Action.FAIL:
        return ""
    return f"the run goes on as long as it can, since {verdict.why or 'restart.maxInfrastructureRestarts is 0'}"


def _tell(view: View, told: Condition | None, troubles: Sequence[Trouble], goes_on: str) -> Plan | None:
    """Bring the condition Degraded up to date."""
    if not troubles:
        if told is None or told.status is ConditionStatus.FALSE:
            return None
        new = without_troubles(view, view.status)
        return view.write(new, EventNote(EventType.NORMAL, Reason.HEALTHY, f"no more: {told.message}"))
    reason, message = troubles[0].row.reason, listed(troubles)
    message = status.bounded(f"{message}; {goes_on}" if goes_on else message)
    known = told is not None and told.status is ConditionStatus.TRUE
    same = told is not None and known and told.reason == reason
    if same and told is not None and told.message == message:
        return None
    # A reason counts from when it was first seen: how long a fault lasts decides what follows.
    base = view.status if same else without_troubles(view, view.status)
    new = view.writer.with_condition(base, ConditionType.DEGRADED, ConditionStatus.TRUE, reason, message)
    events = () if same else (EventNote(EventType.WARNING, reason, message),)
    return view.write(new, *events)


def without_troubles(view: View, current: RLJobStatus) -> RLJobStatus:
    """Take the condition Degraded back, where it was told."""
    if not status.is_true(current, ConditionType.DEGRADED):
        return current
    return view.writer.with_condition(current, ConditionType.DEGRADED, ConditionStatus.FALSE, Reason.HEALTHY)


# Before the next generation.


def returning_nodes(current: RLJobStatus) -> tuple[str, ...]:
    """Name the nodes that are avoided for something that may have ended."""
    return tuple(entry.name for entry in current.excluded_nodes if entry.reason in RETURNING)


def is_waiting_for_nodes(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and told.reason == Reason.WAITING_FOR_NODES


def return_nodes(view: View) -> Plan | None:
    """Use nodes again whose faults are gone, before the next generation is made."""
    spec = view.frozen_spec
    if view.active or spec is None or spec.accelerator.class_ not in ACCELERATORS:
        return None
    resource, looks = facts_of(spec).resource, view.observed.looks
    well = {
        name
        for name in returning_nodes(view.status)
        if name in looks and not any(_keeps_out(view, trouble) for trouble in node_troubles(looks[name], resource))
    }
    if not well:
        return None
    left = [entry for entry in view.status.excluded_nodes if entry.name not in well]
    new = view.status.model_copy(update={"excluded_nodes": left})
    return view.write(new, EventNote(EventType.NORMAL, Reason.HEALTHY, f"used again: {', '.join(sorted(well))}"))


def _keeps_out(view: View, trouble: Trouble) -> bool:
    """Whether a node with this fault stays avoided: what a rule ends runs for would end the next one too."""
    # Off a cordoned node the scheduler keeps by itself.
    ruled = trouble.name != NODE_CORDONED and fault_rule(view.restart.rules, trouble.name) is not None
    return ruled or trouble.row.effect >= Effect.AVOIDS


def await_nodes(view: View) -> Plan | None:
    """Begin no generation that cannot start without the nodes at fault: it would only burn the budget.

    Where the cluster has too few nodes of the class altogether the pods wait, so that somebody may add some.
    """
    spec = view.checked.spec or view.frozen_spec
    if view.active or view.status.intent is None or spec is None or spec.accelerator.class_ not in ACCELERATORS:
        return None
    nodes = view.observed.nodes
    if isinstance(nodes, Unseen):
        return Plan(requeue_after_seconds=WAIT_SECONDS) if is_waiting_for_nodes(view.status) else None
    avoided = {node.name: node for node in view.status.excluded_nodes if clock.from_text(node.until) > view.now}
    room, wanted = room_for(spec, nodes, avoided), spec.worker_groups[0].nodes
    if room is None or len(room.all) < wanted or len(room.usable) >= wanted:
        return None
    if (plan := _use_doubtful(view)) is not None:
        return plan
    message = _missing_room(view, room, wanted, avoided)
    new = view.writer.with_condition(
        view.status, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, Reason.WAITING_FOR_NODES, message
    )
    state = State.RESTARTING if view.restarts_by_itself else State.PENDING
    new = view.writer.summarised(new, state, Reason.WAITING_FOR_NODES, message)
    first = not is_waiting_for_nodes(view.status)
    events = (EventNote(EventType.WARNING, Reason.WAITING_FOR_NODES, message),) if first else ()
    return view.write(new, *events, requeue=WAIT_SECONDS)


def _use_doubtful(view: View) -> Plan | None:
    """Give up blame after a while: a doubtful node is better than none."""
    doubted = {
        entry.name
        for entry in view.status.excluded_nodes
        if entry.reason not in RETURNING and _doubted_until(view, entry) <= view.now
    }
    if not doubted:
        return None
    left = [entry for entry in view.status.excluded_nodes if entry.name not in doubted]
    new = view.status.model_copy(update={"excluded_nodes": left})
    note = f"used again, since too few others are left: {', '.join(sorted(doubted))}"
    return view.write(new, EventNote(EventType.WARNING, Reason.WAITING_FOR_NODES, note))


def _doubted_until(view: View, entry: ExcludedNode) -> datetime:
    """Give until when a node is done without: longer for what a check has found than for mere blame.

    Nobody but the next attempt finds out whether a check would go well again.
    """
    start = view.deadlines.start_seconds
    # Of blame alone there is no message (`restarting._excluded`).
    patience = start if entry.message else min(start, BLAMED_SECONDS)
    return clock.from_text(entry.until) - timedelta(seconds=EXCLUDED_SECONDS - patience)


def _missing_room(view: View, room: Room, wanted: int, avoided: dict[str, ExcludedNode]) -> str:
    names = sorted(room.all - room.usable)
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    listed_names = "; ".join(_why_not(view, name, avoided.get(name)) for name in names[:NODES_NAMED])
    return f"{len(room.usable)} of {len(room.all)} nodes can be used and the job needs {wanted}: {listed_names}{more}"


def _why_not(view: View, name: str, entry: ExcludedNode | None) -> str:
    if entry is None:
        return f"{name} is cordoned, silent, or offers too few devices"
    fault = f" ({entry.message})" if entry.message else ""
    if entry.reason in RETURNING:
        return f"{name} is avoided until {entry.until} for {entry.reason}{fault}, or until that is gone"
    return f"{name} is done without until {clock.to_text(_doubted_until(view, entry))} for {entry.reason}{fault}"
