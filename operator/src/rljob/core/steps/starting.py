"""From the frozen spec to a cluster whose pods are all ready, and the intent to submit to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from rljob.api.status import ConditionStatus, ConditionType, RayClusterStatus, RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.attempts.start_diagnosis import PROBLEMS, Diagnosis, StartReason, diagnose, refusal
from rljob.core.context import LOOK_AGAIN_SECONDS, Context, could_begin, intended_cluster
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, CreateToken, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.scheduling.discovery import missing_hardware
from rljob.core.spec.checkpoint_source import pinned_path
from rljob.core.steps.creating import is_told_of_another, make, still_to_make, tell_refused
from rljob.core.steps.finishing import delete_cluster, fail, next_number
from rljob.core.steps.queue_admission import admission_of, with_admission
from rljob.core.steps.restarting import give_up
from rljob.core.validation.accelerator import class_violations
from rljob.render import configmap, names
from rljob.render.accelerators import ACCELERATORS
from rljob.render.ports import DASHBOARD_PORT, PortBlock
from rljob.render.raycluster import build_token_secret

POD_QUIET_SECONDS = 10.0
"""A younger cluster's pods are not looked at: what would be told of them is stale before anybody reads it."""
NO_PODS_TOLD_SECONDS = 120.0
"""KubeRay makes the pods of a cluster within seconds of its turn: one older, without any, is news."""
POD_TOLD_SECONDS = 300.0
"""A pod that has a node and is not ready for so long pulls a large image, or waits for a volume."""
KUBERAY_SECONDS = 60.0
"""A KubeRay that has changed no cluster for so long is idle or down; one that has looked at a cluster which is so much
younger has passed an older one by."""
MEMORY_SECONDS = 60.0
"""After a lost status its head may know which attempt runs; an exporter that is silent for so long says nothing."""
MEMORY_POLL_SECONDS = 2.0
POD_POLL_SECONDS_MIN, POD_POLL_SECONDS_MAX = 5.0, 60.0
"""Bounds of the pause between two looks at pods: a fourth of the time that they have taken already."""


def find_lost_cluster(context: Context) -> Plan | None:
    """Give the attempt up when the cluster that we had is gone."""
    if context.cluster is not None or context.intent.cluster_uid is None:
        return None
    live = context.observed.live_cluster
    # A watch also says "deleted" of what somebody relabelled: only a live read proves a loss.
    if isinstance(live, Unseen) or (live is not None and live["metadata"]["uid"] == context.intent.cluster_uid):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    return give_up(
        context, Reason.CLUSTER_LOST, f"RayCluster {context.intent.cluster_name} was deleted by somebody else"
    )


def freeze_cluster(context: Context) -> Plan | None:
    """Make the token and the frozen rendering; the cluster is made from the rendering only."""
    if context.cluster is not None or context.frozen_cluster is not None:
        return None
    if isinstance(context.observed.config, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if context.observed.config is not None:
        name = context.intent.cluster_name
        return fail(context, Reason.NAME_TAKEN, f"ConfigMap {name} is not the one that this operator made; delete it")
    if context.frozen_spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    return freeze(context, context.frozen_spec)


def freeze(context: Context, spec: RLJobSpec, snapshot: configmap.Snapshot | None = None) -> Plan:
    """Make what freezes a cluster generation; with a snapshot, that of the job in the same object."""
    if unknown := tuple(class_violations(spec)):
        # Somebody took the row out of the table between the intent and here.
        if is_late(context):
            return give_up(context, Reason.START_DEADLINE_EXCEEDED, str(unknown[0]))
        return tell(context, context.status, Reason.INVALID_SPEC.value, str(unknown[0]), problem=True)
    generation, name = context.intent.cluster_generation, context.intent.cluster_name
    config = context.launcher.job_config(context.job, spec, generation, pinned_path(context.resolved))
    frozen = configmap.build_cluster_config(
        context.job,
        spec,
        generation,
        config,
        _avoided(context),
        _block(context),
        context.gang,
        _pod_group_fields(context),
    )
    if snapshot is not None:
        frozen = configmap.with_snapshot(frozen, snapshot)
    token = CreateToken(build_token_secret(context.job, generation), job_uid=context.job.uid, cluster_name=name)
    return make(context, token, CreateObject(frozen))


def _block(context: Context) -> PortBlock | None:
    """Give the ports that this generation is rendered with; `reserve_ports` has written them down."""
    spec, network = context.frozen_spec, context.status.network
    if spec is None or spec.network.mode != "Host" or network is None:
        return None
    return PortBlock(network.port_block)


def _pod_group_fields(context: Context) -> frozenset[str]:
    api = context.observed.pod_group_api
    return frozenset() if isinstance(api, Unseen) else api.fields


def _avoided(context: Context) -> tuple[str, ...]:
    """Name the nodes that this generation stays away from."""
    return tuple(node.name for node in context.status.excluded_nodes if times.from_text(node.until) > context.now)


def create_cluster(context: Context) -> Plan | None:
    """Make the cluster, after every other one of this job is gone: never two at a time."""
    others = [c for c in context.observed.clusters if c["metadata"]["name"] != context.intent.cluster_name]
    if others:
        doomed = tuple(delete_cluster(c) for c in others if "deletionTimestamp" not in c["metadata"])
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if context.cluster is not None:
        return None
    if context.frozen_cluster is None:
        raise AssertionError("freeze_cluster lets no job without a frozen cluster pass")
    # No pod may come before the group that holds it back.
    wanted = (context.frozen_pod_group, context.frozen_cluster)
    children = tuple(CreateObject(manifest) for manifest in wanted if manifest is not None)
    if (plan := tell_refused(context, *children)) is not None:
        return plan
    if is_late(context):
        asked = "is KubeRay installed" if context.frozen_pod_group is None else "are KubeRay and Volcano installed"
        message = f"the RayCluster could not be made ({asked}? events of the job hold the API server's words)"
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, message)
    if context.observed.former_heads:
        # Somebody deleted the cluster while it started: KubeRay would take its pods for those of the next one.
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if is_told_of_another(context, *children):
        return context.write(with_cluster_begun(context, context.status))
    return Plan(effects=still_to_make(context, *children))


