"""A cluster that KubeRay never looked at: nothing of it is made or held, so that its job waits and spends nothing.

Only where it reaches its start deadline so. What KubeRay has looked at and made no pods of ends there, as any start.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import status
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import Plan
from rljob.core.policies.startup import KUBERAY_AWAY, StartReason
from rljob.core.steps.queueing import admission_of, with_admission
from rljob.core.steps.starting import is_late, is_waiting_for_queue, pod_poll_seconds, tell, with_cluster_begun
from rljob.core.view import View


def await_kuberay(view: View) -> Plan | None:
    """Wait at the start deadline for a KubeRay that is away, and let the clock begin when it is back."""
    if view.intent.attempt > 0 or view.cluster is None or view.cluster["spec"].get("suspend", False):
        return None
    waits = is_waiting_for_kuberay(view.status)
    if is_taken_up(view.cluster, view.observed.head_pod, view.observed.pods):
        return _begin(view) if waits else None
    if not waits and not _reached_deadline(view):
        return None
    if waits or isinstance(view.observed.pods, Unseen):
        return Plan(requeue_after_seconds=pod_poll_seconds(view))
    return tell(view, with_admission(view, view.status), StartReason.NO_PODS.value, KUBERAY_AWAY)


def is_waiting_for_kuberay(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and (told.reason, told.message) == (StartReason.NO_PODS, KUBERAY_AWAY)


def is_taken_up(cluster: Manifest, head_pod: Manifest | None, pods: tuple[Manifest, ...] | Unseen) -> bool:
    """Whether KubeRay has ever looked at a cluster: it has a status, or pods."""
    return bool(cluster.get("status") or head_pod is not None or (pods and not isinstance(pods, Unseen)))


def _reached_deadline(view: View) -> bool:
    """Whether time is up, and nobody else, as a queue, has a word of what the cluster waits for."""
    seen = admission_of(view)
    held_back = seen is not None and seen.value is ConditionStatus.FALSE
    return is_late(view) and not held_back and not is_waiting_for_queue(view.status)


def _begin(view: View) -> Plan:
    return view.write(with_cluster_begun(view, view.status.model_copy(update={"intent": view.timed_anew()})))
