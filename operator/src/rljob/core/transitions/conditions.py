"""Conditions that several steps set: why the cluster is not ready, that it begins, that its nodes are healthy again."""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, RayClusterStatus, RLJobStatus, State
from rljob.core import status, times
from rljob.core.attempts.recovery_time import PODS, QUEUED
from rljob.core.attempts.start_advice import injected_image
from rljob.core.context import Context
from rljob.core.manifest_facts import counted_workers, intended_cluster, pod_is_ready, wanted_workers
from rljob.core.observed import Manifest
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.polling import HEAD_POLL_SECONDS_MIN, POD_POLL_SECONDS_MIN, pod_poll_seconds
from rljob.core.reasons import Reason
from rljob.core.transitions.start_stages import with_stage
from rljob.render.packages import releases
from rljob.render.ports import DASHBOARD_PORT

PACKAGES_SHOWN = 800
"""Bytes of a list of packages in the status; the snapshot has all of them, with their hashes."""


def report_not_ready(
    context: Context,
    current: RLJobStatus,
    reason: str,
    message: str,
    *,
    problem: bool = False,
    seconds: float | None = None,
    state: State = State.STARTING,
) -> Plan:
    """Report why the cluster is not ready, and look again."""
    new = context.writer.with_condition(
        with_cluster(context, current), ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason, message
    )
    new = context.writer.summarised(new, state, reason, message)
    if new != context.status and context.cluster is not None:
        new = _with_pods(context, new, context.cluster, queued=state is State.QUEUED)
    # Normal progress is in the condition; an event is for what somebody should look at.
    events = (EventNote(EventType.WARNING, reason, message),) if problem else ()
    return context.write(new, *events, requeue=seconds or look_again_seconds(context))


def _with_pods(context: Context, current: RLJobStatus, cluster: Manifest, *, queued: bool) -> RLJobStatus:
    ready = counted_workers(cluster) + (context.head_pod is not None and pod_is_ready(context.head_pod))
    detail = "" if queued else f"{ready} of {wanted_workers(cluster) + 1} are ready"
    return with_stage(current, QUEUED if queued else PODS, times.to_text(context.now), detail)


def look_again_seconds(context: Context) -> float:
    """Return the interval before the pods that start are looked at again: short while pods fail and are replaced."""
    if context.active and (context.intent.container_failures or context.intent.awaits_workers):
        return POD_POLL_SECONDS_MIN
    return pod_poll_seconds(context.cluster, context.now)


def with_cluster(context: Context, current: RLJobStatus) -> RLJobStatus:
    """Return the status with the uid of the cluster, if it exists: from then on its absence is a loss.

    The uid is written with the first status write after the creation. Until then nothing runs in the cluster, and one
    that disappears is created again.
    """
    cluster, intent = intended_cluster(current, context.observed.clusters), current.intent
    if cluster is None or intent is None:
        return current
    block, name, spec = context.reserved_ports, intent.cluster_name, context.frozen_spec
    port = DASHBOARD_PORT if block is None else block.dashboard
    # Without tokens, the dashboard listens on 127.0.0.1 of the head only.
    is_open = "authOptions" in cluster["spec"]
    url = f"http://{name}-head-svc.{context.job.namespace}.svc:{port}" if is_open else None
    known = current.ray_cluster
    verl = known.verl_version if known is not None and known.name == name else None
    found = RayClusterStatus(
        name=name,
        dashboard_url=url,
        runtime_image=injected_image(cluster),
        verl_version=verl,
        packages=None if spec is None else status.bounded(" ".join(releases(spec)), PACKAGES_SHOWN) or None,
    )
    return current.model_copy(
        update={
            "intent": intent.model_copy(update={"cluster_uid": cluster["metadata"]["uid"]}),
            "ray_cluster": found,
        }
    )


def with_cluster_begun(context: Context, current: RLJobStatus, message: str = "") -> RLJobStatus:
    """Return the status with the cluster reported as starting: one write for that and for what allows it to start."""
    reason = Reason.CLUSTER_STARTING
    new = with_stage(current, PODS, times.to_text(context.now))
    new = context.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason)
    return context.writer.summarised(new, State.STARTING, reason, message or awaits_pods(current))


def awaits_pods(current: RLJobStatus) -> str:
    """Return the message of a start of which nothing is known yet but that it has begun."""
    name = "" if current.intent is None else f" of RayCluster {current.intent.cluster_name}"
    return f"waiting until the pods{name} are scheduled and ready"


def healed(context: Context, current: RLJobStatus, kind: ConditionType = ConditionType.DEGRADED) -> RLJobStatus:
    """Return the status with a condition about faults set to False, if it was True."""
    if not status.is_true(current, kind):
        return current
    return context.writer.with_condition(current, kind, ConditionStatus.FALSE, Reason.HEALTHY)


def report_silence(context: Context, message: str) -> Plan:
    """Report that the head does not answer, and ask again."""
    new = context.writer.with_condition(
        context.status, ConditionType.PROGRESSING, ConditionStatus.UNKNOWN, Reason.HEAD_SILENT, message
    )
    new = new.model_copy(update={"reason": Reason.HEAD_SILENT, "message": message})
    return context.write(new, EventNote(EventType.WARNING, Reason.HEAD_SILENT, message), requeue=HEAD_POLL_SECONDS_MIN)
