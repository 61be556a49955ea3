"""Which facts the next decision about an RLJob needs beyond those that watches deliver.

`control` asks this before it makes any request, so that a job that waits for nothing costs no request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from rljob.api.status import ConditionType, Intent, RLJobStatus
from rljob.core import status, times
from rljob.core.manifest_facts import (
    age_seconds,
    cluster_is_ready,
    identity,
    intended_cluster,
    is_held,
    is_ours,
    is_paused,
    port_block,
)
from rljob.core.observed import UNSEEN, Manifest, RayJob, RayJobState, Unseen
from rljob.core.polling import pods_every_seconds, quiet_seconds
from rljob.core.reasons import Reason
from rljob.core.steps.attempt_records import just_ended
from rljob.core.steps.kuberay import is_taken_up, is_waiting_for_kuberay, may_be_refused
from rljob.core.steps.node_health import returning_nodes
from rljob.render import labels, names
from rljob.render.evidence import key_of
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import ExitCode, Phase, Port, Progress

SILENT_SECONDS = 60.0
"""A step record this old makes the job API worth a question: a killed driver leaves no word."""

NO_EVIDENCE = frozenset({ExitCode.DONE, ExitCode.BAD_CONFIG})
"""Ends that the launcher explains by itself."""

LOG_SECONDS = 10.0
"""Shortest time between two looks at the log of an initializer."""


@dataclass(frozen=True)
class Head:
    """The head pod to talk to."""

    pod_ip: str
    pod_uid: str
    job_uid: str
    cluster_name: str
    dashboard_port: int = DASHBOARD_PORT
    api_port: int = Port.API.value


@dataclass(frozen=True)
class LogSource:
    """A container that runs."""

    pod: str
    container: str


@dataclass(frozen=True)
class Evidence:
    """An ended attempt that may not be written down yet."""

    name: str
    """GET this ConfigMap."""
    key: str
    """Without this key, LIST the pods of the cluster and the warnings of the namespace."""
    cluster_name: str


@dataclass(frozen=True)
class Needs:
    """Requests to make before `reconcile`."""

    snapshot_name: str | None = None
    """GET this ConfigMap, unless it is known: it never changes."""
    base_snapshot_name: str | None = None
    """As snapshot_name; only where that one is not there."""
    recall: bool = False
    """LIST the job's ConfigMaps, and its RayClusters if there are any: the status is new, or lost."""
    siblings: bool = False
    """The other RLJobs of the namespace, from the store."""
    config_name: str | None = None
    """GET this ConfigMap."""
    cluster_events: bool = False
    """LIST the events about the intended RayCluster."""
    cluster_name: str | None = None
    """GET this RayCluster: a loss is never taken from the watch's word alone."""
    code_name: str | None = None
    """GET this ConfigMap of the user."""
    code_copy_name: str | None = None
    """GET this ConfigMap."""
    initializer_names: tuple[str, ...] = ()
    """GET these Jobs."""
    initializer_log: bool = False
    """Ask for the log that `running_initializer` names among the pods."""
    pods_selector: str | None = None
    """LIST pods by this label selector (at most 500)."""
    pods_every_seconds: float = 0.0
    """Unless they were listed less than this ago for the same."""
    pods_decide: bool = False
    """NPUs are held, or kept from their next use, until they were listed: no diagnosis goes before."""
    nodes: bool = False
    """The cluster's nodes, from a cache."""
    fresh_nodes: bool = False
    """They are waited for: a cache of minutes would be too old."""
    taken: bool = False
    """The devices of the other jobs' clusters, from the store."""
    held: bool = False
    """The nodes of the attempt's pods, as far as they are worth a look."""
    look_at: tuple[str, ...] = ()
    """Nodes that the job avoids for a fault that may be gone."""
    allocations: bool = False
    """GET the ConfigMap of port blocks."""
    pod_groups: bool = False
    """What is served of Volcano's PodGroup, from a cache."""
    head: Head | None = None
    """Set when the exporter or the job API is to be asked."""
    progress: bool = False
    """Ask the exporter; then ask the job API too if `needs_ray_job` says so."""
    ray_job_id: str | None = None
    """The submission to ask the job API for: at once without `progress`, else if `needs_ray_job`."""
    evidence: Evidence | None = None
    """What an attempt left that has just ended."""
    status: RLJobStatus | None = field(default=None, compare=False, repr=False)
    """No request: the job's status as it was read on the way, for whoever decides next."""


