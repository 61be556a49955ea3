"""Create the RayCluster, wait for its pods, and record the intent to submit to its head."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core import status, times
from rljob.core.attempts.container_failures import described, worst
from rljob.core.attempts.start_advice import injected_image
from rljob.core.attempts.start_diagnosis import PROBLEMS, Diagnosis, Expected, StartReason, diagnose, refusal
from rljob.core.context import Context
from rljob.core.manifest_facts import cluster_is_ready, is_deleted, is_suspended
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS, pod_poll_seconds, quiet_seconds
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, STOPS_HERE, Requirements, head_of, starting_pods
from rljob.core.scheduling.discovery import missing_hardware
from rljob.core.step import step
from rljob.core.transitions.attempts import next_number
from rljob.core.transitions.children import delete_cluster, report_refused, reports_another, still_to_create
from rljob.core.transitions.conclusions import give_up
from rljob.core.transitions.conditions import look_again_seconds, report_not_ready, with_cluster, with_cluster_begun
from rljob.core.transitions.queue_admission import admission_of, with_admission
from rljob.core.transitions.start_stages import SUBMITTING, with_stage
from rljob.core.watched import Watched
from rljob.render import names
from rljob.render.accelerators import class_is_known

NO_PODS_REPORTED_SECONDS = 120.0
"""KubeRay creates the pods of a cluster within seconds of reaching it: an older cluster without pods is reported."""
POD_REPORTED_SECONDS = 300.0
"""A pod that has a node and is not ready for so long pulls a large image, or waits for a volume."""
KUBERAY_SECONDS = 60.0
"""A KubeRay that has changed no cluster for so long is idle or down; one that has reached a cluster that much younger
has skipped the older one."""
MEMORY_SECONDS = 60.0
"""After a lost status the head may know which attempt runs; an exporter is waited for no longer than this."""
MEMORY_POLL_SECONDS = 2.0


def _live_cluster(seen: Watched) -> Requirements:
    if seen.cluster is not None or seen.intent.cluster_uid is None:
        return NOTHING
    return Requirements(cluster_name=seen.intent.cluster_name, stops_here=True)


@step(_live_cluster)
def find_lost_cluster(context: Context) -> Plan | None:
    """Give up the attempt when its cluster is gone."""
    if context.cluster is not None or context.intent.cluster_uid is None:
        return None
    live = context.observed.live_cluster
    # A watch also reports "deleted" for an object whose labels changed: only a live read proves a loss.
    if isinstance(live, Unseen) or (live is not None and live["metadata"]["uid"] == context.intent.cluster_uid):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    return give_up(
        context, Reason.CLUSTER_LOST, f"RayCluster {context.intent.cluster_name} was deleted by somebody else"
    )


def _frozen_cluster(seen: Watched) -> Requirements:
    if any(cluster["metadata"]["name"] != seen.intent.cluster_name for cluster in seen.clusters):
        return STOPS_HERE
    return NOTHING if seen.cluster is not None else Requirements(config_name=seen.intent.cluster_name, stops_here=True)


@step(_frozen_cluster)
def create_cluster(context: Context) -> Plan | None:
    """Create the cluster, after every other one of this job is gone: never two at a time."""
    others = [c for c in context.observed.clusters if c["metadata"]["name"] != context.intent.cluster_name]
    if others:
        doomed = tuple(delete_cluster(c) for c in others if not is_deleted(c))
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if context.cluster is not None:
        return None
    if context.frozen_cluster is None:
        raise AssertionError("freeze_cluster lets no job without a frozen cluster pass")
    # The PodGroup must exist before the pods that it holds back.
    wanted = (context.frozen_pod_group, context.frozen_cluster)
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


def _pods(seen: Watched) -> Requirements:
    if seen.intent.attempt > 0 or seen.cluster is None or cluster_is_ready(seen.cluster, seen.head_pod):
        return NOTHING
    return starting_pods(seen) | STOPS_HERE


@step(_pods)
def await_pods(context: Context) -> Plan | None:
    """Wait for every pod, report what delays them, and give up at the deadline."""
    if (
        context.intent.attempt > 0
        or context.cluster is None
        or cluster_is_ready(context.cluster, context.observed.head_pod)
    ):
        return None
    current, seen = with_admission(context, context.status), admission_of(context)
    held_back = seen if seen is not None and seen.value is ConditionStatus.FALSE else None
    if is_suspended(context.cluster):
        return _wait_in_queue(context, current)
    if held_back is not None and held_back.patient:
        # If there is room, Volcano admits the pods within seconds, which are not worth two writes.
        quiet = 0.0 if _was_queued(context) else quiet_seconds(context.cluster, context.now)
        return Plan(requeue_after_seconds=quiet) if quiet > 0 else _wait_in_queue(context, current)
    if isinstance(context.observed.pods, Unseen) and not _was_queued(context) and not context.is_late:
        return Plan(
            requeue_after_seconds=max(
                quiet_seconds(context.cluster, context.now), pod_poll_seconds(context.cluster, context.now)
            )
        )
    found = _diagnose(context, context.cluster)
    reason, message, problem = found.reason.value, found.message, found.reason in PROBLEMS
    if held_back is not None:
        reason, message, problem = held_back.reason, held_back.message, True
    if _was_queued(context):
        # A job may wait in a queue for days.
        current = current.model_copy(update={"intent": context.timed_anew()})
        if isinstance(context.observed.pods, Unseen):
            reason, message, problem = Reason.CLUSTER_STARTING.value, "", False
    elif context.is_late:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {message}")
    elif not problem and not _is_news(context, context.cluster, found):
        return Plan(requeue_after_seconds=look_again_seconds(context))
    return report_not_ready(context, current, reason, message, problem=problem)


def _is_news(context: Context, cluster: Manifest, found: Diagnosis) -> bool:
    """Report whether a start without problems is worth a write: not while KubeRay has yet to reach the cluster."""
    told = status.condition(context.status, ConditionType.CLUSTER_READY)
    if told is not None and told.reason != Reason.CLUSTER_STARTING:
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
    told, refused = status.condition(context.status, ConditionType.CLUSTER_READY), refusal(cluster)
    if refused is not None:
        # Each try has a pod with another name: the first refusal says it all.
        again = told is not None and told.reason == refused.reason
        return replace(refused, message=told.message) if told is not None and again else refused
    if isinstance(context.observed.pods, Unseen):
        if told is not None and told.reason in list(StartReason):
            return Diagnosis(StartReason(told.reason), told.message)
        return Diagnosis(StartReason.POD_STARTING, "the pods were not listed yet")
    found = diagnose(context.observed.pods, Expected.of(cluster), injected_image(cluster))
    spec, nodes = context.frozen_spec, context.observed.nodes
    if found.reason is not StartReason.POD_UNSCHEDULABLE or spec is None or isinstance(nodes, Unseen):
        return found
    if not class_is_known(spec):
        return found
    missing = "; ".join(violation.message for violation in missing_hardware(spec, nodes))
    return replace(found, message=f"{found.message}; {missing}") if missing else found


def _next_attempt(context: Context) -> int:
    """Return the number of the next attempt; one that the head already knows is the job's own."""
    number, told = next_number(context.status, context.intent), context.observed.progress
    if isinstance(told, Unseen) or told.attempt <= number:
        return number
    known = told.submission_id == names.submission_id(context.intent.cluster_name, told.attempt)
    # The status was lost: the attempt that the head knows is followed, and no second driver is submitted.
    return told.attempt if known else number