def find_replaced_cluster(context: Context) -> Plan | None:
    """Give the attempt up when the cluster that has the name is not the one that we had."""
    if context.cluster is None or context.intent.cluster_uid in (None, context.cluster["metadata"]["uid"]):
        return None
    return give_up(
        context, Reason.CLUSTER_LOST, f"RayCluster {context.intent.cluster_name} was replaced by somebody else"
    )


def with_cluster_begun(context: Context, current: RLJobStatus, message: str = "") -> RLJobStatus:
    """Give the status with the word that the cluster comes next: one write for that and for what let it begin."""
    reason = Reason.CLUSTER_STARTING
    new = context.writer.with_condition(current, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason)
    return context.writer.summarised(new, State.STARTING, reason, message)


def with_cluster(context: Context, current: RLJobStatus) -> RLJobStatus:
    """Give the status with the uid of the cluster, if it is there: from then on its absence is a loss.

    It goes with the first write after its creation: until then nothing runs in it, and one that is gone is made again.
    """
    cluster, intent = intended_cluster(current, context.observed.clusters), current.intent
    if cluster is None or intent is None:
        return current
    block, name = _block(context), intent.cluster_name
    port = DASHBOARD_PORT if block is None else block.dashboard
    url = f"http://{name}-head-svc.{context.job.namespace}.svc:{port}"
    return current.model_copy(
        update={
            "intent": intent.model_copy(update={"cluster_uid": cluster["metadata"]["uid"]}),
            "ray_cluster": RayClusterStatus(name=name, dashboard_url=url),
        }
    )


def await_pods(context: Context) -> Plan | None:
    """Wait for every pod, say what holds them up, and give up at the deadline."""
    if (
        context.intent.attempt > 0
        or context.cluster is None
        or cluster_is_ready(context.cluster, context.observed.head_pod)
    ):
        return None
    current, seen = with_admission(context, context.status), admission_of(context)
    held_back = seen if seen is not None and seen.value is ConditionStatus.FALSE else None
    if context.cluster["spec"].get("suspend", False):
        return _wait_in_queue(context, current)
    if held_back is not None and held_back.patient:
        # Where there is room, Volcano lets the pods go in a moment that is not worth two writes.
        quiet = 0.0 if _was_queued(context) else quiet_seconds(context.cluster, context.now)
        return Plan(requeue_after_seconds=quiet) if quiet > 0 else _wait_in_queue(context, current)
    if isinstance(context.observed.pods, Unseen) and not _was_queued(context) and not is_late(context):
        return Plan(requeue_after_seconds=max(quiet_seconds(context.cluster, context.now), pod_poll_seconds(context)))
    found = _diagnose(context, context.cluster)
    reason, message, problem = found.reason.value, found.message, found.reason in PROBLEMS
    if held_back is not None:
        reason, message, problem = held_back.reason, held_back.message, True
    if _was_queued(context):
        # A queue may hold a job for days.
        current = current.model_copy(update={"intent": context.timed_anew()})
        if isinstance(context.observed.pods, Unseen):
            reason, message, problem = Reason.CLUSTER_STARTING.value, "", False
    elif is_late(context):
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {message}")
    elif not problem and not _is_news(context, context.cluster, found):
        return Plan(requeue_after_seconds=pod_poll_seconds(context))
    return tell(context, current, reason, message, problem=problem)


