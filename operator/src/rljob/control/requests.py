"""The requests that `core.requirements` names: each gives an answer, None for "not there", or UNSEEN.

Each is bounded by its adapter. A request that fails gives UNSEEN and not None: "could not be read" must never be taken
for "does not exist". An answer of a head about another pod or submission than the intended ones is dropped here, in one
place for the real and the fake adapter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rljob.cluster.errors import HeadSilent, NotFound, OutsideError
from rljob.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, NETWORK_POLICY, POD, RAY_CLUSTER, RLJOB, SERVICE, Kind
from rljob.cluster.limiter import TokenBucket
from rljob.cluster.manifests import controller_uid
from rljob.cluster.port import Cluster, RayApi
from rljob.control.event_lists import EventLists
from rljob.control.head_poller import Answer, Question
from rljob.control.job_memory import Holding, JobMemories
from rljob.control.node_cache import NodeCache
from rljob.control.node_looks import KEEP_SECONDS, NodeLooks
from rljob.control.pod_group_api import PodGroups
from rljob.control.pod_lists import PodLists
from rljob.control.pure_core import Core
from rljob.control.store import Key, Store
from rljob.control.store_reads import controlled_by, intent_of
from rljob.control.try_request import labelled, seen
from rljob.core.attempts.recovery import Recalled, recall
from rljob.core.observed import (
    PODS_LISTED_MAX,
    UNSEEN,
    ExportSeen,
    JobsSeen,
    Manifest,
    PodGroupApi,
    RayJob,
    SharedServiceSeen,
    Unseen,
)
from rljob.core.requirements import podless_initializer, running_initializer, shows_ends
from rljob.core.scheduling.discovery import Nodes
from rljob.core.scheduling.node_faults import Held, NodeLook, read_held
from rljob.core.scheduling.port_blocks import Allocations, PortPool, read_allocations
from rljob.render.configmap import snapshot_part
from rljob.render.evidence import has_entry
from rljob.render.labels import EXPORT, JOB_UID
from rljob.render.labels import RAY_CLUSTER as RAY_CLUSTER_LABEL
from rljob.telemetry.log import Log
from rljob_runtime.contract import Phase, Progress

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from rljob.core.requirements import Evidence, Requirements

LOG_LINES = 5
"""The last one may be empty, or the end of a stack."""

log = Log(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Requests:
    """Makes the requests for one job at a time."""

    cluster: Cluster
    ray: RayApi
    store: Store
    core: Core
    memories: JobMemories
    pod_lists: PodLists
    event_lists: EventLists
    nodes: NodeCache
    looks: NodeLooks
    pod_groups: PodGroups
    port_pool: PortPool = field(default_factory=PortPool)

    async def recall(self, job: Manifest) -> Recalled | Unseen:
        """Find what an earlier life left of a job; its clusters go into the store, which may not know of them yet."""
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        selector = f"{JOB_UID}={uid}"
        mine = await seen("what the job left", lambda: self._config_maps(uid, namespace, selector))
        if isinstance(mine, Unseen):
            return UNSEEN
        self.memories.of(job).list_config_maps(mine)
        found = recall(uid, mine)
        if found.last_generation > 0:
            ask = partial(labelled, self.cluster, RAY_CLUSTER, namespace, selector)
            clusters = await seen("clusters", lambda: _or_none(ask()))
            if isinstance(clusters, Unseen):
                return UNSEEN
            for cluster in clusters or ():
                self.store.learn(RAY_CLUSTER, cluster)
        return found

    async def _config_maps(self, uid: str, namespace: str, selector: str) -> tuple[Manifest, ...]:
        """Return a job's own ConfigMaps.

        Anybody may put the label on theirs, of up to 1 MiB each, so only the content of the job's own is read.
        """
        listed = await labelled(self.cluster, CONFIG_MAP, namespace, selector, metadata_only=True)
        names = [item["metadata"]["name"] for item in controlled_by({uid}, listed)]
        read = [await _or_none(self.cluster.get(CONFIG_MAP, namespace, name)) for name in names]
        return controlled_by({uid}, tuple(item for item in read if item is not None))

    async def snapshot(self, name: str | None, job: Manifest) -> Manifest | Unseen | None:
        """Read a snapshot once: an immutable object of this job's own never changes."""
        memory = self.memories.of(job)
        if memory.snapshot is not None and memory.snapshot["metadata"]["name"] == name:
            return memory.snapshot
        found = await self.own(name, job)
        if not isinstance(found, Mapping):
            return found
        part = snapshot_part(found)
        if found.get("immutable") and controller_uid(found) == job["metadata"]["uid"]:
            memory.snapshot = part
        return part

    async def own(self, name: str | None, job: Manifest) -> Manifest | Unseen | None:
        """Return a ConfigMap of the job's own, without a request if its absence or content is known."""
        known = UNSEEN if name is None else self.memories.of(job).config_map(name)
        return await self.get(name, job["metadata"]["namespace"]) if isinstance(known, Unseen) else known

    async def get(self, name: str | None, namespace: str, kind: Kind = CONFIG_MAP) -> Manifest | Unseen | None:
        """Read one object by its name."""
        if name is None:
            return UNSEEN
        return await seen(kind.resource, lambda: _or_none(self.cluster.get(kind, namespace, name)))

    async def jobs(self, required: Requirements, namespace: str) -> JobsSeen:
        """Read initializers, without those that could not be read, an export, an evaluation and shared services."""

        async def get(name: str) -> Manifest | Unseen | None:
            return await seen("job", lambda: _or_none(self.cluster.get(JOB, namespace, name)))

        names = required.initializer_names
        export, evaluation, services, found = await asyncio.gather(
            self._export(required.export_name, namespace),
            self._evaluation(required.evaluation_name, namespace),
            self._services(required.service_names, namespace),
            asyncio.gather(*map(get, names)),
        )
        read = {name: job for name, job in zip(names, found, strict=True) if not isinstance(job, Unseen)}
        return JobsSeen(read, export, evaluation, services)

    async def _evaluation(self, name: str | None, namespace: str) -> Manifest | Unseen | None:
        known = None if name is None else self.store.job(Key(namespace, name))
        return await self.get(name, namespace, RLJOB) if known is None else known

    async def _export(self, name: str | None, namespace: str) -> ExportSeen:
        found = await self.get(name, namespace, JOB)
        if not isinstance(found, Mapping):
            return ExportSeen(found)
        state = found.get("status") or {}
        if state.get("ready") and not state.get("conditions"):
            return ExportSeen(found)
        return ExportSeen(found, await self.list_pods(f"{EXPORT}={name}", namespace))

    async def _services(self, names: tuple[str, ...], namespace: str) -> dict[str, SharedServiceSeen]:
        async def get(name: str) -> SharedServiceSeen:
            kinds = (DEPLOYMENT, SERVICE, NETWORK_POLICY)
            return SharedServiceSeen(*await asyncio.gather(*(self.get(name, namespace, kind) for kind in kinds)))

        return dict(zip(names, await asyncio.gather(*map(get, names)), strict=True))

    async def node_list(self, required: Requirements) -> Nodes | Unseen:
        """Return the cluster's nodes."""
        return await self.nodes.get(fresh=required.fresh_nodes) if required.nodes else UNSEEN

    async def pod_group_api(self, required: Requirements) -> PodGroupApi | Unseen:
        """Return what is served of Volcano's PodGroup."""
        return await self.pod_groups.api() if required.pod_groups else UNSEEN

    async def hardware(
        self, required: Requirements, job: Manifest, now: datetime, *, fresh: bool
    ) -> tuple[tuple[Held, ...] | Unseen, dict[str, NodeLook]]:
        """Look at the nodes of a run, or at those that a job avoids."""
        if not required.held:
            return UNSEEN, await self.looks.look(required.look_at) if required.look_at else {}
        held = await self._held(self.looks.lists, job, now)
        if isinstance(held, Unseen):
            return UNSEEN, {}
        found = await self.looks.look((place.node for place in held), fresh=fresh)
        if any(look.offered != look.capacity for look in found.values()):
            # Which devices of a pod are unhealthy is known from the pod alone.
            held = await self._held(self.looks.lists, job, now, again=True)
        return held, found

    async def _held(
        self, lists: TokenBucket, job: Manifest, now: datetime, *, again: bool = False
    ) -> tuple[Held, ...] | Unseen:
        memory, intent = self.memories.of(job), intent_of(job)
        known = memory.holding
        if known is not None and known.submission_id != intent.get("submissionId"):
            known = None
        if known is not None and (not again or (now - known.listed_at).total_seconds() < KEEP_SECONDS):
            return known.held
        before: tuple[Held, ...] | Unseen = known.held if known else UNSEEN
        if not lists.try_take():
            return before
        selector = f"{RAY_CLUSTER_LABEL}={intent.get('clusterName')}"
        pods = await self.list_pods(selector, job["metadata"]["namespace"])
        held = () if isinstance(pods, Unseen) else read_held(pods)
        if not held or (known is not None and len(held) < len(known.held)):
            # Pods that are being deleted show less than was known of them.
            return before
        memory.holding = Holding(str(intent.get("submissionId")), held, now)
        return held

    async def allocations(self, required: Requirements, uid: str) -> Allocations | Unseen:
        """Read who has which ports; if the ConfigMap is lost, the statuses of the other jobs count."""
        if not required.allocations:
            return UNSEEN
        pool = self.port_pool
        found = await self.get(pool.name, pool.namespace)
        if isinstance(found, Unseen):
            return UNSEEN
        recorded = [entry for entry in self.store.port_blocks() if entry[1].uid != uid]
        return read_allocations(pool, found).with_recorded(recorded)

    async def pods(self, required: Requirements, job: Manifest, now: datetime) -> tuple[Manifest, ...] | Unseen:
        """List pods, as far as the bounds on LISTs allow it."""
        wanted = required.pods
        if wanted is None:
            return UNSEEN
        ask = partial(self.list_pods, wanted.selector, job["metadata"]["namespace"])
        if wanted.urgent:
            return await self.pod_lists.urgent(ask)
        return await self.pod_lists.diagnose(self.memories.of(job), now, wanted.every_seconds, ask)

    async def list_pods(self, selector: str, namespace: str) -> tuple[Manifest, ...] | Unseen:
        """List pods now."""
        listing = await seen("pods", lambda: self.cluster.list(POD, namespace, selector, PODS_LISTED_MAX))
        return listing if isinstance(listing, Unseen) else listing.items

    async def evidence(
        self, wanted: Evidence | None, namespace: str, pods: tuple[Manifest, ...] | Unseen
    ) -> tuple[Manifest | Unseen | None, tuple[Manifest, ...] | Unseen, tuple[Manifest, ...] | Unseen]:
        """Read the evidence of attempts; if the last one is missing in it, also pods and warnings."""
        found = await self.get(wanted.name if wanted else None, namespace)
        if wanted is None or isinstance(found, Unseen) or (found is not None and has_entry(found, wanted.key)):
            return found, pods, UNSEEN
        if isinstance(pods, Unseen):
            pods = await self.list_pods(f"{RAY_CLUSTER_LABEL}={wanted.cluster_name}", namespace)
        return found, pods, await self.event_lists.warnings(namespace)

    async def cluster_events(
        self,
        required: Requirements,
        job: Manifest,
        gone: tuple[Manifest, ...],
        pods: tuple[Manifest, ...] | Unseen,
        *,
        ended: bool,
    ) -> tuple[Manifest, ...]:
        """Read KubeRay's events about the intended cluster, of which some pods are known and some are gone."""
        name, namespace = str(intent_of(job).get("clusterName")), job["metadata"]["namespace"]
        if ended:
            return await self.event_lists.about(namespace, name)
        found = await self.event_lists.refusals(namespace, name) if required.cluster_events else ()
        if required.pod_ends and shows_ends((*gone, *(() if isinstance(pods, Unseen) else pods))):
            found += await self.event_lists.deleted_pods(namespace, name)
        return found

    async def initializer_events(
        self,
        required: Requirements,
        jobs: Mapping[str, Manifest | None],
        pods: tuple[Manifest, ...] | Unseen,
        now: datetime,
    ) -> tuple[Manifest, ...]:
        """Read why the pod of the running initializer cannot be created, if it has none."""
        if not required.initializer_events or isinstance(pods, Unseen):
            return ()
        found = podless_initializer(jobs, pods, now)
        if found is None:
            return ()
        return await self.event_lists.failed_creations(found["metadata"]["namespace"], found["metadata"]["name"])

    async def initializer_log(
        self, required: Requirements, pods: tuple[Manifest, ...] | Unseen, namespace: str
    ) -> str | Unseen:
        """Read the end of the running initializer's log; only the pods show which one runs."""
        source = None if not required.initializer_log or isinstance(pods, Unseen) else running_initializer(pods)
        if source is None:
            return UNSEEN
        return await seen("log", lambda: self.cluster.log_tail(namespace, source.pod, source.container, LOG_LINES))

    async def head(self, question: Question, now: Callable[[], datetime]) -> Answer:
        """Ask the exporter, and the job API only if a question is left."""
        head, submission_id = question.head, question.submission_id
        progress: Progress | Unseen = UNSEEN
        failures: list[OutsideError] = []
        if question.progress:
            progress = _about(await seen("progress", lambda: self.ray.progress(head), failures.append), question)
        ray_job: RayJob | Unseen | None = UNSEEN
        if submission_id is not None and not (question.progress and not self.core.needs_ray_job(progress, now())):
            ray_job = await seen("ray job", lambda: self.ray.job(head, submission_id), failures.append)
        silent = isinstance(progress, Unseen) and isinstance(ray_job, Unseen)
        return Answer(progress, ray_job, silent and any(isinstance(error, HeadSilent) for error in failures))


