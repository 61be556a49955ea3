"""Create the RayCluster, wait for its pods, and record the intent to submit to its head."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core import status, times
from rljob.core.attempts.container_failures import described, worst
from rljob.core.attempts.lost_workers import are_replaced
from rljob.core.attempts.recovery_time import SUBMITTING
from rljob.core.attempts.start_advice import injected_image
from rljob.core.attempts.start_diagnosis import PROBLEMS, Diagnosis, Expected, StartReason, diagnose, refusal
from rljob.core.context import Context
from rljob.core.manifest_facts import cluster_is_ready, is_deleted, is_suspended
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS, quiet_seconds
from rljob.core.reasons import Reason
from rljob.core.requirements import STOPS_HERE, Requirements, head_of, starting_pods
from rljob.core.scheduling.discovery import missing_hardware
from rljob.core.step import guarded, step
from rljob.core.transitions.attempts import next_number
from rljob.core.transitions.children import delete_cluster, report_refused, reports_another, still_to_create
from rljob.core.transitions.conclusions import give_up
from rljob.core.transitions.conditions import (
    awaits_pods,
    look_again_seconds,
    report_not_ready,
    with_cluster,
    with_cluster_begun,
)
from rljob.core.transitions.queue_admission import admission_of, with_admission
from rljob.core.transitions.start_stages import with_pods_placed, with_stage
from rljob.core.watched import Watched
from rljob.render import names
from rljob.render.accelerators import class_is_known
from rljob.render.network_policy import build_network_policy

NO_PODS_REPORTED_SECONDS = 120.0
"""KubeRay creates the pods of a cluster within seconds of reaching it: an older cluster without pods is reported."""
POD_REPORTED_SECONDS = 300.0
"""A pod that has a node and is not ready for this long pulls a large image, or waits for a volume."""
KUBERAY_SECONDS = 60.0
"""A KubeRay that has changed no cluster for this long is idle or down; one that has reached a cluster that much younger
has skipped the older one."""
MEMORY_SECONDS = 60.0
"""After a lost status the head may know which attempt runs; an exporter is waited for no longer than this."""
MEMORY_POLL_SECONDS = 2.0


def _live_cluster(seen: Watched) -> Requirements:
    return Requirements(cluster_name=seen.intent.cluster_name, stops_here=True)


@step(_live_cluster, when=lambda seen: seen.cluster is None and seen.intent.cluster_uid is not None)
def find_lost_cluster(context: Context) -> Plan:
    """Give up the attempt when its cluster is gone."""
    live = context.observed.live_cluster
    # A watch also reports "deleted" for an object whose labels changed: only a live read proves a loss.
    if isinstance(live, Unseen) or (live is not None and live["metadata"]["uid"] == context.intent.cluster_uid):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    return give_up(
        context, Reason.CLUSTER_LOST, f"RayCluster {context.intent.cluster_name} was deleted by somebody else"
    )


def _other_clusters(seen: Watched) -> list[Manifest]:
    return [cluster for cluster in seen.clusters if cluster["metadata"]["name"] != seen.intent.cluster_name]


def _frozen_cluster(seen: Watched) -> Requirements:
    return STOPS_HERE if _other_clusters(seen) else Requirements(config_name=seen.intent.cluster_name, stops_here=True)


@step(_frozen_cluster, when=lambda seen: seen.cluster is None or bool(_other_clusters(seen)))
def create_cluster(context: Context) -> Plan:
    """Create the cluster, after every other one of this job is gone: never two at a time."""
    if others := _other_clusters(context):
        doomed = tuple(delete_cluster(c) for c in others if not is_deleted(c))
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if context.frozen_cluster is None:
        raise AssertionError("freeze_cluster lets no job without a frozen cluster pass")
    # PodGroup and NetworkPolicy must exist before the pods that they hold back and close.
    wanted = (context.frozen_pod_group, build_network_policy(context.frozen_cluster), context.frozen_cluster)
    children = tuple(CreateObject(manifest) for manifest in wanted if manifest is not None)
    if (plan := report_refused(context, *children)) is not None:
        return plan
    if context.is_late:
        asked = "is KubeRay installed" if context.frozen_pod_group is None else "are KubeRay and Volcano installed"
        message = f"the RayCluster could not be created ({asked}? the job's events quote the API server)"
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, message)
    if context.observed.former_heads:
        # The cluster was deleted while it started: KubeRay would adopt its pods for the next one.
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if reports_another(context, *children):
        return context.write(with_cluster_begun(context, context.status))
    return Plan(effects=still_to_create(context, *children))


@step()
def find_replaced_cluster(context: Context) -> Plan | None:
    """Give up the attempt when another cluster has the name of its cluster."""
    if context.cluster is None or context.intent.cluster_uid in (None, context.cluster["metadata"]["uid"]):
        return None
    return give_up(
        context, Reason.CLUSTER_LOST, f"RayCluster {context.intent.cluster_name} was replaced by somebody else"
    )


@step(lambda seen: starting_pods(seen) | STOPS_HERE, when=lambda seen: seen.is_starting)
def await_pods(context: Context) -> Plan:
    """Wait for every pod, report what delays them, and give up at the deadline."""
    cluster = guarded(context.cluster)
    current, seen = with_admission(context, context.status), admission_of(context)
    held_back = seen if seen is not None and seen.value is ConditionStatus.FALSE else None
    if is_suspended(cluster):
        return _wait_in_queue(context, current)
    if held_back is not None and held_back.patient:
        # If there is room, Volcano admits the pods within seconds, which are not worth two writes.
        quiet = 0.0 if _was_queued(context) else quiet_seconds(cluster, context.now)
        return Plan(requeue_after_seconds=quiet) if quiet > 0 else _wait_in_queue(context, current)
    if isinstance(context.observed.pods, Unseen) and not _was_queued(context) and not context.is_late:
        wait = max(quiet_seconds(cluster, context.now), look_again_seconds(context))
        return Plan(requeue_after_seconds=wait)
    if _are_replaced(context, cluster):
        intent = context.intent.model_copy(update={"awaits_workers": False})
        return context.write(context.status.model_copy(update={"intent": intent}))
    found = _diagnose(context, cluster)
    reason, message, problem = found.reason.value, found.message, found.reason in PROBLEMS
    if held_back is not None:
        reason, message, problem = held_back.reason, held_back.message, True
    if _was_queued(context):
        # A job may wait in a queue for days.
        current = current.model_copy(update={"intent": context.timed_anew()})
        if isinstance(context.observed.pods, Unseen):
            reason, message, problem = Reason.CLUSTER_STARTING.value, awaits_pods(current), False
    elif context.is_late:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {message}")
    elif not problem and not _is_news(context, cluster, found):
        return Plan(requeue_after_seconds=look_again_seconds(context))
    return report_not_ready(context, current, reason, message, problem=problem)


def _are_replaced(context: Context, cluster: Manifest) -> bool:
    """Report whether the workers that were lost are replaced: what KubeRay has counted may be older than the loss."""
    pods = context.observed.pods
    if not context.intent.awaits_workers or isinstance(pods, Unseen):
        return False
    return cluster_is_ready(cluster, context.head_pod) and are_replaced(cluster, pods)


def _is_news(context: Context, cluster: Manifest, found: Diagnosis) -> bool:
    """Report whether a start without problems is worth a write: not while KubeRay has yet to reach the cluster."""
    condition = status.condition(context.status, ConditionType.CLUSTER_READY)
    if condition is not None and condition.reason != Reason.CLUSTER_STARTING:
        return True
    waited = context.now - context.could_begin(cluster)
    if waited >= times.from_text(context.intent.start_deadline) - context.now:
        # Half of the time has passed.
        return True
    if found.reason is StartReason.POD_STARTING:
        return found.since is not None and _is_past(context, found.since, POD_REPORTED_SECONDS)
    return waited.total_seconds() >= NO_PODS_REPORTED_SECONDS and _had_its_turn(context, cluster)


def _had_its_turn(context: Context, cluster: Manifest) -> bool:
    """Report whether KubeRay has seen the cluster without creating pods, has skipped it, or is idle."""
    state, kuberay = cluster.get("status") or {}, context.observed.kuberay
    if state and state.get("state") != "suspended":
        return True
    if kuberay.reached > times.to_text(context.could_begin(cluster) + timedelta(seconds=KUBERAY_SECONDS)):
        return True
    return not kuberay.wrote or _is_past(context, kuberay.wrote, KUBERAY_SECONDS)


def _is_past(context: Context, moment: str, seconds: float) -> bool:
    return context.now - times.from_text(moment) >= timedelta(seconds=seconds)


def _wait_in_queue(context: Context, current: RLJobStatus) -> Plan:
    """Report what the queue waits for, for as long as it takes."""
    admitted = status.condition(current, ConditionType.ADMITTED)
    message = "the RayCluster was suspended from outside" if admitted is None else admitted.message
    return report_not_ready(context, current, Reason.WAITING_FOR_QUEUE.value, message, state=State.QUEUED)


@step()
def move_deadline(context: Context) -> Plan | None:
    """Apply an edit of deadlines.startSeconds to the start under way, counted from when that start began."""
    intent, wanted = context.intent, context.deadlines.start_seconds
    if intent.attempt > 0 or intent.start_seconds in (None, wanted):
        return None
    begun = times.from_text(intent.start_deadline) - timedelta(seconds=intent.start_seconds)
    return context.write(context.status.model_copy(update={"intent": context.timed(intent, begun)}))


def _was_queued(context: Context) -> bool:
    return status.is_waiting_for(context.status, Reason.WAITING_FOR_QUEUE)


def _diagnose(context: Context, cluster: Manifest) -> Diagnosis:
    """Return why the cluster does not start.

    KubeRay replaces pods that have ended: what ended them says more than what the next ones wait for.
    """
    found, failed = _diagnose_pods(context, cluster), worst(context.intent.container_failures)
    if failed is None or (found.reason in PROBLEMS and found.reason is not StartReason.CONTAINER_FAILED):
        return found
    return Diagnosis(StartReason.CONTAINER_FAILED, described(failed))


def _diagnose_pods(context: Context, cluster: Manifest) -> Diagnosis:
    condition, refused = status.condition(context.status, ConditionType.CLUSTER_READY), refusal(cluster)
    if refused is not None:
        # Each try has a pod with another name: the first refusal says it all.
        again = condition is not None and condition.reason == refused.reason
        return replace(refused, message=condition.message) if condition is not None and again else refused
    if isinstance(context.observed.pods, Unseen):
        if condition is not None and condition.reason in list(StartReason):
            return Diagnosis(StartReason(condition.reason), condition.message)
        return Diagnosis(StartReason.POD_STARTING, "the pods were not listed yet")
    found = diagnose(context.observed.pods, Expected.of(cluster), injected_image(cluster))
    spec, nodes = context.frozen_spec, context.observed.nodes
    if found.reason is not StartReason.POD_UNSCHEDULABLE or spec is None or isinstance(nodes, Unseen):
        return found
    if not class_is_known(spec):
        return found
    missing = "; ".join(violation.message for violation in missing_hardware(spec, nodes))
    return replace(found, message=f"{missing}; {found.message}") if missing else found


def _next_attempt(context: Context) -> int:
    """Return the number of the next attempt; one that the head already knows is the job's own."""
    number, progress = next_number(context.status, context.intent), context.observed.progress
    if isinstance(progress, Unseen) or progress.attempt <= number:
        return number
    known = progress.submission_id == names.submission_id(context.intent.cluster_name, progress.attempt)
    # The status was lost: the attempt that the head knows is followed, and no second driver is submitted.
    return progress.attempt if known else number


