"""Requests that the next decision about an RLJob depends on, beyond what watches deliver.

Each step declares them (`core.step`), and `core.reconcile` gathers those of the steps that may decide. `control` asks
before it makes any request, so that a job that waits for nothing costs no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from rljob.api.status import RLJobStatus
from rljob.core import status, times
from rljob.core.manifest_facts import pod_has_ended, port_block
from rljob.core.observed import Manifest, RayJob, RayJobState, Unseen
from rljob.core.polling import POD_POLL_SECONDS_MIN, pods_every_seconds, quiet_seconds
from rljob.core.reasons import Reason
from rljob.core.watched import Watched
from rljob.render import labels
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import ExitCode, Phase, Port, Progress

REPLACED_SECONDS = 30.0
"""KubeRay creates all pods of a cluster within seconds: a much younger one replaces one that ended."""
PODLESS_SECONDS = 10.0
"""A Job gets its first pod within seconds, or the controller of Jobs reports why not."""
SILENT_SECONDS = 60.0
"""If the last step was recorded this long ago, the job API is asked too: a killed driver leaves no report."""

NO_EVIDENCE = frozenset({ExitCode.DONE, ExitCode.BAD_CONFIG})
"""Ends that the launcher explains by itself."""


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
    """A running container."""

    pod: str
    container: str


@dataclass(frozen=True)
class Evidence:
    """An ended attempt that may not be recorded yet."""

    name: str
    """GET this ConfigMap."""
    key: str
    """If this key is missing, LIST the pods of the cluster and the warnings of the namespace."""
    cluster_name: str


@dataclass(frozen=True)
class Pods:
    """LIST pods (at most 500)."""

    selector: str
    every_seconds: float = 0.0
    """No LIST is made if the last one for the same job was made less than this long ago."""
    urgent: bool = False
    """NPUs are held, or kept from their next use, until they were listed: no diagnosis has priority over this."""

    def __or__(self, other: Pods) -> Pods:
        """Return one LIST that serves both."""
        if self.selector != other.selector:
            raise AssertionError(f"two steps list different pods: {self.selector} and {other.selector}")
        every = min(self.every_seconds, other.every_seconds)
        return Pods(self.selector, every, urgent=self.urgent or other.urgent)


@dataclass(frozen=True)
class Requirements:
    """Requests to make before `reconcile`; `a | b` has those of both."""

    snapshot_name: str | None = None
    """GET this ConfigMap, unless it is known: it never changes."""
    base_snapshot_name: str | None = None
    """GET this ConfigMap if the snapshot does not exist."""
    recall: bool = False
    """LIST the job's ConfigMaps, and its RayClusters if there are any: the status is new, or was lost."""
    siblings: bool = False
    """The other RLJobs of the namespace, from the store."""
    config_name: str | None = None
    """GET this ConfigMap."""
    cluster_events: bool = False
    """LIST the events about the intended RayCluster."""
    pod_ends: bool = False
    """LIST the events about pods that KubeRay deleted, if `shows_ends` finds that pods are replaced."""
    cluster_name: str | None = None
    """GET this RayCluster: a loss is never concluded from the watch alone."""
    code_name: str | None = None
    """GET this ConfigMap of the user."""
    code_copy_name: str | None = None
    """GET this ConfigMap."""
    initializer_names: tuple[str, ...] = ()
    """GET these Jobs."""
    initializer_log: bool = False
    """Read the log of the container that `running_initializer` finds among the pods."""
    initializer_events: bool = False
    """LIST the events about the Job that `podless_initializer` finds."""
    export_name: str | None = None
    """GET this Job; LIST its pods if it has ended or none of them is ready."""
    evaluation_name: str | None = None
    """This RLJob, from the store, or else GET it."""
    service_names: tuple[str, ...] = ()
    """GET the Deployments, Services and NetworkPolicies with these names."""
    pods: Pods | None = None
    nodes: bool = False
    """The cluster's nodes, from a cache."""
    fresh_nodes: bool = False
    """The job waits for nodes: a cache of minutes would be too old."""
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
    """Set if the exporter or the job API is asked."""
    progress: bool = False
    """Ask the exporter; then ask the job API too if `needs_ray_job` requires it."""
    ray_job_id: str | None = None
    """The submission to ask the job API for: at once without `progress`, else if `needs_ray_job` requires it."""
    evidence: Evidence | None = None
    """What an attempt that has just ended has left."""
    stops_here: bool = False
    """No request: the step, or one before it, decides whatever the answers are, so that no later step is reached."""

    def __or__(self, other: Requirements) -> Requirements:
        """Return the requests of both. Two steps that want different answers to one request are a mistake."""
        return Requirements(**{name: _both(name, getattr(self, name), getattr(other, name)) for name in _NAMES})


def _both(name: str, one: object, other: object) -> Any:  # noqa: ANN401 - the value of any field
    if not one or not other or one == other:
        return one or other
    if isinstance(one, Pods) and isinstance(other, Pods):
        return one | other
    raise AssertionError(f"two steps require different values of {name}: {one} and {other}")


_NAMES = tuple(entry.name for entry in fields(Requirements))
NOTHING = Requirements()
STOPS_HERE = Requirements(stops_here=True)


def snapshot(seen: Watched) -> Requirements:
    """Require what the job uses; after a lost status, what is left of its earlier life."""
    if not seen.began:
        return Requirements(recall=True)
    return Requirements(snapshot_name=seen.resolved.snapshot_name, base_snapshot_name=seen.resolved.base_snapshot)


