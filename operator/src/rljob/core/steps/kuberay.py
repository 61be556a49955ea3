"""A cluster that KubeRay never looked at: none of its pods exists, so the job waits and spends nothing.

Only a cluster that reaches its start deadline in this state waits. One that KubeRay has seen without creating pods
fails as any other start.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus
from rljob.core import status
from rljob.core.context import Context
from rljob.core.manifest_facts import age_seconds, is_suspended
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import Plan
from rljob.core.polling import pod_poll_seconds
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, Requirements, is_quiet, starting_pods
from rljob.core.step import guarded, step
from rljob.core.transitions.conclusions import fail
from rljob.core.transitions.conditions import report_not_ready, with_cluster_begun
from rljob.core.transitions.queue_admission import admission_of, with_admission
from rljob.core.watched import Watched

AWAY = "KubeRay has not looked at the RayCluster, so no pod exists; deadlines.startSeconds counts from when it does"
INVALID = "InvalidRayCluster"
"""Prefix of the reason of KubeRay's event about a cluster that it refuses; such a cluster gets no status (v1.6.2,
raycluster_controller.go, rayClusterReconcile)."""
REFUSAL_SECONDS = 900.0
"""A cluster that KubeRay has not touched for this long may be one that it refuses; the event lives for an hour."""
WAIT_SECONDS = 300.0
"""Interval between two looks for such an event; everything else of KubeRay is watched."""


def _refusal_events(seen: Watched) -> Requirements:
    """Require the events about a cluster that KubeRay may have refused: nothing else shows a refusal."""
    cluster = guarded(seen.cluster)
    if is_quiet(seen) or is_taken_up(cluster, seen.head_pod, ()):
        return NOTHING
    if status.is_waiting_for(seen.status, Reason.WAITING_FOR_KUBERAY):
        # The pods are not read: KubeRay's first reaction is watched.
        return Requirements(cluster_events=True, stops_here=True)
    untouched = seen.is_late or age_seconds(cluster, seen.now) >= REFUSAL_SECONDS
    return starting_pods(seen) | Requirements(cluster_events=untouched)


def _may_wait(seen: Watched) -> bool:
    return seen.intent.attempt == 0 and seen.cluster is not None and not is_suspended(seen.cluster)


@step(_refusal_events, when=_may_wait)
def await_kuberay(context: Context) -> Plan | None:
    """At the start deadline, wait for a KubeRay that is away; startSeconds counts from when it is back."""
    cluster = guarded(context.cluster)
    waits = status.is_waiting_for(context.status, Reason.WAITING_FOR_KUBERAY)
    if is_taken_up(cluster, context.observed.head_pod, context.observed.pods):
        return _begin(context) if waits else None
    if (refused := _refusal(context, cluster)) is not None:
        return fail(context, Reason.INVALID_MANIFEST, refused)
    if waits:
        return Plan(requeue_after_seconds=WAIT_SECONDS)
    if not _reached_deadline(context):
        return None
    if isinstance(context.observed.pods, Unseen):
        return Plan(requeue_after_seconds=pod_poll_seconds(cluster, context.now))
    return report_not_ready(context, with_admission(context, context.status), Reason.WAITING_FOR_KUBERAY.value, AWAY)


def is_taken_up(cluster: Manifest, head_pod: Manifest | None, pods: tuple[Manifest, ...] | Unseen) -> bool:
    """Report whether KubeRay has seen the cluster as it is now: it has pods, or a status from after its suspension."""
    state, pods = cluster.get("status") or {}, () if isinstance(pods, Unseen) else pods
    # Until the pods are ready the state stays "suspended", but KubeRay records which generation it has seen.
    known = state.get("observedGeneration", 0) >= cluster["metadata"].get("generation", 1)
    return bool(pods) or head_pod is not None or (bool(state) and (state.get("state") != "suspended" or known))


def _refusal(context: Context, cluster: Manifest) -> str | None:
    """Return KubeRay's message if it refuses the cluster: only another manifest changes that."""
    for event in context.observed.cluster_events:
        about = (event.get("regarding") or {}).get("uid", cluster["metadata"]["uid"])
        if str(event.get("reason", "")).startswith(INVALID) and about == cluster["metadata"]["uid"]:
            said = status.bounded(str(event.get("note") or event["reason"]))
            return f"KubeRay: {said}; correct the fields that it is rendered from and create the job again"
    return None


def _reached_deadline(context: Context) -> bool:
    """Report whether the start deadline has passed, and no queue reports what the cluster waits for."""
    seen = admission_of(context)
    held_back = seen is not None and seen.value is ConditionStatus.FALSE
    return context.is_late and not held_back and not status.is_waiting_for(context.status, Reason.WAITING_FOR_QUEUE)


def _begin(context: Context) -> Plan:
    return context.write(
        with_cluster_begun(context, context.status.model_copy(update={"intent": context.timed_anew()}))
    )
