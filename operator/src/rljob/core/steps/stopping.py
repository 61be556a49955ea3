"""Stop a run: it is asked to save, its attempt is closed, and its cluster is deleted or waits.

A stop is recorded with its deadline before anything is asked, and it always completes, even if the reason for it is
withdrawn meanwhile. What follows depends on the reason: a suspended job waits for its user, a preempted one for its
queue, a stalled one is judged as any failure, one beyond its active deadline has failed, and one whose user asked for
its end (`requests`) is stopped for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rljob.api.status import AttemptOutcome, ConditionStatus, ConditionType, FailureCause, RLJobStatus, State
from rljob.api.under_way import StopStatus
from rljob.core import status, times
from rljob.core.attempts.classify import Failure, at_fault
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted, is_held, is_suspended, port_block
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import EventNote, EventType, Plan, ShortenGracePeriod, StopRun
from rljob.core.polling import LEAVING_POLL_SECONDS, LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, STOPS_HERE, Pods, Requirements, cluster_pods, intended_head
from rljob.core.scheduling.kueue import find_eviction
from rljob.core.scheduling.node_faults import UNKNOWN
from rljob.core.step import guarded, step
from rljob.core.transitions.attempts import close_attempt, counted, without_attempt
from rljob.core.transitions.children import delete_cluster
from rljob.core.transitions.conclusions import conclude, end, end_on_request
from rljob.core.transitions.progress import with_progress
from rljob.core.transitions.queue_admission import with_admission
from rljob.core.transitions.reported_end import await_exporter, outcome_seen
from rljob.core.transitions.start_stages import with_cluster_gone
from rljob.core.transitions.stop_order import order_stop
from rljob.core.watched import Watched
from rljob_runtime.contract import ExitCode, Outcome, Phase, Port, StopMode

CONTINUES = frozenset({Reason.RESTARTING, Reason.RESTART_REQUESTED, Reason.WAITING_FOR_DEVICES})
"""Reasons to free the NPUs after which the next cluster generation begins by itself."""

HURRY_SECONDS = 10.0
"""A pod whose Ray has not started ends by itself within this time, and the kubelet's report of it is not older."""
STUCK_SECONDS = 120.0
"""A pod is gone within seconds of the kubelet's kill at the end of its grace period; unmounting may take longer."""
SIGNALLED = 128
"""A shell reports the death of a program by a signal as this number plus the signal's (POSIX, `sh`); Python reports
the negated number (subprocess.Popen.returncode)."""


def _stops(seen: Watched) -> bool:
    return seen.status.stop is not None


@step(STOPS_HERE, when=lambda seen: seen.suspend and seen.active and not _stops(seen))
def begin_suspension(context: Context) -> Plan:
    """Stop a run whose user wants the NPUs back."""
    return order_stop(context, Reason.SUSPENDED)


def _end_of_deleted(seen: Watched) -> Requirements:
    return intended_head(seen) | STOPS_HERE if _stops(seen) else STOPS_HERE


@step(_end_of_deleted, when=lambda seen: is_deleted(seen.manifest) and is_held(seen.manifest))
def stop_deleted(context: Context) -> Plan | None:
    """Stop the run of a job that is being deleted; once its attempt is closed, `deleting.let_go` follows."""
    return await_end(context) if _stops(context) else order_stop(context, Reason.DELETED)


def _is_suspended_from_outside(seen: Watched) -> bool:
    """Report whether the cluster is suspended under an attempt."""
    if not seen.active or _stops(seen) or seen.intent.attempt == 0:
        return False
    return seen.cluster is not None and is_suspended(seen.cluster)


def _live_cluster(seen: Watched) -> Requirements:
    """Require a live read: the store may be behind."""
    return Requirements(cluster_name=seen.intent.cluster_name)