def starting_pods(seen: Watched) -> Requirements:
    """Require the pods of a cluster that starts, once they are worth a request, and nodes to explain them.

    For steps that apply only while the job `is_starting`.
    """
    cluster = seen.cluster
    if cluster is None or is_quiet(seen):
        return NOTHING
    # The last LIST explains why the start fails.
    every = 0.0 if seen.is_late else pods_every_seconds(cluster, seen.now)
    if seen.intent.container_failures or seen.intent.awaits_workers:
        # A pod that fails shows for a moment why it does, and the others wait for one that replaces a lost one.
        every = min(every, POD_POLL_SECONDS_MIN)
    return Requirements(pods=Pods(cluster_pods(seen), every, urgent=seen.is_late), nodes=True)


def is_quiet(seen: Watched) -> bool:
    """Report whether the intended cluster is so young, or waits in a queue, that its pods are not worth a request."""
    return seen.is_held_back or (seen.cluster is not None and quiet_seconds(seen.cluster, seen.now) > 0)


def cluster_pods(seen: Watched) -> str:
    """Return the selector of all pods of the intended cluster."""
    return f"{labels.RAY_CLUSTER}={seen.intent.cluster_name}"


def intended_head(seen: Watched) -> Requirements:
    """Require the answers of the head that runs the intended attempt, or the pods that prove its loss."""
    submitted, head_pod = seen.attempt is not None, seen.head_pod
    if head_pod is None or not seen.head_is_intended:
        return Requirements(pods=Pods(cluster_pods(seen), urgent=True), held=submitted)
    if not (head_pod.get("status") or {}).get("podIP"):
        return NOTHING
    # Ray may be silent when the attempt is closed by its earlier report, so the pods are listed meanwhile.
    ends = seen.status.ending is not None
    return Requirements(
        head=head_of(seen, head_pod),
        progress=submitted or status.is_silent(seen.status),
        ray_job_id=seen.intent.submission_id,
        pods=Pods(cluster_pods(seen), urgent=True) if ends else None,
        held=submitted,
    )


def head_of(seen: Watched, head_pod: Manifest) -> Head:
    """Return how to reach the head pod of the intended cluster."""
    return Head(
        pod_ip=str(head_pod["status"]["podIP"]),
        pod_uid=head_pod["metadata"]["uid"],
        job_uid=seen.job.uid,
        cluster_name=seen.intent.cluster_name,
        **head_ports(head_pod),
    )


def head_ports(head_pod: Manifest) -> dict[str, int]:
    """Return the ports of `Head` that differ from the defaults."""
    # The exporter passes on the job API of a Ray that checks no token.
    if labels.UNAUTHENTICATED_RAY in (head_pod["metadata"].get("labels") or {}):
        return {"dashboard_port": Port.API.value}
    block = port_block(head_pod)
    return {} if block is None else {"dashboard_port": block.dashboard, "api_port": block.api}


def running_initializer(pods: Iterable[Manifest]) -> LogSource | None:
    """Return the running container whose log to read, the one that fetches the code included."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        found: dict[str, Any] = pod.get("status") or {}
        for container in (*(found.get("initContainerStatuses") or ()), *(found.get("containerStatuses") or ())):
            if "running" in (container.get("state") or {}):
                return LogSource(pod["metadata"]["name"], container["name"])
    return None


def shows_ends(pods: Iterable[Manifest]) -> bool:
    """Report whether pods of a cluster that starts have ended, or seem to be replacements of such pods."""
    pods = tuple(pods)
    made = sorted(str(pod["metadata"].get("creationTimestamp", "")) for pod in pods)
    if made and made[0] and times.from_text(made[-1]) >= times.after(made[0], REPLACED_SECONDS):
        return True
    return any(map(pod_has_ended, pods))


def podless_initializer(
    jobs: Mapping[str, Manifest | None], pods: Iterable[Manifest], now: datetime
) -> Manifest | None:
    """Return the Job that runs and has no pod although it had time to create one."""
    for job in jobs.values():
        if job is None or (job.get("status") or {}).get("conditions"):
            continue
        metadata = job.get("metadata") or {}
        name, made = (metadata.get("labels") or {}).get(labels.INITIALIZER), metadata.get("creationTimestamp")
        has_pod = any(pod["metadata"]["labels"].get(labels.INITIALIZER) == name for pod in pods)
        return job if made and now >= times.after(made, PODLESS_SECONDS) and not has_pod else None
    return None


def needs_evidence(progress: Progress | Unseen, ray_job: RayJob | Unseen | None, current: RLJobStatus | None) -> bool:
    """Report whether an attempt ended in a way that its pods may explain."""
    if not isinstance(progress, Unseen) and progress.phase is Phase.ENDED and progress.outcome is not None:
        if progress.outcome.exit_code == ExitCode.STOPPED:
            # Unless the operator stops the run, a pod's hook asked for it, and the pod shows why it was deleted.
            return current is None or current.stop is None or current.stop.reason == Reason.WORKER_LOST
        return progress.outcome.exit_code not in NO_EVIDENCE
    return isinstance(ray_job, RayJob) and ray_job.state in (RayJobState.FAILED, RayJobState.STOPPED)


def needs_ray_job(progress: Progress | Unseen, now: datetime) -> bool:
    """Report whether the exporter's answer leaves a question that only the job API can answer."""
    if isinstance(progress, Unseen) or progress.phase in (Phase.IDLE, Phase.STARTING):
        return True
    if progress.phase is Phase.ENDED:
        return progress.outcome is None
    return now.timestamp() - progress.observed_time > SILENT_SECONDS
