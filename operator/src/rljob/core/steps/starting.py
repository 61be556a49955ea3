"""From the frozen spec to a cluster whose pods are all ready, and the intent to submit to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from rljob.api.status import ConditionStatus, ConditionType, RayClusterStatus, RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.build import configmap, names
from rljob.build.accelerators import ACCELERATORS
from rljob.build.ports import DASHBOARD_PORT, PortBlock
from rljob.build.raycluster import build_token_secret
from rljob.core import clock, status
from rljob.core.discovery import missing_hardware
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, CreateToken, EventNote, EventType, Plan
from rljob.core.policies.hardware import class_violations
from rljob.core.policies.startup import PROBLEMS, Diagnosis, StartReason, diagnose, refusal
from rljob.core.reasons import Reason
from rljob.core.source import pinned_path
from rljob.core.steps.finishing import delete_cluster, fail, next_number
from rljob.core.steps.making import is_told_of_another, make, still_to_make, tell_refused
from rljob.core.steps.queueing import admission_of, with_admission
from rljob.core.steps.restarting import give_up
from rljob.core.view import LOOK_AGAIN_SECONDS, View, could_begin, intended_cluster
from rljob.launchers import verl

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


def find_lost_cluster(view: View) -> Plan | None:
    """Give the attempt up when the cluster that we had is gone."""
    if view.cluster is not None or view.intent.cluster_uid is None:
        return None
    live = view.observed.live_cluster
    # A watch also says "deleted" of what somebody relabelled: only a live read proves a loss.
    if isinstance(live, Unseen) or (live is not None and live["metadata"]["uid"] == view.intent.cluster_uid):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    return give_up(view, Reason.CLUSTER_LOST, f"RayCluster {view.intent.cluster_name} was deleted by somebody else")


def freeze_cluster(view: View) -> Plan | None:
    """Make the token and the frozen rendering; the cluster is made from the rendering only."""
    if view.cluster is not None or view.frozen_cluster is not None:
        return None
    if isinstance(view.observed.config, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if view.observed.config is not None:
        name = view.intent.cluster_name
        return fail(view, Reason.NAME_TAKEN, f"ConfigMap {name} is not the one that this operator made; delete it")
    if view.frozen_spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    return freeze(view, view.frozen_spec)


def freeze(view: View, spec: RLJobSpec, snapshot: configmap.Snapshot | None = None) -> Plan:
    """Make what freezes a cluster generation; with a snapshot, that of the job in the same object."""
    if unknown := tuple(class_violations(spec)):
        # Somebody took the row out of the table between the intent and here.
        if is_late(view):
            return give_up(view, Reason.START_DEADLINE_EXCEEDED, str(unknown[0]))
        return tell(view, view.status, Reason.INVALID_SPEC.value, str(unknown[0]), problem=True)
    generation, name = view.intent.cluster_generation, view.intent.cluster_name
    config = verl.job_config(view.job, spec, generation, pinned_path(view.resolved))
    frozen = configmap.build_cluster_config(
        view.job, spec, generation, config, _avoided(view), _block(view), view.gang, _pod_group_fields(view)
    )
    if snapshot is not None:
        frozen = configmap.with_snapshot(frozen, snapshot)
    token = CreateToken(build_token_secret(view.job, generation), job_uid=view.job.uid, cluster_name=name)
    return make(view, token, CreateObject(frozen))


def _block(view: View) -> PortBlock | None:
    """Give the ports that this generation is rendered with; `reserve_ports` has written them down."""
    spec, network = view.frozen_spec, view.status.network
    if spec is None or spec.network.mode != "Host" or network is None:
        return None
    return PortBlock(network.port_block)


def _pod_group_fields(view: View) -> frozenset[str]:
    api = view.observed.pod_group_api
    return frozenset() if isinstance(api, Unseen) else api.fields


def _avoided(view: View) -> tuple[str, ...]:
    """Name the nodes that this generation stays away from."""
    return tuple(node.name for node in view.status.excluded_nodes if clock.from_text(node.until) > view.now)


def create_cluster(view: View) -> Plan | None:
    """Make the cluster, after every other one of this job is gone: never two at a time."""
    others = [c for c in view.observed.clusters if c["metadata"]["name"] != view.intent.cluster_name]
    if others:
        doomed = tuple(delete_cluster(c) for c in others if "deletionTimestamp" not in c["metadata"])
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if view.cluster is not None:
        return None
    if view.frozen_cluster is None:
        raise AssertionError("freeze_cluster lets no job without a frozen cluster pass")
    # No pod may come before the group that holds it back.
    wanted = (view.frozen_pod_group, view.frozen_cluster)
    children = tuple(CreateObject(manifest) for manifest in wanted if manifest is not None)
    if (plan := tell_refused(view, *children)) is not None:
        return plan
    if is_late(view):
        asked = "is KubeRay installed" if view.frozen_pod_group is None else "are KubeRay and Volcano installed"
        message = f"the RayCluster could not be made ({asked}? events of the job hold the API server's words)"
        return give_up(view, Reason.START_DEADLINE_EXCEEDED, message)
    if view.observed.former_heads:
        # Somebody deleted the cluster while it started: KubeRay would take its pods for those of the next one.
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if is_told_of_another(view, *children):
        return view.write(with_cluster_begun(view, view.status))
    return Plan(effects=still_to_make(view, *children))


def find_replaced_cluster(view: View) -> Plan | None:
    """Give the attempt up when the cluster that has the name is not the one that we had."""
    if view.cluster is None or view.intent.cluster_uid in (None, view.cluster["metadata"]["uid"]):
        return None
    return give_up(view, Reason.CLUSTER_LOST, f"RayCluster {view.intent.cluster_name} was replaced by somebody else")


def with_cluster_begun(view: View, current: RLJobStatus, message: str = "") -> RLJobStatus:
    """Give the status with the word that the cluster comes next: one write for that and for what let it begin."""
    reason = Reason.CLUSTER_STARTING
    new = view.writer.with_condition(current, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason)
    return view.writer.summarised(new, State.STARTING, reason, message)


def with_cluster(view: View, current: RLJobStatus) -> RLJobStatus:
    """Give the status with the uid of the cluster, if it is there: from then on its absence is a loss.

    It goes with the first write after its creation: until then nothing runs in it, and one that is gone is made again.
    """
    cluster, intent = intended_cluster(current, view.observed.clusters), current.intent
    if cluster is None or intent is None:
        return current
    block, name = _block(view), intent.cluster_name
    port = DASHBOARD_PORT if block is None else block.dashboard
    url = f"http://{name}-head-svc.{view.job.namespace}.svc:{port}"
    return current.model_copy(
        update={
            "intent": intent.model_copy(update={"cluster_uid": cluster["metadata"]["uid"]}),
            "ray_cluster": RayClusterStatus(name=name, dashboard_url=url),
        }
    )


def await_pods(view: View) -> Plan | None:
    """Wait for every pod, say what holds them up, and give up at the deadline."""
    if view.intent.attempt > 0 or view.cluster is None or cluster_is_ready(view.cluster, view.observed.head_pod):
        return None
    current, seen = with_admission(view, view.status), admission_of(view)
    held_back = seen if seen is not None and seen.value is ConditionStatus.FALSE else None
    if view.cluster["spec"].get("suspend", False):
        return _wait_in_queue(view, current)
    if held_back is not None and held_back.patient:
        # Where there is room, Volcano lets the pods go in a moment that is not worth two writes.
        quiet = 0.0 if _was_queued(view) else quiet_seconds(view.cluster, view.now)
        return Plan(requeue_after_seconds=quiet) if quiet > 0 else _wait_in_queue(view, current)
    if isinstance(view.observed.pods, Unseen) and not _was_queued(view) and not is_late(view):
        return Plan(requeue_after_seconds=max(quiet_seconds(view.cluster, view.now), pod_poll_seconds(view)))
    found = _diagnose(view, view.cluster)
    reason, message, problem = found.reason.value, found.message, found.reason in PROBLEMS
    if held_back is not None:
        reason, message, problem = held_back.reason, held_back.message, True
    if _was_queued(view):
        # A queue may hold a job for days.
        current = current.model_copy(update={"intent": view.timed_anew()})
        if isinstance(view.observed.pods, Unseen):
            reason, message, problem = Reason.CLUSTER_STARTING.value, "", False
    elif is_late(view):
        return give_up(view, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {message}")
    elif not problem and not _is_news(view, view.cluster, found):
        return Plan(requeue_after_seconds=pod_poll_seconds(view))
    return tell(view, current, reason, message, problem=problem)


def _is_news(view: View, cluster: Manifest, found: Diagnosis) -> bool:
    """Whether what merely goes its way is worth a write: while a job waits for its turn at KubeRay, it is not."""
    told = status.condition(view.status, ConditionType.CLUSTER_READY)
    if told is not None and told.reason != Reason.CLUSTER_STARTING:
        return True
    waited = view.now - could_begin(view, cluster)
    if waited >= clock.from_text(view.intent.start_deadline) - view.now:
        # Half of its time is gone.
        return True
    if found.reason is StartReason.POD_STARTING:
        return found.since is not None and _is_past(view, found.since, POD_TOLD_SECONDS)
    return waited.total_seconds() >= NO_PODS_TOLD_SECONDS and _had_its_turn(view, cluster)


def _had_its_turn(view: View, cluster: Manifest) -> bool:
    """Whether KubeRay, seeing the cluster, has made no pods, has passed it by, or is at work on none of ours."""
    state, kuberay = cluster.get("status") or {}, view.observed.kuberay
    if state and state.get("state") != "suspended":
        return True
    if kuberay.reached > clock.to_text(could_begin(view, cluster) + timedelta(seconds=KUBERAY_SECONDS)):
        return True
    return not kuberay.wrote or _is_past(view, kuberay.wrote, KUBERAY_SECONDS)


def _is_past(view: View, moment: str, seconds: float) -> bool:
    return view.now - clock.from_text(moment) >= timedelta(seconds=seconds)


def _wait_in_queue(view: View, current: RLJobStatus) -> Plan:
    """Say what the queue waits for, for as long as it takes."""
    admitted = status.condition(current, ConditionType.ADMITTED)
    message = "the RayCluster was suspended from outside" if admitted is None else admitted.message
    return tell(view, current, Reason.WAITING_FOR_QUEUE.value, message, state=State.QUEUED)


def tell(
    view: View,
    current: RLJobStatus,
    reason: str,
    message: str,
    *,
    problem: bool = False,
    seconds: float | None = None,
    state: State = State.STARTING,
) -> Plan:
    """Say why the cluster is not ready, and look again."""
    new = view.writer.with_condition(
        with_cluster(view, current), ConditionType.CLUSTER_READY, ConditionStatus.FALSE, reason, message
    )
    new = view.writer.summarised(new, state, reason, message)
    # What goes its way stands in the condition; an event is for what somebody should look at.
    events = (EventNote(EventType.WARNING, reason, message),) if problem else ()
    return view.write(new, *events, requeue=seconds or pod_poll_seconds(view))


def quiet_seconds(cluster: Manifest, now: datetime) -> float:
    """Give how long the pods of a cluster need not be looked at; 0 from when on they are worth a request."""
    return max(0.0, POD_QUIET_SECONDS - age_seconds(cluster, now))


def pod_poll_seconds(view: View) -> float:
    """Give the pause before the next look at what starts."""
    return LOOK_AGAIN_SECONDS if view.cluster is None else _bounded(age_seconds(view.cluster, view.now) / 4)


def pods_every_seconds(cluster: Manifest, now: datetime) -> float:
    """Give how long ago the last look at a cluster's pods must be: each comes at 5/4 of the age of the one before.

    KubeRay tells of every worker that gets ready, and each word would be a LIST and perhaps a write.
    """
    return _bounded(age_seconds(cluster, now) / 5)


def _bounded(seconds: float) -> float:
    return min(max(seconds, POD_POLL_SECONDS_MIN), POD_POLL_SECONDS_MAX)


def age_seconds(cluster: Manifest, now: datetime) -> float:
    """Give how long ago a cluster was made."""
    return (now - clock.from_text(cluster["metadata"]["creationTimestamp"])).total_seconds()


def move_deadline(view: View) -> Plan | None:
    """Let an edit of deadlines.startSeconds count for the start under way, from the moment that it began to count."""
    intent, wanted = view.intent, view.deadlines.start_seconds
    if intent.attempt > 0 or intent.start_seconds in (None, wanted):
        return None
    begun = clock.from_text(intent.start_deadline) - timedelta(seconds=intent.start_seconds)
    return view.write(view.status.model_copy(update={"intent": view.timed(intent, begun)}))


def is_late(view: View) -> bool:
    """Whether the start deadline has passed."""
    return view.now >= clock.from_text(view.intent.start_deadline)


def is_waiting_for_queue(current: RLJobStatus) -> bool:
    """Whether that was the last word."""
    told = status.condition(current, ConditionType.CLUSTER_READY)
    return told is not None and told.reason == Reason.WAITING_FOR_QUEUE


def _was_queued(view: View) -> bool:
    return is_waiting_for_queue(view.status)


def _diagnose(view: View, cluster: Manifest) -> Diagnosis:
    told, refused = status.condition(view.status, ConditionType.CLUSTER_READY), refusal(cluster)
    if refused is not None:
        # Each try has a pod with another name: the first refusal tells all.
        again = told is not None and told.reason == refused.reason
        return replace(refused, message=told.message) if told is not None and again else refused
    if isinstance(view.observed.pods, Unseen):
        if told is not None and told.reason in list(StartReason):
            return Diagnosis(StartReason(told.reason), told.message)
        return Diagnosis(StartReason.POD_STARTING, "the pods were not looked at yet")
    found, spec, nodes = diagnose(view.observed.pods), view.frozen_spec, view.observed.nodes
    if found.reason is not StartReason.POD_UNSCHEDULABLE or spec is None or isinstance(nodes, Unseen):
        return found
    if spec.accelerator.class_ not in ACCELERATORS:
        return found
    missing = "; ".join(violation.message for violation in missing_hardware(spec, nodes))
    return replace(found, message=f"{found.message}; {missing}") if missing else found


def cluster_is_ready(cluster: Manifest, head_pod: Manifest | None) -> bool:
    """Judge by the live facts; KubeRay's `state` never goes back from ready (kubernetes-peers.md §1.6)."""
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