def _is_news(context: Context, cluster: Manifest, found: Diagnosis) -> bool:
    """Whether what merely goes its way is worth a write: while a job waits for its turn at KubeRay, it is not."""
    told = status.condition(context.status, ConditionType.CLUSTER_READY)
    if told is not None and told.reason != Reason.CLUSTER_STARTING:
        return True
    waited = context.now - could_begin(context, cluster)
    if waited >= times.from_text(context.intent.start_deadline) - context.now:
        # Half of its time is gone.
        return True
    if found.reason is StartReason.POD_STARTING:
        return found.since is not None and _is_past(context, found.since, POD_TOLD_SECONDS)
    return waited.total_seconds() >= NO_PODS_TOLD_SECONDS and _had_its_turn(context, cluster)


def _had_its_turn(context: Context, cluster: Manifest) -> bool:
    """Whether KubeRay, seeing the cluster, has made no pods, has passed it by, or is at work on none of ours."""
    state, kuberay = cluster.get("status") or {}, context.observed.kuberay
    if state and state.get("state") != "suspended":
        return True
    if kuberay.reached > times.to_text(could_begin(context, cluster) + timedelta(seconds=KUBERAY_SECONDS)):
        return True
    return not kuberay.wrote or _is_past(context, kuberay.wrote, KUBERAY_SECONDS)


def _is_past(context: Context, moment: str, seconds: float) -> bool:
    return context.now - times.from_text(moment) >= timedelta(seconds=seconds)


def _wait_in_queue(context: Context, current: RLJobStatus) -> Plan:
    """Say what the queue waits for, for as long as it takes."""
    admitted = status.condition(current, ConditionType.ADMITTED)
    message = "the RayCluster was suspended from outside" if admitted is None else admitted.message
    return tell(context, current, Reason.WAITING_FOR_QUEUE.value, message, state=State.QUEUED)


def tell(
    context: Context,
    current: RLJobStatus,
    reason: str,
    message: str,
    *,
    problem: bool = False,
    seconds: float | None = None,
    state: State = State.STARTING,
) -> Plan:
    """Say why the cluster is not ready, and look again."""
    new = context.writer.with_condition(
        with_cluster(context, current), ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason, message
    )
    new = context.writer.summarised(new, state, reason, message)
    # What goes its way stands in the condition; an event is for what somebody should look at.
    events = (EventNote(EventType.WARNING, reason, message),) if problem else ()
    return context.write(new, *events, requeue=seconds or pod_poll_seconds(context))


def quiet_seconds(cluster: Manifest, now: datetime) -> float:
    """Give how long the pods of a cluster need not be looked at; 0 from when on they are worth a request."""
    return max(0.0, POD_QUIET_SECONDS - age_seconds(cluster, now))


def pod_poll_seconds(context: Context) -> float:
    """Give the pause before the next look at what starts."""
    return LOOK_AGAIN_SECONDS if context.cluster is None else _bounded(age_seconds(context.cluster, context.now) / 4)


def pods_every_seconds(cluster: Manifest, now: datetime) -> float:
    """Give how long ago the last look at a cluster's pods must be: each comes at 5/4 of the age of the one before.

    KubeRay tells of every worker that gets ready, and each word would be a LIST and perhaps a write.
    """
    return _bounded(age_seconds(cluster, now) / 5)


def _bounded(seconds: float) -> float:
    return min(max(seconds, POD_POLL_SECONDS_MIN), POD_POLL_SECONDS_MAX)


def age_seconds(cluster: Manifest, now: datetime) -> float:
    """Give how long ago a cluster was made."""
    return (now - times.from_text(cluster["metadata"]["creationTimestamp"])).total_seconds()


def move_deadline(context: Context) -> Plan | None:
    """Let an edit of deadlines.startSeconds count for the start under way, from the moment that it began to count."""
    intent, wanted = context.intent, context.deadlines.start_seconds
    if intent.attempt > 0 or intent.start_seconds in (None, wanted):
        return None
    begun = times.from_text(intent.start_deadline) - timedelta(seconds=intent.start_seconds)
    return context.write(context.status.model_copy(update={"intent": context.timed(intent, begun)}))


