"""The hardware of a run: reported when it is degraded, left when it is at fault, waited for when there is no other.

Nothing here evicts a pod or changes a node: drains, taints and resets are up to Kubernetes and the device plug-in. A
run is stopped only if another attempt may follow; otherwise it continues as long as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rljob.api.status import Condition, ConditionStatus, ConditionType, ExcludedNode, RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.attempts.classify import Action, fault_rule, judge_fault
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements, intended_head
from rljob.core.scheduling.discovery import Room, room_for
from rljob.core.scheduling.node_faults import CLASSES, NODE_CORDONED, FaultEffect, NodeFault, listed, node_faults
from rljob.core.step import step
from rljob.core.transitions.conclusions import EXCLUDED_SECONDS
from rljob.core.transitions.conditions import healed
from rljob.core.transitions.stop_order import order_stop
from rljob.core.watched import Watched
from rljob.render.accelerators import class_is_known, facts_of

WAIT_SECONDS = 15.0
"""Interval between two looks at nodes that the job waits for."""
BLAMED_SECONDS = 300.0
"""How long mere blame of a node keeps all other devices waiting: within a minute or two Kubernetes
(kube-controller-manager --node-monitor-grace-period, 50 s) or the device plug-in reports what is wrong with a node."""
NODES_NAMED = 4
RETURNING = frozenset(row.reason for row in CLASSES.values() if row.effect >= FaultEffect.AVOIDS)
"""Reasons to avoid a node whose end can be observed; other blame lasts until it expires."""


@step(intended_head)
def act_on_faults(context: Context) -> Plan | None:
    """Report the faults of a run's nodes, and stop a run that must not continue on them."""
    node_faults = context.node_faults
    if isinstance(node_faults, Unseen):
        return None
    condition = status.condition(context.status, ConditionType.DEGRADED)
    acting = _acting(context, node_faults)
    continues = _why_it_continues(context, acting)
    if (plan := _report(context, condition, node_faults, continues)) is not None:
        return plan
    if not acting or continues or condition is None:
        return None
    lasts = context.now - times.from_text(condition.last_transition_time)
    if lasts < timedelta(seconds=acting[0].row.wait_seconds):
        return None
    nodes = dict.fromkeys(node_fault.node for node_fault in acting)
    return order_stop(context, Reason.DEVICE_FAULT, listed(acting), fault=acting[0].name, nodes=tuple(nodes))


def _acting(context: Context, node_faults: Sequence[NodeFault]) -> tuple[NodeFault, ...]:
    """Return the faults that a run is stopped for: first those that a restart rule names, then the severe ones."""
    ruled = {node_fault: fault_rule(context.restart.rules, node_fault.name) is not None for node_fault in node_faults}
    found = [
        node_fault for node_fault in node_faults if ruled[node_fault] or node_fault.row.effect >= FaultEffect.RESTARTS
    ]
    return tuple(sorted(found, key=lambda node_fault: not ruled[node_fault]))


def _why_it_continues(context: Context, acting: Sequence[NodeFault]) -> str:
    """Return why no attempt would follow a stop: a run on bad hardware is worth more than none. Empty if one would."""
    if not acting:
        return ""
    rule = fault_rule(context.restart.rules, acting[0].name)
    if rule is not None and rule.action in ("Fail", "Stop"):
        return ""
    saved = context.status.checkpoint.step if context.status.checkpoint else 0
    verdict = judge_fault(acting[0].name, context.restart, context.status.budget, saved, seed="")
    if verdict.action is not Action.FAIL:
        return ""
    return f"the run continues as long as it can, since {verdict.why or 'restart.maxInfrastructureRestarts is 0'}"


def _report(
    context: Context, condition: Condition | None, node_faults: Sequence[NodeFault], continues: str
) -> Plan | None:
    """Update the condition Degraded."""
    if not node_faults:
        if condition is None or condition.status is ConditionStatus.FALSE:
            return None
        new = healed(context, context.status)
        return context.write(new, EventNote(EventType.NORMAL, Reason.HEALTHY, f"resolved: {condition.message}"))
    reason, message = node_faults[0].row.reason, listed(node_faults)
    message = f"{message}; {continues}" if continues else message
    known = condition is not None and condition.status is ConditionStatus.TRUE
    same = condition is not None and known and condition.reason == reason
    # The transition time is when a reason was first seen: how long a fault lasts decides what follows.
    base = context.status if same else healed(context, context.status)
    new = context.writer.with_changed(base, ConditionType.DEGRADED, ConditionStatus.TRUE, reason, message)
    events = () if same else (EventNote(EventType.WARNING, reason, status.bounded(message)),)
    return None if new is context.status else context.write(new, *events)


def returning_nodes(current: RLJobStatus) -> tuple[str, ...]:
    """Return the nodes that are avoided for a fault that may have ended."""
    return tuple(entry.name for entry in current.excluded_nodes if entry.reason in RETURNING)


def _avoided_nodes(seen: Watched) -> Requirements:
    """Require a look at the nodes whose faults may be gone."""
    return Requirements(look_at=returning_nodes(seen.status))


