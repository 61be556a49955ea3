"""A cluster that KubeRay never looked at: nothing of it is made or held, so that its job waits and spends nothing.

Only where it reaches its start deadline so. What KubeRay has looked at and made no pods of ends there, as any start.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import status
from rljob.core.attempts.start_diagnosis import KUBERAY_AWAY, StartReason
from rljob.core.context import Context
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import Plan
from rljob.core.reasons import Reason
from rljob.core.steps.finishing import fail
from rljob.core.steps.queue_admission import admission_of, with_admission
from rljob.core.steps.starting import is_late, is_waiting_for_queue, pod_poll_seconds, tell, with_cluster_begun

INVALID = "InvalidRayCluster"
"""Beginning of the reason of KubeRay's event about a cluster that it refuses, to which it gives no status (v1.6.2,
raycluster_controller.go, rayClusterReconcile)."""
WORDS_SECONDS = 900.0
"""A cluster that KubeRay has not touched for so long may be one that it refuses; its event lives for an hour."""
WAIT_SECONDS = 300.0
"""Between two looks for such an event: KubeRay's other words are watched."""


def await_kuberay(context: Context) -> Plan | None:
    """Wait at the start deadline for a KubeRay that is away, and let the clock begin when it is back."""
    if context.intent.attempt > 0 or context.cluster is None or context.cluster["spec"].get("suspend", False):
        return None
    waits = is_waiting_for_kuberay(context.status)
    if is_taken_up(context.cluster, context.observed.head_pod, context.observed.pods):
        return _begin(context) if waits else None
    if (refused := _refusal(context, context.cluster)) is not None:
        return fail(context, Reason.INVALID_MANIFEST, refused)
    if waits:
        return Plan(requeue_after_seconds=WAIT_SECONDS)
    if not _reached_deadline(context):
        return None
    if isinstance(context.observed.pods, Unseen):
        return Plan(requeue_after_seconds=pod_poll_seconds(context))
    return tell(context, with_admission(context, context.status), StartReason.NO_PODS.value, KUBERAY_AWAY)


def is_waiting_for_kuberay(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and (told.reason, told.message) == (StartReason.NO_PODS, KUBERAY_AWAY)


def is_taken_up(cluster: Manifest, head_pod: Manifest | None, pods: tuple[Manifest, ...] | Unseen) -> bool:
    """Whether KubeRay has looked at a cluster as it is now: it has pods, or a status that is not of its suspension."""
    state, pods = cluster.get("status") or {}, () if isinstance(pods, Unseen) else pods
    # Until its pods are ready the state stays "suspended", but KubeRay notes which spec it has seen.
    known = state.get("observedGeneration", 0) >= cluster["metadata"].get("generation", 1)
    return bool(pods) or head_pod is not None or (bool(state) and (state.get("state") != "suspended" or known))


def may_be_refused(cluster: Manifest, head_pod: Manifest | None, age_seconds: float, *, late: bool) -> bool:
    """Whether KubeRay may have refused a cluster, which only an event tells."""
    return not is_taken_up(cluster, head_pod, ()) and (late or age_seconds >= WORDS_SECONDS)


def _refusal(context: Context, cluster: Manifest) -> str | None:
    """Give KubeRay's words where it refuses the cluster: nothing changes that but another manifest."""
    for event in context.observed.cluster_events:
        about = (event.get("regarding") or {}).get("uid", cluster["metadata"]["uid"])
        if str(event.get("reason", "")).startswith(INVALID) and about == cluster["metadata"]["uid"]:
            said = status.bounded(str(event.get("note") or event["reason"]))
            return f"KubeRay: {said}; correct the fields that it was made from and create the job again"
    return None


def _reached_deadline(context: Context) -> bool:
    """Whether time is up, and nobody else, as a queue, has a word of what the cluster waits for."""
    seen = admission_of(context)
    held_back = seen is not None and seen.value is ConditionStatus.FALSE
    return is_late(context) and not held_back and not is_waiting_for_queue(context.status)


def _begin(context: Context) -> Plan:
    return context.write(
        with_cluster_begun(context, context.status.model_copy(update={"intent": context.timed_anew()}))
    )
