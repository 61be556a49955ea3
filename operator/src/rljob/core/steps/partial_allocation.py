"""All nodes or none, without a queue: what holds only some of its nodes gives all of them back, waits, and tries again.

The order to release is written down first and carried out by the same teardown as a suspension; the next cluster
generation follows when its time has come and, as far as this operator knows, enough devices are free. None of it is an
attempt or a failure. A job may so wait for days behind another one: `deadlines.startSeconds` counts anew for every
generation, and ends only what the nodes of the cluster could never hold.
"""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus, State, StopStatus
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.jitter import fraction
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.scheduling.discovery import devices_in_all, workers_in_all
from rljob.core.scheduling.held_nodes import Holding, backoff_seconds, bound_seconds, find_holding
from rljob.core.scheduling.kueue import is_queued
from rljob.core.steps.restarting import give_up
from rljob.core.steps.starting import cluster_is_ready
from rljob.render.accelerators import ACCELERATORS, facts_of
from rljob.render.placement import requires_domain
from rljob.render.podgroup import Gang
from rljob_runtime.contract import StopMode

LOOK_SECONDS_MAX = 60.0
"""Bound of the pause between two looks at what is free, without jitter: a tenth of the time that the job has waited."""
TRUSTED_SECONDS = 3600.0
"""A look counts clusters of jobs and nodes of a class as a whole. Where that is wrong, a job loses an hour, no more."""


def is_waiting_for_devices(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and told.reason == Reason.WAITING_FOR_DEVICES


def release(context: Context) -> Plan | None:
    """Give back everything when a part was held for too long, or nothing was had by the start deadline."""
    pods, spec = context.observed.pods, context.frozen_spec
    if (
        context.intent.attempt > 0
        or context.cluster is None
        or cluster_is_ready(context.cluster, context.observed.head_pod)
    ):
        return None
    if _has_gang(context) or isinstance(pods, Unseen) or spec is None or spec.accelerator.class_ not in ACCELERATORS:
        return None
    nodes, resource, each = context.observed.nodes, facts_of(spec).resource, spec.worker_groups[0].devices_per_node
    items = () if isinstance(nodes, Unseen) else nodes.items
    found = find_holding(pods, resource, {node.name: node.devices.get(resource, 0) // each for node in items})
    if found is None or _may_hold(context, found):
        return None
    # Of domains it is not known how many nodes each has.
    room = None if isinstance(nodes, Unseen) or requires_domain(spec) else workers_in_all(spec, nodes)
    # Nodes that could not be read just now are no reason to end what rightly waits.
    if room is None and not isinstance(nodes, Unseen) and _waited_seconds(context) >= context.deadlines.start_seconds:
        why = f"{_numbers(context, found)}; whether the cluster has such nodes is not known"
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, why)
    if room is not None and room < spec.worker_groups[0].nodes:
        # Nobody uses what is not there: that ends at the start deadline.
        return None
    return _release(context, found)


def _has_gang(context: Context) -> bool:
    """Whether somebody starts all pods or none; decided once, when the job began."""
    return (context.cluster is not None and is_queued(context.cluster)) or context.gang is not Gang.NONE


def _may_hold(context: Context, found: Holding) -> bool:
    if context.now >= times.from_text(context.intent.start_deadline):
        return False
    bound = bound_seconds(context.observed.partial_seconds, context.intent.cluster_name)
    return found.since is None or context.now < found.since + timedelta(seconds=bound)


def _release(context: Context, found: Holding) -> Plan:
    now = times.to_text(context.now)
    pause = backoff_seconds(_waited_seconds(context), context.observed.partial_seconds, context.intent.cluster_name)
    begin = context.now + timedelta(seconds=pause)
    message = f"{_numbers(context, found)}; released at {now}, tries again from {times.to_text(begin)} on"
    reason = Reason.WAITING_FOR_DEVICES
    stop = StopStatus(reason=reason, mode=StopMode.IMMEDIATE.value, requested_time=now, deadline=now)
    new = context.status.model_copy(update={"stop": stop, "next_attempt_time": times.to_text(begin)})
    new = context.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, State.PENDING, reason, message)
    return context.write(new, EventNote(EventType.WARNING, reason, status.bounded(message)))


def _numbers(context: Context, found: Holding) -> str:
    """Say how much of a cluster has nodes."""
    groups = context.cluster["spec"]["workerGroupSpecs"] if context.cluster is not None else ()
    wanted = 1 + sum(int(group.get("replicas", 0)) for group in groups)
    have, wait = "has a node" if found.placed == 1 else "have nodes", "waits" if found.waiting == 1 else "wait"
    return f"{found.placed} of {wanted} pods {have}, {found.waiting} {wait} for devices: {found.words}"


def _waited_seconds(context: Context) -> float:
    """Give for how long the job has had no whole cluster; one that lost a pod between two drivers had it until now."""
    told = status.condition(context.status, ConditionType.CLUSTER_READY)
    if told is None or told.status is ConditionStatus.TRUE:
        return 0.0
    return (context.now - times.from_text(told.last_transition_time)).total_seconds()


def await_devices(context: Context) -> Plan | None:
    """Make no cluster while others have the devices; where that cannot be known, or not be true, just try."""
    begin, spec = context.status.next_attempt_time, context.checked.spec or context.frozen_spec
    if context.active or begin is None or not is_waiting_for_devices(context.status) or spec is None:
        return None
    if spec.accelerator.class_ not in ACCELERATORS or context.now >= times.after(begin, TRUSTED_SECONDS):
        return None
    if spec.scheduling.priority_class_name is not None:
        # Its pods may take the place of others', which the look knows nothing of.
        return None
    message = _missing_devices(context, spec)
    if not message:
        return None
    new = context.writer.with_condition(
        context.status, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, Reason.WAITING_FOR_DEVICES, message
    )
    new = context.writer.summarised(new, State.PENDING, Reason.WAITING_FOR_DEVICES, message)
    pause = min(max(_waited_seconds(context) / 10, context.observed.partial_seconds / 4), LOOK_SECONDS_MAX)
    return context.write(new, requeue=pause * (1 + fraction(context.job.uid)))


def _missing_devices(context: Context, spec: RLJobSpec) -> str:
    """Say that others have too many devices of the class; empty where enough may be free."""
    nodes, taken, group = context.observed.nodes, context.observed.taken, spec.worker_groups[0]
    if isinstance(nodes, Unseen) or isinstance(taken, Unseen) or workers_in_all(spec, nodes) is None:
        return ""
    name, wanted = spec.accelerator.class_, group.nodes * group.devices_per_node
    there, theirs = devices_in_all(spec, nodes), taken.get(name, 0)
    if there - theirs >= wanted:
        return ""
    return (
        f"the job needs {wanted} devices of class {name}; of {there}, the clusters of other jobs have {theirs}; "
        "it holds nothing, and begins when enough are free"
    )