def _await_memory(context: Context) -> Plan | None:
    """Ask the head first which attempt it knows, unless it is silent for too long."""
    asked = times.from_text(context.intent.time)
    if isinstance(context.observed.progress, Unseen) and context.now < asked + timedelta(seconds=MEMORY_SECONDS):
        return Plan(requeue_after_seconds=MEMORY_POLL_SECONDS)
    return None


def _head(seen: Watched) -> Requirements:
    """Require the exporter's answer: after a lost status it may know of attempts that nothing else shows."""
    if seen.intent.attempt > 0 or seen.head_pod is None:
        return NOTHING
    return Requirements(head=head_of(seen, seen.head_pod), progress=True, stops_here=True)


@step(_head)
def intend_attempt(context: Context) -> Plan | None:
    """Record which submission will go to which head pod."""
    if context.intent.attempt > 0 or context.cluster is None or context.observed.head_pod is None:
        return None
    if (plan := _await_memory(context)) is not None:
        return plan
    attempt = _next_attempt(context)
    # There may have been no round between the admission and the readiness of the last pod.
    intent = (context.timed_anew() if _was_queued(context) else context.intent).model_copy(
        update={
            "attempt": attempt,
            "submission_id": names.submission_id(context.intent.cluster_name, attempt),
            "head_pod_uid": context.observed.head_pod["metadata"]["uid"],
            "head_node": (context.observed.head_pod.get("spec") or {}).get("nodeName"),
            "time": times.to_text(context.now),
            "container_failures": [],
        }
    )
    new = with_admission(context, context.status, started=True).model_copy(
        update={"intent": intent, "next_attempt_time": None}
    )
    new = with_stage(with_cluster(context, new), SUBMITTING, times.to_text(context.now))
    new = context.writer.with_condition(new, ConditionType.CLUSTER_READY, ConditionStatus.TRUE, Reason.CLUSTER_READY)
    new = context.writer.summarised(new, State.STARTING, Reason.CLUSTER_READY)
    return context.write(new)