def is_late(context: Context) -> bool:
    """Whether the start deadline has passed."""
    return context.now >= times.from_text(context.intent.start_deadline)


def is_waiting_for_queue(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and told.reason == Reason.WAITING_FOR_QUEUE


def _was_queued(context: Context) -> bool:
    return is_waiting_for_queue(context.status)


def _diagnose(context: Context, cluster: Manifest) -> Diagnosis:
    told, refused = status.condition(context.status, ConditionType.CLUSTER_READY), refusal(cluster)
    if refused is not None:
        # Each try has a pod with another name: the first refusal tells all.
        again = told is not None and told.reason == refused.reason
        return replace(refused, message=told.message) if told is not None and again else refused
    if isinstance(context.observed.pods, Unseen):
        if told is not None and told.reason in list(StartReason):
            return Diagnosis(StartReason(told.reason), told.message)
        return Diagnosis(StartReason.POD_STARTING, "the pods were not looked at yet")
    found, spec, nodes = diagnose(context.observed.pods), context.frozen_spec, context.observed.nodes
    if found.reason is not StartReason.POD_UNSCHEDULABLE or spec is None or isinstance(nodes, Unseen):
        return found
    if spec.accelerator.class_ not in ACCELERATORS:
        return found
    missing = "; ".join(violation.message for violation in missing_hardware(spec, nodes))
    return replace(found, message=f"{found.message}; {missing}") if missing else found


def cluster_is_ready(cluster: Manifest, head_pod: Manifest | None) -> bool:
    """Report whether head and workers are ready, judged by the pods themselves.

    KubeRay sets `status.state` to ready and does not take it back when a worker is lost (v1.6.2, calculateStatus in
    ray-operator/controllers/ray/raycluster_controller.go).
    """
    state = cluster.get("status") or {}
    wanted = sum(int(group.get("replicas", 0)) for group in cluster["spec"]["workerGroupSpecs"])
    return (
        head_pod is not None
        and pod_is_ready(head_pod)
        # A pod that is leaving, or is about to, may stay Ready for as long as its hook lets a run save.
        and "deletionTimestamp" not in head_pod["metadata"]
        and not cluster["spec"].get("suspend", False)
        and "deletionTimestamp" not in cluster["metadata"]
        and int(state.get("readyWorkerReplicas", 0)) >= wanted
    )


def pod_is_ready(pod: Manifest) -> bool:
    """Whether the kubelet says Ready."""
    state = pod.get("status") or {}
    return bool(state.get("podIP")) and any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in state.get("conditions") or ()
    )


def _next_attempt(context: Context) -> int:
    """Count over the life of the job, never below the generation, nor past what the head has: none comes twice."""
    number, told = next_number(context.status, context.intent), context.observed.progress
    if isinstance(told, Unseen) or told.attempt <= number:
        return number
    known = told.submission_id == names.submission_id(context.intent.cluster_name, told.attempt)
    # The status was lost: what the head has is taken for the job's own, and never another driver sent beside it.
    return told.attempt if known else number


def _await_memory(context: Context) -> Plan | None:
    """Let the head say first which attempt it knows, unless it is silent for too long."""
    asked = times.from_text(context.intent.time)
    if isinstance(context.observed.progress, Unseen) and context.now < asked + timedelta(seconds=MEMORY_SECONDS):
        return Plan(requeue_after_seconds=MEMORY_POLL_SECONDS)
    return None


def intend_attempt(context: Context) -> Plan | None:
    """Write down which submission will go to which head pod."""
    if context.intent.attempt > 0 or context.cluster is None or context.observed.head_pod is None:
        return None
    if (plan := _await_memory(context)) is not None:
        return plan
    attempt = _next_attempt(context)
    # Nobody may have looked between admission and the last pod's readiness.
    intent = (context.timed_anew() if _was_queued(context) else context.intent).model_copy(
        update={
            "attempt": attempt,
            "submission_id": names.submission_id(context.intent.cluster_name, attempt),
            "head_pod_uid": context.observed.head_pod["metadata"]["uid"],
            "head_node": (context.observed.head_pod.get("spec") or {}).get("nodeName"),
            "time": times.to_text(context.now),
        }
    )
    new = with_admission(context, context.status, started=True).model_copy(
        update={"intent": intent, "next_attempt_time": None}
    )
    new = with_cluster(context, new)
    new = context.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.TRUE, Reason.CLUSTER_READY)
    new = context.writer.summarised(new, State.STARTING, Reason.CLUSTER_READY)
    return context.write(new)