def needs(job: Manifest, clusters: tuple[Manifest, ...], head_pod: Manifest | None, now: datetime) -> Needs:
    """Give the requests for one job."""
    current = status.read_status(job)
    return replace(_needs(job, current, clusters, head_pod, now), status=current)


def _needs(
    job: Manifest, current: RLJobStatus, clusters: tuple[Manifest, ...], head_pod: Manifest | None, now: datetime
) -> Needs:
    if not is_ours(job) or is_paused(job) or ("deletionTimestamp" in job["metadata"] and not is_held(job)):
        return Needs()
    if current.intent is None or current.resolved is None:
        return Needs(recall=True, siblings=True, nodes=True, pod_groups=True)
    # What the job goes by is known in every phase.
    snapshot, base, left = current.resolved.snapshot_name, current.resolved.base_snapshot, _evidence(job, current, now)
    if status.is_true(current, ConditionType.FINISHED):
        asked = Needs(snapshot_name=snapshot if clusters or _may_expire(job) else None, evidence=left)
        if current.network is None or clusters:
            return asked
        # Its ports are given back when no Ray pod may listen on them; pods of initializers stay and have none.
        ray = f"{labels.JOB_UID}={identity(job).uid},{labels.RAY_NODE_TYPE}"
        return replace(asked, pods_selector=ray, pods_decide=True, allocations=True)
    asked = _of_phase(job, current, clusters, head_pod, now)
    return replace(asked, snapshot_name=snapshot, base_snapshot_name=base, evidence=left)


def _evidence(job: Manifest, current: RLJobStatus, now: datetime) -> Evidence | None:
    ended = just_ended(current, now)
    if ended is None or "deletionTimestamp" in job["metadata"]:
        return None
    return Evidence(names.evidence_name(identity(job)), key_of(ended.number), ended.cluster_name)


def _may_expire(job: Manifest) -> bool:
    """Whether cleanup.jobAfterSeconds may be set: by the job, or by a recipe below it."""
    spec = job.get("spec") or {}
    return bool(spec.get("recipeRef")) or (spec.get("cleanup") or {}).get("jobAfterSeconds") is not None


def _of_phase(
    job: Manifest, current: RLJobStatus, clusters: tuple[Manifest, ...], head_pod: Manifest | None, now: datetime
) -> Needs:
    intent = current.intent
    if intent is None or intent.ended:
        waits, avoided = status.is_waiting_for(current, Reason.WAITING_FOR_NODES), returning_nodes(current)
        taken = status.is_waiting_for(current, Reason.WAITING_FOR_DEVICES)
        return Needs(
            siblings=True, nodes=True, fresh_nodes=waits or taken, look_at=avoided, taken=taken, pod_groups=True
        )
    cluster = intended_cluster(current, clusters)
    if current.stop is not None:
        return _stopping(job, current, intent, clusters, head_pod)
    if cluster is None:
        return _before_cluster(job, current, now)
    if intent.attempt == 0:
        if head_pod is not None and cluster_is_ready(cluster, head_pod):
            # After a lost status it may know of attempts of which nothing else tells.
            return Needs(head=_head(job, intent, head_pod), progress=True)
        waits = cluster["spec"].get("suspend", False) or quiet_seconds(cluster, now) > 0
        # KubeRay's first word is one of the watches.
        away = is_waiting_for_kuberay(current) and not is_taken_up(cluster, head_pod, UNSEEN)
        if waits or status.is_waiting_for(current, Reason.WAITING_FOR_QUEUE):
            return Needs()
        if away:
            return Needs(cluster_events=True)
        pods, late = f"{labels.RAY_CLUSTER}={intent.cluster_name}", now >= times.from_text(intent.start_deadline)
        # The last look says why it ends.
        every = 0.0 if late else pods_every_seconds(cluster, now)
        untouched = may_be_refused(cluster, head_pod, age_seconds(cluster, now), late=late)
        return Needs(
            pods_selector=pods, pods_every_seconds=every, pods_decide=late, nodes=True, cluster_events=untouched
        )
    asked = _at_head(job, current, intent, head_pod)
    return replace(asked, cluster_name=intent.cluster_name) if cluster["spec"].get("suspend", False) else asked


def _stopping(
    job: Manifest, current: RLJobStatus, intent: Intent, clusters: tuple[Manifest, ...], head_pod: Manifest | None
) -> Needs:
    """While an attempt is open its end counts, afterwards that nothing is left."""
    runs = any(a.submission_id == intent.submission_id and a.end_time is None for a in current.attempts)
    if runs:
        return _at_head(job, current, intent, head_pod)
    gone = None if clusters else intent.cluster_name
    pods = f"{labels.RAY_CLUSTER}={intent.cluster_name}"
    return Needs(cluster_name=gone, pods_selector=pods, pods_decide=gone is not None)


