"""Gathers the `Observed` of one job: from the store what watches deliver, and by requests what `needs` asks for.

Requests run side by side, each bounded by its adapter. A request that fails gives UNSEEN and not None: "could not be
had" must never be taken for "is not there". An answer of a head that is about another pod or another submission than
the intended ones is dropped here, in one place for the real and the fake adapter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rljob.cluster.errors import NotFound, Unavailable
from rljob.cluster.kinds import CONFIG_MAP, JOB, POD, POD_GROUP, RAY_CLUSTER, RECIPES, RLJOB, WORKLOAD, Kind
from rljob.cluster.limiter import TokenBucket
from rljob.cluster.manifests import controller_uid, interned
from rljob.cluster.port import Cluster, RayApi
from rljob.control.configmap_cache import OwnConfigMaps
from rljob.control.event_lists import EventLists
from rljob.control.head_liveness import Silences
from rljob.control.node_cache import NodeCache
from rljob.control.node_looks import KEEP_SECONDS, NodeLooks
from rljob.control.pod_group_api import PodGroups
from rljob.control.pod_lists import PodLists
from rljob.control.pure_core import Core
from rljob.control.refusals import Refusals
from rljob.control.store import Key, Store
from rljob.control.try_request import seen
from rljob.control.update_throttle import Samples
from rljob.core.attempts.recovery import Recalled, recall
from rljob.core.jitter import jittered
from rljob.core.observed import PARTIAL_SECONDS, UNSEEN, Manifest, Observed, PodGroupApi, RayJob, Unseen
from rljob.core.requirements import Watched, running_initializer
from rljob.core.scheduling.discovery import Nodes
from rljob.core.scheduling.node_faults import Held, NodeLook, read_held
from rljob.core.scheduling.port_blocks import Allocations, PortPool, read_allocations
from rljob.render.configmap import snapshot_part
from rljob.render.evidence import has_entry
from rljob.render.labels import JOB_UID, REFRESH
from rljob.render.labels import RAY_CLUSTER as RAY_CLUSTER_LABEL
from rljob.telemetry.log import Log
from rljob_runtime.contract import Phase, Progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from rljob.api.v1alpha1 import RecipeKind
    from rljob.core.requirements import Evidence, Head, Requirements

PODS_LIMIT = 500
"""Enough to say why a cluster of 64 nodes does not start; the diagnosis needs samples, not a census."""
PROGRESS_WRITE_SECONDS = 30.0
PROGRESS_SPREAD = 0.5
"""A job writes more seldom by up to this fraction, or jobs that began together would write together for ever."""
PROGRESS_WRITES_PER_SECOND = 6
"""Status writes that only tell of further steps, of all jobs together: of 1,000 that run each tells every three to four
minutes, about a step of a run of that size. A write costs more than the poll that brings it, and its watchers too."""
LOG_LINES = 5
"""The last one may be empty, or the end of a stack."""

log = Log(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Memo:
    """What the core computed from some inputs, and which these were."""

    inputs: Hashable
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Holding:
    """Where the pods of an attempt are: they stay there as long as it runs."""

    submission_id: str
    held: tuple[Held, ...]
    listed_at: datetime


@dataclass(frozen=True)
class Observer:
    """Reads the world of one job."""

    cluster: Cluster
    ray: RayApi
    store: Store
    refusals: Refusals
    core: Core
    pod_lists: PodLists
    event_lists: EventLists
    snapshots: dict[str, Manifest] = field(default_factory=dict)
    """By uid of the job: the snapshot that it goes by."""
    own: OwnConfigMaps = field(default_factory=OwnConfigMaps)
    nodes: NodeCache | None = None
    looks: NodeLooks | None = None
    pod_groups: PodGroups | None = None
    holdings: dict[str, Holding] = field(default_factory=dict)
    """By uid of the job."""
    port_pool: PortPool = field(default_factory=PortPool)
    partial_seconds: float = PARTIAL_SECONDS
    memos: dict[str, Memo] = field(default_factory=dict)
    """By uid of the job."""
    silences: Silences = field(default_factory=Silences)
    workloads: Samples = field(default_factory=Samples)
    groups: Samples = field(default_factory=Samples)

    async def observe(self, key: Key, now: datetime) -> Observed | None:
        """Give all that can be seen of a job; None if it is gone."""
        job = self.store.job(key)
        if job is None:
            return None
        self._expect_visible(job)
        uid, namespace, left = job["metadata"]["uid"], key.namespace, Recalled()
        clusters = self._clusters(key, uid)
        head_pod, former_heads = self._heads(job, clusters)
        watched = Watched(job, clusters, head_pod, now)
        required = self.core.required(watched)
        latest: Manifest | Unseen | None = UNSEEN
        if required.recall:
            found = await self._recall(job)
            latest, left = (UNSEEN, Recalled()) if isinstance(found, Unseen) else (found.snapshot, found)
            clusters = self._clusters(key, uid)
        if clusters:
            self.own.drop(uid)
        async with asyncio.TaskGroup() as group:
            start = group.create_task
            snapshot = start(self._snapshot(required.snapshot_name, job))
            config = start(self._own(required.config_name, job))
            live_cluster = start(self._get(required.cluster_name, namespace, RAY_CLUSTER))
            pods = start(self._pods(required, job, now))
            code = start(self._get(required.code_name, namespace))
            code_copy = start(self._get(required.code_copy_name, namespace))
            initializers = start(self._initializers(required.initializer_names, namespace))
            head = start(self._ask_head(required, job, now))
            nodes = start(self._nodes(required))
            allocations = start(self._allocations(required.allocations, uid))
            pod_group_api = start(self._pod_group_api(required))
        (progress, ray_job), seen_pods = head.result(), pods.result()
        if (unexplained := self.core.needs_evidence(progress, ray_job, watched.status)) and isinstance(
            seen_pods, Unseen
        ):
            # KubeRay soon replaces a pod that failed, so they are looked at together with the end that they explain.
            seen_pods = await self._list_pods(f"{RAY_CLUSTER_LABEL}={_intent(job).get('clusterName')}", namespace)
        ended = unexplained or (required.held and required.head is None)
        cluster_events = await self._cluster_events(required, job, ended=ended)
        held, looks = await self._hardware(required, job, now, fresh=ended)
        evidence, seen_pods, warnings = await self._evidence(required.evidence, namespace, seen_pods)
        return self._with_memo(
            Observed(
                job=job,
                status=watched.status,
                clusters=clusters,
                head_pod=head_pod,
                former_heads=former_heads,
                live_cluster=live_cluster.result(),
                kuberay=self.store.kuberay,
                workload=self._workload(job, clusters, now),
                pod_groups=self._pod_groups(job, now),
                pod_group_api=pod_group_api.result(),
                pods=seen_pods,
                config=config.result(),
                snapshot=latest if required.recall else snapshot.result(),
                base_snapshot=await self._own(required.base_snapshot_name if snapshot.result() is None else None, job),
                last_generation=left.last_generation,
                attempts=left.attempts,
                final=left.final,
                code=code.result(),
                code_copy=code_copy.result(),
                initializers=initializers.result(),
                initializer_log=await self._log(seen_pods, namespace) if required.initializer_log else UNSEEN,
                ray_job=ray_job,
                progress=progress,
                silence=self.silences.take(uid, now, required, progress, ray_job),
                evidence=evidence,
                warnings=warnings,
                cluster_events=cluster_events,
                nodes=nodes.result(),
                taken=self.store.devices_taken(uid) if required.taken else UNSEEN,
                held=held,
                looks=looks,
                allocations=allocations.result(),
                refusals=self.refusals.of(job),
                recipes=self.store.recipes(job),
                siblings=self.store.siblings(job) if required.siblings else {},
                unreadable=dict(self._unreadable()),
                progress_write_seconds=self._write_seconds(uid, POD),
                partial_seconds=self.partial_seconds,
            )
        )

    def glance(self, job: Manifest) -> Observed:
        """Give what is seen without a request of a job for which nothing was made."""
        recipes, siblings = self.store.recipes(job), self.store.siblings(job)
        unreadable = dict(self._unreadable())
        return self._with_memo(
            Observed(job=job, snapshot=None, recipes=recipes, siblings=siblings, unreadable=unreadable)
        )

    def keep_only(self, uids: set[str]) -> None:
        """Forget what is remembered of jobs that are gone."""
        self.own.keep_only(uids)
        samples = self.workloads.by_uid, self.groups.by_uid
        mine = self.snapshots, self.memos, self.silences.by_uid, self.holdings, self.pod_lists.last
        kept: tuple[dict[str, Any], ...] = (*mine, *samples)
        for remembered in kept:
            for uid in remembered.keys() - uids:
                del remembered[uid]

    def _workload(self, job: Manifest, clusters: tuple[Manifest, ...], now: datetime) -> Manifest | Unseen | None:
        """Give the Workload of the intended cluster."""
        name, uid = _intent(job).get("clusterName"), job["metadata"]["uid"]
        cluster = next((item for item in clusters if item["metadata"]["name"] == name), None)
        if cluster is None or WORKLOAD not in self.store.served:
            return UNSEEN
        return self.workloads.take(uid, self.store.workload(cluster), now, self._write_seconds(uid, RAY_CLUSTER))

    def _pod_groups(self, job: Manifest, now: datetime) -> tuple[Manifest, ...]:
        """Give the job's PodGroups, the intended one as it was last told of."""
        metadata, name = job["metadata"], _intent(job).get("clusterName")
        key, uid = Key(metadata["namespace"], metadata["name"]), metadata["uid"]
        mine = {item["metadata"]["name"]: item for item in self.store.children(POD_GROUP, key, uid)}
        kept = {item["metadata"]["name"]: item for item in _controlled_by({uid}, tuple(mine.values()))}
        if POD_GROUP not in self.store.served:
            # Nobody watches them yet: what was made is known, and not what Volcano says of it.
            kept.pop(name, None)
        shown = self.groups.take(uid, kept.get(name), now, self._write_seconds(uid, RAY_CLUSTER))
        return tuple((kept | ({name: shown} if shown else {})).values())

    async def _pod_group_api(self, required: Requirements) -> PodGroupApi | Unseen:
        return await self.pod_groups.api() if required.pod_groups and self.pod_groups is not None else UNSEEN

    def _with_memo(self, observed: Observed) -> Observed:
        """Hand on what was computed from the same inputs: most rounds of a running job bring nothing but progress."""
        metadata = observed.job["metadata"]
        inputs = (
            metadata.get("generation"),
            (metadata.get("annotations") or {}).get(REFRESH),
            _version(observed.snapshot),
            _version(observed.base_snapshot),
            tuple(sorted((recipe, _version(found)) for recipe, found in observed.recipes.items())),
        )
        known = self.memos.get(metadata["uid"])
        if known is None or known.inputs != inputs:
            known = self.memos[metadata["uid"]] = Memo(inputs)
        return replace(observed, memo=known.values)

    def _write_seconds(self, uid: str, sharing: Kind) -> float:
        """Let many jobs share what a few may write: who has a head may have steps to tell, who has a cluster waits."""
        shared = self.store.count(sharing) / PROGRESS_WRITES_PER_SECOND
        if shared <= PROGRESS_WRITE_SECONDS:
            return PROGRESS_WRITE_SECONDS
        return jittered(shared, uid, PROGRESS_SPREAD)

    def _clusters(self, key: Key, uid: str) -> tuple[Manifest, ...]:
        return _controlled_by({uid}, self.store.children(RAY_CLUSTER, key, uid))

    def _heads(self, job: Manifest, clusters: tuple[Manifest, ...]) -> tuple[Manifest | None, tuple[Manifest, ...]]:
        """Give the head pod of the intended cluster, and those of clusters that had its name before."""
        metadata, name = job["metadata"], _intent(job).get("clusterName")
        pods = self.store.children(POD, Key(metadata["namespace"], metadata["name"]), metadata["uid"])
        named = tuple(pod for pod in pods if name and pod["metadata"].get("labels", {}).get("ray.io/cluster") == name)
        living = _controlled_by({item["metadata"]["uid"] for item in clusters}, named, RAY_CLUSTER)
        return intended_head(job, living), tuple(pod for pod in named if pod not in living)

    async def _recall(self, job: Manifest) -> Recalled | Unseen:
        """Find what an earlier life left of a job; its clusters go into the store, which may not know of them yet."""
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        selector = f"{JOB_UID}={uid}"
        maps = await seen("what the job left", lambda: self.cluster.list(CONFIG_MAP, namespace, selector))
        if isinstance(maps, Unseen):
            return UNSEEN
        mine = _controlled_by({uid}, maps.items)
        self.own.listed(uid, mine)
        found = recall(uid, mine)
        if found.last_generation > 0:
            clusters = await seen("clusters", lambda: _or_none(self.cluster.list(RAY_CLUSTER, namespace, selector)))
            if isinstance(clusters, Unseen):
                return UNSEEN
            for cluster in clusters.items if clusters else ():
                self.store.learn(RAY_CLUSTER, cluster)
        return found

    async def _snapshot(self, name: str | None, job: Manifest) -> Manifest | Unseen | None:
        """Read a snapshot once: an immutable object of this job's own is the same for ever."""
        uid = job["metadata"]["uid"]
        known = self.snapshots.get(uid)
        if known is not None and known["metadata"]["name"] == name:
            return known
        found = await self._own(name, job)
        if not isinstance(found, dict):
            return found
        part = interned(snapshot_part(found))
        if found.get("immutable") and controller_uid(found) == uid:
            self.snapshots[uid] = part
        return part

    async def _own(self, name: str | None, job: Manifest) -> Manifest | Unseen | None:
        """Give a ConfigMap of the job's own, without a request where its absence or content is known."""
        known = UNSEEN if name is None else self.own.find(job["metadata"]["uid"], name)
        return await self._get(name, job["metadata"]["namespace"]) if isinstance(known, Unseen) else known

    def _unreadable(self) -> Iterator[tuple[RecipeKind, str]]:
        for name, kind in RECIPES.items():
            if kind in self.store.forbidden:
                yield name, f"the operator may not list {kind.resource} (chart value rbac.clusterRecipes)"
            elif kind not in self.store.served:
                yield name, f"the API server does not serve {kind.resource}; install its CRD (chart value crds.enabled)"

    async def _get(self, name: str | None, namespace: str, kind: Kind = CONFIG_MAP) -> Manifest | Unseen | None:
        if name is None:
            return UNSEEN
        return await seen(kind.resource, lambda: _or_none(self.cluster.get(kind, namespace, name)))

    async def _initializers(self, names: tuple[str, ...], namespace: str) -> dict[str, Manifest | None]:
        async def get(name: str) -> Manifest | Unseen | None:
            return await seen("initializer", lambda: _or_none(self.cluster.get(JOB, namespace, name)))

        found = await asyncio.gather(*(get(name) for name in names))
        return {name: job for name, job in zip(names, found, strict=True) if not isinstance(job, Unseen)}

    async def _nodes(self, required: Requirements) -> Nodes | Unseen:
        return await self.nodes.get(fresh=required.fresh_nodes) if required.nodes and self.nodes is not None else UNSEEN

    async def _hardware(
        self, required: Requirements, job: Manifest, now: datetime, *, fresh: bool
    ) -> tuple[tuple[Held, ...] | Unseen, dict[str, NodeLook]]:
        """Look at the nodes of a run, or at those that a job stays away from."""
        if self.looks is None or not (required.held or required.look_at):
            return UNSEEN, {}
        if not required.held:
            return UNSEEN, await self.looks.look(required.look_at)
        held = await self._held(self.looks.lists, job, now)
        if isinstance(held, Unseen):
            return UNSEEN, {}
        found = await self.looks.look((place.node for place in held), fresh=fresh)
        if any(look.offered != look.capacity for look in found.values()):
            # Which devices of a pod are unwell stands in the pod alone.
            held = await self._held(self.looks.lists, job, now, again=True)
        return held, found

    async def _held(
        self, lists: TokenBucket, job: Manifest, now: datetime, *, again: bool = False
    ) -> tuple[Held, ...] | Unseen:
        uid, intent = job["metadata"]["uid"], _intent(job)
        known = self.holdings.get(uid)
        if known is not None and known.submission_id != intent.get("submissionId"):
            known = None
        if known is not None and (not again or (now - known.listed_at).total_seconds() < KEEP_SECONDS):
            return known.held
        before: tuple[Held, ...] | Unseen = known.held if known else UNSEEN
        if not lists.try_take():
            return before
        selector = f"{RAY_CLUSTER_LABEL}={intent.get('clusterName')}"
        pods = await self._list_pods(selector, job["metadata"]["namespace"])
        held = () if isinstance(pods, Unseen) else read_held(pods)
        if not held or (known is not None and len(held) < len(known.held)):
            # Pods that are going say less than was known of them.
            return before
        self.holdings[uid] = Holding(str(intent.get("submissionId")), held, now)
        return held

    async def _allocations(self, wanted: bool, uid: str) -> Allocations | Unseen:  # noqa: FBT001 - one of the needs
        """Read who has which ports; what the statuses of the other jobs say counts where the ConfigMap is lost."""
        if not wanted:
            return UNSEEN
        pool = self.port_pool
        found = await self._get(pool.name, pool.namespace)
        if isinstance(found, Unseen):
            return UNSEEN
        recorded = [entry for entry in self.store.port_blocks() if entry[1].uid != uid]
        return read_allocations(pool, found).with_recorded(recorded)

    async def _pods(self, required: Requirements, job: Manifest, now: datetime) -> tuple[Manifest, ...] | Unseen:
        metadata, wanted = job["metadata"], required.pods
        if wanted is None:
            return UNSEEN
        ask = partial(self._list_pods, wanted.selector, metadata["namespace"])
        if wanted.decide:
            return await self.pod_lists.decide(ask)
        return await self.pod_lists.diagnose(metadata["uid"], now, wanted.every_seconds, ask)

    async def _list_pods(self, selector: str, namespace: str) -> tuple[Manifest, ...] | Unseen:
        listing = await seen("pods", lambda: self.cluster.list(POD, namespace, selector, PODS_LIMIT))
        return listing if isinstance(listing, Unseen) else listing.items

    async def _evidence(
        self, wanted: Evidence | None, namespace: str, pods: tuple[Manifest, ...] | Unseen
    ) -> tuple[Manifest | Unseen | None, tuple[Manifest, ...] | Unseen, tuple[Manifest, ...] | Unseen]:
        """Read the evidence of attempts, and where the last one is not in it, what there is to write of it."""
        found = await self._get(wanted.name if wanted else None, namespace)
        if wanted is None or isinstance(found, Unseen) or (found is not None and has_entry(found, wanted.key)):
            return found, pods, UNSEEN
        if isinstance(pods, Unseen):
            pods = await self._list_pods(f"{RAY_CLUSTER_LABEL}={wanted.cluster_name}", namespace)
        return found, pods, await self.event_lists.warnings(namespace)

    async def _cluster_events(self, required: Requirements, job: Manifest, *, ended: bool) -> tuple[Manifest, ...]:
        """Read what KubeRay says of the intended cluster."""
        name, namespace = str(_intent(job).get("clusterName")), job["metadata"]["namespace"]
        if ended:
            return await self.event_lists.about(namespace, name)
        return await self.event_lists.refusals(namespace, name) if required.cluster_events else ()

    async def _log(self, pods: tuple[Manifest, ...] | Unseen, namespace: str) -> str | Unseen:
        """Read the end of the running initializer's log; only the pods say which one runs."""
        source = None if isinstance(pods, Unseen) else running_initializer(pods)
        if source is None:
            return UNSEEN
        return await seen("log", lambda: self.cluster.log_tail(namespace, source.pod, source.container, LOG_LINES))

    def _expect_visible(self, job: Manifest) -> None:
        """Refuse to look at a job whose cluster may be there although no LIST can show it."""
        if _intent(job).get("clusterUID") and RAY_CLUSTER not in self.store.served:
            raise Unavailable(f"{RAY_CLUSTER.resource} is not served, so nothing is known of this job's cluster")

    async def _ask_head(
        self, required: Requirements, job: Manifest, now: datetime
    ) -> tuple[Progress | Unseen, RayJob | Unseen | None]:
        """Ask the exporter, and the job API only if a question is left."""
        head, submission_id = required.head, required.ray_job_id
        if head is None:
            return UNSEEN, UNSEEN
        progress: Progress | Unseen = UNSEEN
        if required.progress:
            progress = _about(await seen("progress", lambda: self.ray.progress(head)), head, job)
        if submission_id is None or (required.progress and not self.core.needs_ray_job(progress, now)):
            return progress, UNSEEN
        return progress, await seen("ray job", lambda: self.ray.job(head, submission_id))