def _await_memory(context: Context) -> Plan | None:
    """Ask the head first which attempt it knows, unless it is silent for too long."""
    asked = times.from_text(context.intent.time)
    if isinstance(context.observed.progress, Unseen) and context.now < asked + timedelta(seconds=MEMORY_SECONDS):
        return Plan(requeue_after_seconds=MEMORY_POLL_SECONDS)
    return None


def _head(seen: Watched) -> Requirements:
    """Require the exporter's answer: after a lost status it may know of attempts that nothing else shows."""
    return Requirements(head=head_of(seen, guarded(seen.head_pod)), progress=True, stops_here=True)


def _awaits_attempt(seen: Watched) -> bool:
    return seen.intent.attempt == 0 and seen.cluster is not None and seen.head_pod is not None


@step(_head, when=_awaits_attempt)
def intend_attempt(context: Context) -> Plan:
    """Record which submission will go to which head pod."""
    head = guarded(context.head_pod)
    if (plan := _await_memory(context)) is not None:
        return plan
    attempt = _next_attempt(context)
    # There may have been no round between the admission and the readiness of the last pod.
    intent = (context.timed_anew() if _was_queued(context) else context.intent).model_copy(
        update={
            "attempt": attempt,
            "submission_id": names.submission_id(context.intent.cluster_name, attempt),
            "head_pod_uid": head["metadata"]["uid"],
            "head_node": (head.get("spec") or {}).get("nodeName"),
            "time": times.to_text(context.now),
            "container_failures": [],
        }
    )
    new = with_admission(context, context.status, started=True).model_copy(
        update={"intent": intent, "next_attempt_time": None}
    )
    new = with_pods_placed(with_cluster(context, new), head)
    new = with_stage(new, SUBMITTING, times.to_text(context.now))
    new = context.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.TRUE, Reason.CLUSTER_READY)
    new = context.writer.summarised(new, State.STARTING, Reason.CLUSTER_READY)
    return context.write(new)