def _before_cluster(job: Manifest, current: RLJobStatus, now: datetime) -> Needs:
    if current.intent is None or current.resolved is None:
        raise AssertionError("read_status gives both or none")
    if current.intent.cluster_uid is not None:
        return Needs(cluster_name=current.intent.cluster_name)
    me = identity(job)
    ready = status.is_true(current, ConditionType.INITIALIZED)
    awaited = () if ready else tuple(current.resolved.initializers)
    pods = f"{labels.JOB_UID}={me.uid},{labels.INITIALIZER}"
    code = current.resolved.code
    if code is not None and code.config_map is not None and code.digest is None:
        # What comes after the copy is not asked for before it is there.
        return Needs(
            code_name=code.config_map,
            code_copy_name=names.code_name(me),
        )
    return Needs(
        allocations=ready and current.resolved.host_network is True,
        config_name=current.intent.cluster_name if ready else None,
        pod_groups=ready,
        initializer_names=awaited,
        pods_selector=pods if awaited else None,
        initializer_log=bool(awaited) and _is_log_due(current, now),
    )


def _is_log_due(current: RLJobStatus, now: datetime) -> bool:
    """A line is read, and so written, at most every LOG_SECONDS."""
    told = current.initializer
    return told is None or now >= times.after(told.observed_time, LOG_SECONDS)


def running_initializer(pods: Iterable[Manifest]) -> LogSource | None:
    """Choose whose log to read: the container that runs, the one that fetches the code included."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        found = pod.get("status") or {}
        for container in (*(found.get("initContainerStatuses") or ()), *(found.get("containerStatuses") or ())):
            if "running" in (container.get("state") or {}):
                return LogSource(pod["metadata"]["name"], container["name"])
    return None


def _at_head(job: Manifest, current: RLJobStatus, intent: Intent, head_pod: Manifest | None) -> Needs:
    submitted = any(attempt.submission_id == intent.submission_id for attempt in current.attempts)
    if head_pod is None or head_pod["metadata"]["uid"] != intent.head_pod_uid:
        pods = f"{labels.RAY_CLUSTER}={intent.cluster_name}"
        return Needs(pods_selector=pods, pods_decide=True, held=submitted)
    if not (head_pod.get("status") or {}).get("podIP"):
        return Needs()
    # Ray may be silent when the attempt is closed on what it said: its pods are looked at meanwhile.
    ends = f"{labels.RAY_CLUSTER}={intent.cluster_name}" if current.ending is not None else None
    head, ask = _head(job, intent, head_pod), submitted or status.is_silent(current)
    return Needs(
        head=head,
        progress=ask,
        ray_job_id=intent.submission_id,
        pods_selector=ends,
        pods_decide=ends is not None,
        held=submitted,
    )


def _head(job: Manifest, intent: Intent, head_pod: Manifest) -> Head:
    return Head(
        pod_ip=str(head_pod["status"]["podIP"]),
        pod_uid=head_pod["metadata"]["uid"],
        job_uid=identity(job).uid,
        cluster_name=intent.cluster_name,
        **head_ports(head_pod),
    )


def head_ports(head_pod: Manifest) -> dict[str, int]:
    """Give the ports of `Head` that are not the usual ones."""
    block = port_block(head_pod)
    return {} if block is None else {"dashboard_port": block.dashboard, "api_port": block.api}


def needs_evidence(progress: Progress | Unseen, ray_job: RayJob | Unseen | None, current: RLJobStatus | None) -> bool:
    """Say whether an attempt ended in a way that its pods may explain."""
    if not isinstance(progress, Unseen) and progress.phase is Phase.ENDED and progress.outcome is not None:
        if progress.outcome.exit_code == ExitCode.STOPPED:
            # Unless the operator stops the run, a pod's hook asked for it, and the pod says why it had to go.
            return current is None or current.stop is None
        return progress.outcome.exit_code not in NO_EVIDENCE
    return isinstance(ray_job, RayJob) and ray_job.state in (RayJobState.FAILED, RayJobState.STOPPED)


def needs_ray_job(progress: Progress | Unseen, now: datetime) -> bool:
    """Say whether the exporter's answer leaves a question that only the job API can answer."""
    if isinstance(progress, Unseen) or progress.phase in (Phase.IDLE, Phase.STARTING):
        return True
    if progress.phase is Phase.ENDED:
        return progress.outcome is None
    return now.timestamp() - progress.observed_time > SILENT_SECONDS