def _next_attempt(view: View) -> int:
    """Count over the life of the job, never below the generation, nor past what the head has: none comes twice."""
    number, told = next_number(view.status, view.intent), view.observed.progress
    if isinstance(told, Unseen) or told.attempt <= number:
        return number
    known = told.submission_id == names.submission_id(view.intent.cluster_name, told.attempt)
    # The status was lost: what the head has is taken for the job's own, and never another driver sent beside it.
    return told.attempt if known else number


def _await_memory(view: View) -> Plan | None:
    """Let the head say first which attempt it knows, unless it is silent for too long."""
    asked = clock.from_text(view.intent.time)
    if isinstance(view.observed.progress, Unseen) and view.now < asked + timedelta(seconds=MEMORY_SECONDS):
        return Plan(requeue_after_seconds=MEMORY_POLL_SECONDS)
    return None


def intend_attempt(view: View) -> Plan | None:
    """Write down which submission will go to which head pod."""
    if view.intent.attempt > 0 or view.cluster is None or view.observed.head_pod is None:
        return None
    if (plan := _await_memory(view)) is not None:
        return plan
    attempt = _next_attempt(view)
    # Nobody may have looked between admission and the last pod's readiness.
    intent = (view.timed_anew() if _was_queued(view) else view.intent).model_copy(
        update={
            "attempt": attempt,
            "submission_id": names.submission_id(view.intent.cluster_name, attempt),
            "head_pod_uid": view.observed.head_pod["metadata"]["uid"],
            "head_node": (view.observed.head_pod.get("spec") or {}).get("nodeName"),
            "time": clock.to_text(view.now),
        }
    )
    new = with_admission(view, view.status, started=True).model_copy(
        update={"intent": intent, "next_attempt_time": None}
    )
    new = with_cluster(view, new)
    new = view.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.TRUE, Reason.CLUSTER_READY)
    new = view.writer.summarised(new, State.STARTING, Reason.CLUSTER_READY)
    return view.write(new)