def question_of(required: Requirements, job: Manifest) -> Question | None:
    """Return what is asked of the head; None if nothing is."""
    if required.head is None:
        return None
    intent = intent_of(job)
    submission_id, attempt = intent.get("submissionId"), intent.get("attempt", 0)
    return Question(required.head, required.ray_job_id, required.progress, submission_id, attempt)


def _about(progress: Progress | Unseen, question: Question) -> Progress | Unseen:
    """Drop an answer about another pod or submission; a head that has seen no attempt names none."""
    if isinstance(progress, Unseen):
        return UNSEEN
    pod_uid, intended = question.head.pod_uid, question.intended_submission_id
    submissions = ("", progress.submission_id if intended is None else intended)
    if progress.pod_uid == pod_uid and progress.submission_id in submissions:
        return progress
    if progress.pod_uid == pod_uid and progress.attempt < question.intended_attempt:
        # The pod still reports the attempt before: it answers, and of this one there is nothing to report yet.
        return Progress(pod_uid=progress.pod_uid, phase=Phase.IDLE)
    log.warning(
        "Ignored an exporter response for another pod or submission",
        pod_uid=progress.pod_uid,
        submission_id=progress.submission_id,
        wanted_pod_uid=pod_uid,
    )
    return UNSEEN


async def _or_none(request: Awaitable[T]) -> T | None:
    try:
        return await request
    except NotFound:
        return None