def intended_head(job: Manifest, heads: tuple[Manifest, ...]) -> Manifest | None:
    """Choose among the head pods of the intended cluster the intended one, then one that is not leaving."""
    intent = _intent(job)

    def rank(pod: Manifest) -> tuple[bool, bool, str, str]:
        metadata = pod["metadata"]
        intended = metadata["uid"] == intent.get("headPodUID")
        leaving = bool(metadata.get("deletionTimestamp"))
        return intended, not leaving, metadata.get("creationTimestamp", ""), metadata["uid"]

    return max(heads, key=rank, default=None)


def _controlled_by(uids: set[str], manifests: tuple[Manifest, ...], owner: Kind = RLJOB) -> tuple[Manifest, ...]:
    """Keep what these owners control: labels can be copied by anybody, a head pod gets our token."""
    return tuple(item for item in manifests if controller_uid(item, owner.kind) in uids)


def _about(progress: Progress | Unseen, head: Head, job: Manifest) -> Progress | Unseen:
    """Drop an answer about another pod or submission; a head that has seen no attempt names none."""
    if isinstance(progress, Unseen):
        return UNSEEN
    intent = _intent(job)
    submissions = ("", intent.get("submissionId", progress.submission_id))
    if progress.pod_uid == head.pod_uid and progress.submission_id in submissions:
        return progress
    if progress.pod_uid == head.pod_uid and progress.attempt < intent.get("attempt", 0):
        # The pod still tells of the attempt before: it answers, and of this one there is nothing to tell yet.
        return Progress(pod_uid=progress.pod_uid, phase=Phase.IDLE)
    log.warning(
        "Dropped an answer about something else",
        pod_uid=progress.pod_uid,
        submission_id=progress.submission_id,
        wanted_pod_uid=head.pod_uid,
    )
    return UNSEEN


def _version(found: Manifest | Unseen | None) -> str:
    """Tell contents apart: a uid and a version of it."""
    if found is None or isinstance(found, Unseen):
        return str(found)
    return f"{found['metadata'].get('uid')}/{found['metadata'].get('resourceVersion')}"


def _intent(job: Manifest) -> dict[str, Any]:
    return (job.get("status") or {}).get("intent") or {}


async def _or_none(request: Awaitable[T]) -> T | None:
    try:
        return await request
    except NotFound:
        return None
