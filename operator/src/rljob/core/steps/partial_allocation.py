"""All nodes or none, without a queue: a job that holds only some of its nodes releases them, waits, and tries again.

The order to release is recorded first and carried out by the same teardown as a suspension. The next cluster generation
begins when its time has come and, as far as this operator knows, enough devices are free. None of this is an attempt or
a failure. A job may wait in this way for days: `deadlines.startSeconds` counts from the start of every generation, and
ends only jobs that the nodes of the cluster could never hold.
"""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import ConditionStatus, ConditionType, State
from rljob.api.under_way import StopStatus
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.jitter import fraction
from rljob.core.manifest_facts import wanted_workers
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements, starting_pods
from rljob.core.scheduling.discovery import devices_in_all, workers_in_all
from rljob.core.scheduling.held_nodes import Holding, backoff_seconds, bound_seconds, find_holding
from rljob.core.scheduling.kueue import is_queued
from rljob.core.scheduling.worker_sizes import WorkerSizes
from rljob.core.step import step
from rljob.core.transitions.conclusions import give_up
from rljob.core.watched import Watched
from rljob.render.accelerators import class_is_known, facts_of
from rljob.render.placement import requires_domain
from rljob.render.podgroup import Gang
from rljob_runtime.contract import StopMode

LOOK_SECONDS_MAX = 60.0
"""Upper bound of the interval between two looks at free devices, without jitter: a tenth of the job's wait."""
TRUSTED_SECONDS = 3600.0
"""Free devices are counted by clusters and nodes of a class. If the count is wrong, a job loses an hour at most."""


@step(starting_pods, when=lambda seen: seen.is_starting)
def release(context: Context) -> Plan | None:
    """Release all nodes when only some were held for too long, or none by the start deadline."""
    pods, spec = context.observed.pods, context.frozen_spec
    if _has_gang(context) or isinstance(pods, Unseen) or spec is None or not class_is_known(spec):
        return None
    nodes, resource = context.observed.nodes, facts_of(spec).resource
    items = () if isinstance(nodes, Unseen) else nodes.items
    devices = {node.name: node.devices.get(resource, 0) for node in items}
    found = find_holding(pods, resource, devices, WorkerSizes.of_spec(spec))
    if found is None or _may_hold(context, found):
        return None
    # How many nodes each topology domain has is not known.
    room = None if isinstance(nodes, Unseen) or requires_domain(spec) else workers_in_all(spec, nodes)
    # Nodes that could not be read just now are no reason to end a justified wait.
    if room is None and not isinstance(nodes, Unseen) and _waited_seconds(context) >= context.deadlines.start_seconds:
        why = f"{_numbers(context, found)}; whether the cluster has such nodes is not known"
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, why)
    if room is not None and room < spec.nodes:
        # The cluster lacks such nodes, so nobody will free them: the start deadline applies.
        return None
    return _release(context, found)


def _has_gang(context: Context) -> bool:
    """Report whether a scheduler starts all pods together; decided once, when the job began."""
    return (context.cluster is not None and is_queued(context.cluster)) or context.gang is not Gang.NONE


def _may_hold(context: Context, found: Holding) -> bool:
    if context.is_late:
        return False
    bound = bound_seconds(context.observed.partial_seconds, context.intent.cluster_name)
    return found.since is None or context.now < found.since + timedelta(seconds=bound)


def _release(context: Context, found: Holding) -> Plan:
    now = times.to_text(context.now)
    pause = backoff_seconds(_waited_seconds(context), context.observed.partial_seconds, context.intent.cluster_name)
    begin = context.now + timedelta(seconds=pause)
    message = f"{_numbers(context, found)}; released at {now}; next try from {times.to_text(begin)}"
    reason = Reason.WAITING_FOR_DEVICES
    stop = StopStatus(reason=reason, mode=StopMode.IMMEDIATE.value, requested_time=now, deadline=now)
    new = context.status.model_copy(update={"stop": stop, "next_attempt_time": times.to_text(begin)})
    new = context.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, State.PENDING, reason, message)
    return context.write(new, EventNote(EventType.WARNING, reason, status.bounded(message)))


def _numbers(context: Context, found: Holding) -> str:
    """Return how many pods of the cluster have nodes."""
    wanted = 1 + (wanted_workers(context.cluster) if context.cluster is not None else 0)
    have, wait = "has a node" if found.placed == 1 else "have nodes", "waits" if found.waiting == 1 else "wait"
    return f"{found.placed} of {wanted} pods {have}, {found.waiting} {wait} for devices: {found.words}"


def _waited_seconds(context: Context) -> float:
    """Return for how long the job has had no complete cluster; 0 if it lost a pod between two drivers."""
    condition = status.condition(context.status, ConditionType.CLUSTER_READY)
    if condition is None or condition.status is ConditionStatus.TRUE:
        return 0.0
    return (context.now - times.from_text(condition.last_transition_time)).total_seconds()


def _awaits_devices(seen: Watched) -> bool:
    return seen.between_generations and status.is_waiting_for(seen.status, Reason.WAITING_FOR_DEVICES)


@step(Requirements(nodes=True, fresh_nodes=True, taken=True), when=_awaits_devices)
def await_devices(context: Context) -> Plan | None:
    """Create no cluster while other jobs have the devices; if that is unknown, or may be wrong, try."""
    begin, spec = context.status.next_attempt_time, context.checked.spec or context.frozen_spec
    if begin is None or spec is None or not class_is_known(spec) or context.now >= times.after(begin, TRUSTED_SECONDS):
        return None
    if spec.scheduling.priority_class_name is not None:
        # Its pods may preempt others, which the count does not know.
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
    """Return a message if other jobs have too many devices of the class; empty if enough may be free."""
    nodes, taken = context.observed.nodes, context.observed.taken
    if isinstance(nodes, Unseen) or isinstance(taken, Unseen) or workers_in_all(spec, nodes) is None:
        return ""
    name, wanted = spec.accelerator.class_, spec.devices
    there, theirs = devices_in_all(spec, nodes), taken.get(name, 0)
    if there - theirs >= wanted:
        return ""
    return (
        f"the job needs {wanted} devices of class {name}; of {there}, the clusters of other jobs have {theirs}; "
        "it holds nothing, and begins when enough are free"
    )