@step(_avoided_nodes, when=lambda seen: seen.between_generations)
def return_nodes(context: Context) -> Plan | None:
    """Use nodes again whose faults are gone, before the next generation begins."""
    spec = context.frozen_spec
    if spec is None or not class_is_known(spec):
        return None
    resource, looks = facts_of(spec).resource, context.observed.looks
    well = {
        name
        for name in returning_nodes(context.status)
        if name in looks
        and not any(_keeps_out(context, node_fault) for node_fault in node_faults(looks[name], resource))
    }
    if not well:
        return None
    left = [entry for entry in context.status.excluded_nodes if entry.name not in well]
    new = context.status.model_copy(update={"excluded_nodes": left})
    return context.write(new, EventNote(EventType.NORMAL, Reason.HEALTHY, f"used again: {', '.join(sorted(well))}"))


def _keeps_out(context: Context, node_fault: NodeFault) -> bool:
    """Report whether a node with this fault stays avoided: a fault that stopped a run by a rule would stop the next."""
    # The scheduler avoids a cordoned node by itself.
    ruled = node_fault.name != NODE_CORDONED and fault_rule(context.restart.rules, node_fault.name) is not None
    return ruled or node_fault.row.effect >= FaultEffect.AVOIDS


def _nodes(seen: Watched) -> Requirements:
    return Requirements(nodes=True, fresh_nodes=status.is_waiting_for(seen.status, Reason.WAITING_FOR_NODES))


@step(_nodes, when=lambda seen: seen.between_generations)
def await_nodes(context: Context) -> Plan | None:
    """Begin no generation that cannot start without the nodes at fault: it would only use up the budget.

    If the cluster has too few nodes of the class altogether, the pods wait, so that somebody may add some.
    """
    spec = context.checked.spec or context.frozen_spec
    if spec is None or not class_is_known(spec):
        return None
    nodes = context.observed.nodes
    if isinstance(nodes, Unseen):
        return (
            Plan(requeue_after_seconds=WAIT_SECONDS)
            if status.is_waiting_for(context.status, Reason.WAITING_FOR_NODES)
            else None
        )
    avoided = {node.name: node for node in context.status.excluded_nodes if times.from_text(node.until) > context.now}
    room = room_for(spec, nodes, avoided)
    if room is None or room.places < spec.nodes or room.free >= spec.nodes:
        return None
    if (plan := _use_doubtful(context)) is not None:
        return plan
    message = _missing_room(context, room, spec, avoided)
    new = context.writer.with_condition(
        context.status, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, Reason.WAITING_FOR_NODES, message
    )
    state = State.RESTARTING if context.restarts_by_itself else State.PENDING
    new = context.writer.summarised(new, state, Reason.WAITING_FOR_NODES, message)
    first = not status.is_waiting_for(context.status, Reason.WAITING_FOR_NODES)
    events = (EventNote(EventType.WARNING, Reason.WAITING_FOR_NODES, message),) if first else ()
    return context.write(new, *events, requeue=WAIT_SECONDS)


def _use_doubtful(context: Context) -> Plan | None:
    """Use blamed nodes again after a while: a doubtful node is better than none."""
    doubted = {
        entry.name
        for entry in context.status.excluded_nodes
        if entry.reason not in RETURNING and _doubted_until(context, entry) <= context.now
    }
    if not doubted:
        return None
    left = [entry for entry in context.status.excluded_nodes if entry.name not in doubted]
    new = context.status.model_copy(update={"excluded_nodes": left})
    note = f"used again, since too few others are left: {', '.join(sorted(doubted))}"
    return context.write(new, EventNote(EventType.WARNING, Reason.WAITING_FOR_NODES, note))


def _doubted_until(context: Context, entry: ExcludedNode) -> datetime:
    """Return until when a node is avoided: longer for the finding of a check than for mere blame.

    Only the next attempt shows whether the check would pass again.
    """
    start = context.deadlines.start_seconds
    # Mere blame has no message (`transitions.conclusions`).
    patience = start if entry.message else min(start, BLAMED_SECONDS)
    return times.from_text(entry.until) - timedelta(seconds=EXCLUDED_SECONDS - patience)


def _missing_room(context: Context, room: Room, spec: RLJobSpec, avoided: dict[str, ExcludedNode]) -> str:
    names = sorted(room.all - room.usable)
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    listed_names = "; ".join(_why_not(context, name, avoided.get(name)) for name in names[:NODES_NAMED])
    wanted = str(spec.nodes)
    if len(spec.worker_groups) > 1:
        each = " and ".join(f"{group.nodes} for group {group.name}" for group in spec.worker_groups)
        wanted = f"{each}, of which {room.free} find devices"
    return f"{len(room.usable)} of {len(room.all)} nodes are usable and the job needs {wanted}: {listed_names}{more}"


def _why_not(context: Context, name: str, entry: ExcludedNode | None) -> str:
    if entry is None:
        return f"{name} is cordoned, not ready, or offers too few devices"
    fault = f" ({entry.message})" if entry.message else ""
    if entry.reason in RETURNING:
        return f"{name} is avoided until {entry.until} for {entry.reason}{fault}, or until the fault is gone"
    return f"{name} is not used until {times.to_text(_doubted_until(context, entry))} for {entry.reason}{fault}"
