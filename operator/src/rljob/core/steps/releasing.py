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
from rljob.build.accelerators import ACCELERATORS, facts_of
from rljob.build.placement import requires_domain
from rljob.build.podgroup import Gang
from rljob.core import clock, status
from rljob.core.discovery import devices_in_all, workers_in_all
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.policies.holding import Holding, backoff_seconds, bound_seconds, find_holding
from rljob.core.policies.queueing import is_queued
from rljob.core.reasons import Reason
from rljob.core.spread import fraction
from rljob.core.steps.restarting import give_up
from rljob.core.steps.starting import cluster_is_ready
from rljob.core.view import View
from rljob_runtime.contract import StopMode

LOOK_SECONDS_MAX = 60.0
"""Bound of the pause between two looks at what is free, without jitter: a tenth of the time that the job has waited."""
TRUSTED_SECONDS = 3600.0
"""A look counts clusters of jobs and nodes of a class as a whole. Where that is wrong, a job loses an hour, no more."""


def is_waiting_for_devices(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and told.reason == Reason.WAITING_FOR_DEVICES


def release(view: View) -> Plan | None:
    """Give back everything when a part was held for too long, or nothing was had by the start deadline."""
    pods, spec = view.observed.pods, view.frozen_spec
    if view.intent.attempt > 0 or view.cluster is None or cluster_is_ready(view.cluster, view.observed.head_pod):
        return None
    if _has_gang(view) or isinstance(pods, Unseen) or spec is None or spec.accelerator.class_ not in ACCELERATORS:
        return None
    nodes, resource, each = view.observed.nodes, facts_of(spec).resource, spec.worker_groups[0].devices_per_node
    items = () if isinstance(nodes, Unseen) else nodes.items
    found = find_holding(pods, resource, {node.name: node.devices.get(resource, 0) // each for node in items})
    if found is None or _may_hold(view, found):
        return None
    # Of domains it is not known how many nodes each has.
    room = None if isinstance(nodes, Unseen) or requires_domain(spec) else workers_in_all(spec, nodes)
    # Nodes that could not be read just now are no reason to end what rightly waits.
    if room is None and not isinstance(nodes, Unseen) and _waited_seconds(view) >= view.deadlines.start_seconds:
        why = f"{_numbers(view, found)}; whether the cluster has such nodes is not known"
        return give_up(view, Reason.START_DEADLINE_EXCEEDED, why)
    if room is not None and room < spec.worker_groups[0].nodes:
        # Nobody uses what is not there: that ends at the start deadline.
        return None
    return _release(view, found)


def _has_gang(view: View) -> bool:
    """Whether somebody starts all pods or none; decided once, when the job began."""
    return (view.cluster is not None and is_queued(view.cluster)) or view.gang is not Gang.NONE


def _may_hold(view: View, found: Holding) -> bool:
    if view.now >= clock.from_text(view.intent.start_deadline):
        return False
    bound = bound_seconds(view.observed.partial_seconds, view.intent.cluster_name)
    return found.since is None or view.now < found.since + timedelta(seconds=bound)


def _release(view: View, found: Holding) -> Plan:
    now = clock.to_text(view.now)
    pause = backoff_seconds(_waited_seconds(view), view.observed.partial_seconds, view.intent.cluster_name)
    begin = view.now + timedelta(seconds=pause)
    message = f"{_numbers(view, found)}; released at {now}, tries again from {clock.to_text(begin)} on"
    reason = Reason.WAITING_FOR_DEVICES
    stop = StopStatus(reason=reason, mode=StopMode.IMMEDIATE.value, requested_time=now, deadline=now)
    new = view.status.model_copy(update={"stop": stop, "next_attempt_time": clock.to_text(begin)})
    new = view.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason, message)
    new = view.writer.summarised(new, State.PENDING, reason, message)
    return view.write(new, EventNote(EventType.WARNING, reason, status.bounded(message)))


def _numbers(view: View, found: Holding) -> str:
    """Say how much of a cluster has nodes."""
    groups = view.cluster["spec"]["workerGroupSpecs"] if view.cluster is not None else ()
    wanted = 1 + sum(int(group.get("replicas", 0)) for group in groups)
    have, wait = "has a node" if found.placed == 1 else "have nodes", "waits" if found.waiting == 1 else "wait"
    return f"{found.placed} of {wanted} pods {have}, {found.waiting} {wait} for devices: {found.words}"


def _waited_seconds(view: View) -> float:
    """Give for how long the job has had no whole cluster; one that lost a pod between two drivers had it until now."""
    told = status.condition(view.status, ConditionType.CLUSTER_READY)
    if told is None or told.status is ConditionStatus.TRUE:
        return 0.0
    return (view.now - clock.from_text(told.last_transition_time)).total_seconds()


def await_devices(view: View) -> Plan | None:
    """Make no cluster while others have the devices; where that cannot be known, or not be true, just try."""
    begin, spec = view.status.next_attempt_time, view.checked.spec or view.frozen_spec
    if view.active or begin is None or not is_waiting_for_devices(view.status) or spec is None:
        return None
    if spec.accelerator.class_ not in ACCELERATORS or view.now >= clock.after(begin, TRUSTED_SECONDS):
        return None
    if spec.scheduling.priority_class_name is not None:
        # Its pods may take the place of others', which the look knows nothing of.
        return None
    message = _missing_devices(view, spec)
    if not message:
        return None
    new = view.writer.with_condition(
        view.status, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, Reason.WAITING_FOR_DEVICES, message
    )
    new = view.writer.summarised(new, State.PENDING, Reason.WAITING_FOR_DEVICES, message)
    pause = min(max(_waited_seconds(view) / 10, view.observed.partial_seconds / 4), LOOK_SECONDS_MAX)
    return view.write(new, requeue=pause * (1 + fraction(view.job.uid)))


def _missing_devices(view: View, spec: RLJobSpec) -> str:
    """Say that others have too many devices of the class; empty where enough may be free."""
    nodes, taken, group = view.observed.nodes, view.observed.taken, spec.worker_groups[0]
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