@step(_live_cluster, when=_is_suspended_from_outside)
def begin_preemption(context: Context) -> Plan | None:
    """Stop a run whose cluster was suspended from outside: its pods are terminating, and their hooks ask it to save.

    Kueue does so when it takes back the quota of a workload, and resumes the cluster when it admits the workload again.
    """
    live = context.observed.live_cluster
    if isinstance(live, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    if live is None or not is_suspended(live):
        # The store is behind: no run is stopped by the watch alone.
        return None
    evicted = find_eviction(context.observed.workload)
    message = evicted.message if evicted else f"RayCluster {context.intent.cluster_name} was suspended from outside"
    return order_stop(context, Reason.PREEMPTED, message)


def _end(seen: Watched) -> Requirements:
    """Require the head's answers while the attempt is open: its end counts. Pods may explain a loss."""
    if seen.open_attempt is None:
        return NOTHING
    stop = guarded(seen.status.stop)
    pods = Requirements(pods=Pods(cluster_pods(seen))) if stop.reason == Reason.WORKER_LOST else NOTHING
    return intended_head(seen) | pods | STOPS_HERE


@step(_end, when=_stops)
def await_end(context: Context) -> Plan | None:
    """Ask the run to stop until it has ended or its time is over, then close its attempt."""
    stop = guarded(context.status.stop)
    if context.open_attempt is None:
        return _end_unrecorded(context, stop)
    answer, outcome = context.answer, outcome_seen(context)
    current = with_progress(context)
    if outcome is not None and outcome.exit_code == ExitCode.DONE:
        return end(current, context, outcome)
    if outcome is None and (plan := await_exporter(context)) is not None:
        return plan
    if outcome is None and context.head_is_intended and context.now < times.from_text(stop.deadline):
        # A hook may have asked before, and more gently; the spool keeps the strongest request.
        asked = answer is None or (answer.phase is Phase.STOPPING and stop.mode == StopMode.AFTER_STEP)
        is_short = context.head_is_leaving or stop.reason == Reason.WORKER_LOST
        again = LEAVING_POLL_SECONDS if is_short else LOOK_AGAIN_SECONDS
        return Plan(effects=() if asked else (_request(context, stop),), requeue_after_seconds=again)
    return _ended(context, stop, current, outcome)


def _end_unrecorded(context: Context, stop: StopStatus) -> Plan | None:
    """Use up the number of an attempt that was intended, and perhaps submitted; None if there is none."""
    if stop.reason == Reason.PREEMPTED:
        # Its pods are deleted, but the cluster keeps its place in the queue.
        return _preempted(context, stop, context.status, None)
    new = _closed(context, stop, context.status, None)
    return None if new == context.status else context.write(new)


def _request(context: Context, stop: StopStatus) -> StopRun:
    pod, intent = context.observed.head_pod, context.intent
    if pod is None:
        raise AssertionError("await_end asks an intended head only")
    block = port_block(pod)
    return StopRun(
        pod_ip=str(pod["status"]["podIP"]),
        pod_uid=pod["metadata"]["uid"],
        job_uid=context.job.uid,
        cluster_name=intent.cluster_name,
        attempt=intent.attempt,
        mode=StopMode(stop.mode),
        port=Port.API.value if block is None else block.api,
    )


def _ended(context: Context, stop: StopStatus, current: RLJobStatus, outcome: Outcome | None) -> Plan:
    if stop.reason == Reason.ACTIVE_DEADLINE_EXCEEDED:
        final = Outcome(ExitCode.FAILED, stop.reason, _joined(stop, outcome), last_step=status.last_step(current))
        failure = Failure(FailureCause.CONFIGURATION, stop.reason, final.message, final.exit_code)
        return end(current, context, final, failure=failure)
    if stop.reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
        if outcome is None or outcome.exit_code in (ExitCode.STALLED, ExitCode.STOPPED) or _signalled(outcome):
            message = _joined(stop, outcome)
            outcome = Outcome(ExitCode.STALLED, stop.reason, message, last_step=status.last_step(current))
        return conclude(context, current, outcome)
    if stop.reason == Reason.PREEMPTED:
        return _preempted(context, stop, current, outcome)
    if stop.reason == Reason.WORKER_LOST:
        return conclude(context, current, _loss(stop, current, outcome))
    if stop.reason == Reason.DEVICE_FAULT:
        # However the run ended meanwhile: on such a device the outcome proves nothing about the run.
        failure = at_fault(stop.fault or UNKNOWN, tuple(stop.nodes), _joined(stop, outcome))
        final = Outcome(failure.exit_code, failure.reason, failure.message, last_step=status.last_step(current))
        return conclude(context, current, final, failure)
    closed = _closed(context, stop, current, outcome)
    if stop.reason == Reason.STOP_REQUESTED:
        return end_on_request(context, closed, outcome.message if outcome else "")
    return context.write(closed)


def _loss(stop: StopStatus, current: RLJobStatus, outcome: Outcome | None) -> Outcome:
    """Return the end of a run that was stopped because a worker is gone; its launcher may have seen the same."""
    if outcome is not None and outcome.exit_code != ExitCode.STOPPED and not _signalled(outcome):
        return outcome
    suspect = stop.nodes[0] if len(stop.nodes) == 1 else None
    last = status.last_step(current)
    return Outcome(ExitCode.FAILED, stop.reason, _joined(stop, outcome), last_step=last, suspect=suspect)


def _signalled(outcome: Outcome) -> bool:
    """Report whether a signal ended the driver: that does not explain why no step came."""
    return outcome.exit_code < 0 or outcome.exit_code > SIGNALLED


def _joined(stop: StopStatus, outcome: Outcome | None) -> str:
    return "; ".join(text for text in (stop.message, outcome.message if outcome else "") if text)


def _closed(context: Context, stop: StopStatus, current: RLJobStatus, outcome: Outcome | None) -> RLJobStatus:
    """Return the status with the attempt closed; one that failed meanwhile is recorded as failed."""
    if outcome is None or outcome.exit_code == ExitCode.STOPPED:
        message = outcome.message if outcome else "the time to save had passed, or there was nothing to save"
        stopped = Outcome(ExitCode.STOPPED, stop.reason, message, last_step=status.last_step(current))
        return close_attempt(current, context, stopped, AttemptOutcome.STOPPED)
    return close_attempt(current, context, outcome, AttemptOutcome.FAILED)


def _preempted(context: Context, stop: StopStatus, current: RLJobStatus, outcome: Outcome | None) -> Plan:
    """Close the attempt and wait in the same cluster, which its queue starts again; it costs no budget."""
    # Kueue's reason may arrive after the suspension of the cluster.
    evicted = find_eviction(context.observed.workload)
    stop = stop.model_copy(update={"message": status.bounded(evicted.message)}) if evicted else stop
    reason, cause = (evicted.reason, evicted.cause) if evicted else (Reason.PREEMPTED, FailureCause.PREEMPTION)
    final = Outcome(ExitCode.STOPPED, reason, _joined(stop, outcome), last_step=status.last_step(current))
    failure = Failure(cause, reason, final.message, final.exit_code)
    new = close_attempt(with_admission(context, current), context, final, AttemptOutcome.PREEMPTED, failure)
    new = new.model_copy(
        update={
            "stop": None,
            "counters": counted(new.counters, cause),
            "restarts": new.restarts + 1,
            "intent": without_attempt(context, context.now),
        }
    )
    new = context.writer.with_condition(
        new, ConditionType.CLUSTER_READY, ConditionStatus.FALSE, Reason.WAITING_FOR_QUEUE, final.message
    )
    new = context.writer.summarised(new, State.QUEUED, Reason.WAITING_FOR_QUEUE, final.message)
    return context.write(new, EventNote(EventType.NORMAL, Reason.PREEMPTED, final.message or stop.reason))


def _what_stays(seen: Watched) -> Requirements:
    """Require proof that nothing is left of the cluster, once the watch shows none."""
    gone = not seen.clusters
    return Requirements(
        cluster_name=seen.intent.cluster_name if gone else None,
        pods=Pods(cluster_pods(seen), urgent=gone),
        stops_here=True,
    )


@step(_what_stays, when=_stops)
def tear_down(context: Context) -> Plan:
    """Delete the clusters, and wait until no pod is left: only then are the NPUs free."""
    stop = guarded(context.status.stop)
    known = {cluster["metadata"]["uid"]: cluster for cluster in context.observed.clusters}
    live = context.observed.live_cluster
    if isinstance(live, Mapping) and context.made(live):
        known.setdefault(live["metadata"]["uid"], live)
    doomed = tuple(delete_cluster(c) for c in known.values() if not is_deleted(c))
    if doomed:
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    # What was not read counts as existing.
    if known or isinstance(live, Unseen) or isinstance(context.observed.pods, Unseen) or context.observed.pods:
        return _report_what_stays(context)
    waiting = with_cluster_gone(context.status, context.now)
    new = waiting.model_copy(
        update={"stop": None, "ray_cluster": None, "intent": context.intent.model_copy(update={"ended": True})}
    )
    if stop.reason == Reason.STOP_REQUESTED:
        return end_on_request(context, new)
    continues = stop.reason in CONTINUES
    word = Reason(stop.reason) if continues else Reason.SUSPENDED
    for kind in (ConditionType.ADMITTED, ConditionType.CLUSTER_READY, ConditionType.PROGRESSING):
        condition = status.condition(new, kind)
        if condition is not None:
            new = context.writer.with_condition(
                new, kind, ConditionStatus.FALSE, word, condition.message if continues else ""
            )
    if continues and new.reason == Reason.POD_STUCK:
        new = context.writer.summarised(new, new.state, word)
    if stop.reason == Reason.RESTART_REQUESTED and (new.next_attempt_time or "") > times.to_text(context.now):
        message = f"{context.intent.cluster_name} made no step; the next cluster begins at {new.next_attempt_time}"
        new = context.writer.summarised(new, State.RESTARTING, Reason.PACED, message)
    new = new if continues else _suspended(context, new)
    return context.write(new, EventNote(EventType.NORMAL, word, "the NPUs are free"))


def _report_what_stays(context: Context) -> Plan:
    """Wait, and name what should be gone: its processes may be alive, so nothing begins beside it."""
    pods = () if isinstance(context.observed.pods, Unseen) else context.observed.pods
    if shortened := tuple(_shorten(pod) for pod in pods if _has_nothing_to_save(pod, context.now)):
        return Plan(effects=shortened, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    stuck = next((pod for pod in pods if _is_stuck(pod, context.now)), None)
    message = _stuck_message(stuck) if stuck is not None else _orphan_message(context, pods)
    if message is None or context.status.reason == Reason.POD_STUCK:
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    new = context.writer.summarised(context.status, context.status.state, Reason.POD_STUCK, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.POD_STUCK, message), requeue=LOOK_AGAIN_SECONDS)


def _stuck_message(stuck: Manifest) -> str:
    node = (stuck.get("spec") or {}).get("nodeName") or "no node"
    name, since = stuck["metadata"]["name"], stuck["metadata"]["deletionTimestamp"]
    return (
        f"pod {name} on {node} should have terminated by {since}; if the node is off, taint it "
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute or delete it, else check its kubelet: "
        "until the pod is gone, the NPUs are not free and nothing new starts"
    )


def _orphan_message(context: Context, pods: tuple[Manifest, ...]) -> str | None:
    """Name a cluster that a finalizer holds, or a pod that outlives its cluster (--cascade=orphan)."""
    live, stop = context.observed.live_cluster, context.status.stop
    left = list(context.observed.clusters) + ([live] if isinstance(live, Mapping) else [])
    for cluster in left:
        metadata = cluster["metadata"]
        since = metadata.get("deletionTimestamp")
        if not pods and since is not None and context.now >= times.after(since, STUCK_SECONDS):
            holders = ", ".join(metadata.get("finalizers") or ()) or "none"
            return (
                f"RayCluster {metadata['name']} has been terminating since {since} (finalizers: "
                f"{holders}): nothing new starts until it is gone"
            )
    if left or isinstance(live, Unseen) or stop is None or context.now < times.after(stop.deadline, STUCK_SECONDS):
        return None
    orphan = next((pod for pod in pods if not is_deleted(pod)), None)
    if orphan is None:
        return None
    return (
        f"pod {orphan['metadata']['name']} carries the label of RayCluster {context.intent.cluster_name}, which is "
        "gone, so nothing deletes it; delete the pod or remove the label: it may hold NPUs, and the job does not "
        "start until it is gone"
    )


def _has_nothing_to_save(pod: Manifest, now: datetime) -> bool:
    """Report whether a terminating pod has nothing to save, and uses up its grace period all the same.

    A bash that is process 1 of its container loses a SIGTERM that arrives before its trap, as seen in an init container
    that started 7 ms earlier. No container starts in a terminating pod, so one that has not started never will.
    """
    metadata, containers = pod["metadata"], (pod.get("status") or {}).get("containerStatuses") or ()
    ends, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds") or 0
    if ends is None or grace <= HURRY_SECONDS or now < times.after(ends, HURRY_SECONDS - grace):
        return False
    return bool(containers) and all("waiting" in (entry.get("state") or {}) for entry in containers)


def _shorten(pod: Manifest) -> ShortenGracePeriod:
    metadata = pod["metadata"]
    return ShortenGracePeriod(metadata["namespace"], metadata["name"], metadata["uid"])


def _is_stuck(pod: Manifest, now: datetime) -> bool:
    # The timestamp includes the grace period: it is the moment at which the kubelet kills.
    ends = pod["metadata"].get("deletionTimestamp")
    return ends is not None and now >= times.after(ends, STUCK_SECONDS)


def _rests(seen: Watched) -> bool:
    """Report whether a suspended job rests. After a lost status, a run is first recorded again, then stopped."""
    return seen.suspend and not seen.active and (seen.began or not seen.clusters)


def _held(seen: Watched) -> Requirements:
    # After a lost status, the clusters are not known yet.
    return STOPS_HERE if seen.began else NOTHING


@step(_held, when=_rests)
def hold(context: Context) -> Plan:
    """Create nothing for a suspended job."""
    return context.write(_suspended(context, context.status))


def _suspended(context: Context, current: RLJobStatus) -> RLJobStatus:
    # Only the user resumes the job: a restart that was due no longer counts as automatic.
    new = current.model_copy(update={"next_attempt_time": None})
    new = context.writer.with_condition(new, ConditionType.SUSPENDED, ConditionStatus.TRUE, Reason.SUSPENDED)
    return context.writer.summarised(new, State.SUSPENDED, Reason.SUSPENDED, "set spec.suspend to false to resume")
