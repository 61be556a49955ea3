"""What the store knows of one job, without a request: its clusters, head pods, Workload and PodGroups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rljob.cluster.kinds import POD, POD_GROUP, RAY_CLUSTER, RECIPES, RLJOB, WORKLOAD, Kind
from rljob.cluster.manifests import controller_uid
from rljob.control.store import Key, Store
from rljob.core.jitter import jittered
from rljob.core.observed import PROGRESS_WRITE_SECONDS, UNSEEN, Manifest, Unseen

if TYPE_CHECKING:
    from rljob.api.v1alpha1 import RecipeKind
    from rljob.control.job_memory import JobMemory

PROGRESS_JITTER = 0.5
"""A job writes less often by up to this fraction, or jobs that began together would always write together."""
PROGRESS_WRITES_PER_SECOND = 6
"""Status writes of all jobs together that only report further steps: of 1,000 running jobs each reports every three to
four minutes, about a step of a run of that size. A write costs more than the poll before it, and its watchers too."""


def intent_of(job: Manifest) -> dict[str, Any]:
    """Return status.intent as JSON; empty without one."""
    return (job.get("status") or {}).get("intent") or {}


def controlled_by(uids: set[str], manifests: tuple[Manifest, ...], owner: Kind = RLJOB) -> tuple[Manifest, ...]:
    """Return the objects that these owners control: anybody can copy labels, and a head pod gets our token."""
    return tuple(item for item in manifests if controller_uid(item, owner.kind) in uids)


def clusters_of(store: Store, job: Manifest) -> tuple[Manifest, ...]:
    """Return the job's RayClusters."""
    return controlled_by({job["metadata"]["uid"]}, store.children(RAY_CLUSTER, _key(job), job["metadata"]["uid"]))


def heads_of(
    store: Store, job: Manifest, clusters: tuple[Manifest, ...]
) -> tuple[Manifest | None, tuple[Manifest, ...]]:
    """Return the head pod of the intended cluster, and those of former clusters with the same name."""
    name = intent_of(job).get("clusterName")
    pods = store.children(POD, _key(job), job["metadata"]["uid"])
    named = tuple(pod for pod in pods if name and pod["metadata"].get("labels", {}).get("ray.io/cluster") == name)
    living = controlled_by({item["metadata"]["uid"] for item in clusters}, named, RAY_CLUSTER)
    return intended_head(job, living), tuple(pod for pod in named if pod not in living)


def ended_heads_of(store: Store, job: Manifest, clusters: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
    """Return the last state of head pods of the intended cluster that ended and were deleted."""
    name = intent_of(job).get("clusterName")
    uids = {item["metadata"]["uid"] for item in clusters if item["metadata"]["name"] == name}
    return controlled_by(uids, tuple(store.ended_pods.values()), RAY_CLUSTER) if uids else ()


def intended_head(job: Manifest, heads: tuple[Manifest, ...]) -> Manifest | None:
    """Return the intended one of the head pods of a cluster, else one that is not being deleted."""
    intent = intent_of(job)

    def rank(pod: Manifest) -> tuple[bool, bool, str, str]:
        metadata = pod["metadata"]
        intended = metadata["uid"] == intent.get("headPodUID")
        leaving = bool(metadata.get("deletionTimestamp"))
        return intended, not leaving, metadata.get("creationTimestamp", ""), metadata["uid"]

    return max(heads, key=rank, default=None)


def workload_of(
    store: Store, job: Manifest, clusters: tuple[Manifest, ...], memory: JobMemory, now: datetime
) -> Manifest | Unseen | None:
    """Return Kueue's Workload of the intended cluster."""
    name = intent_of(job).get("clusterName")
    cluster = next((item for item in clusters if item["metadata"]["name"] == name), None)
    if cluster is None or WORKLOAD not in store.served:
        return UNSEEN
    return memory.workload.take(store.workload(cluster), now, write_seconds(store, job, RAY_CLUSTER))


def pod_groups_of(store: Store, job: Manifest, memory: JobMemory, now: datetime) -> tuple[Manifest, ...]:
    """Return the job's PodGroups, the intended one as it was last passed on."""
    name, uid = intent_of(job).get("clusterName"), job["metadata"]["uid"]
    mine = controlled_by({uid}, store.children(POD_GROUP, _key(job), uid))
    kept = {item["metadata"]["name"]: item for item in mine}
    if POD_GROUP not in store.served:
        # Nobody watches them yet: what was created is known, but not what Volcano reports about it.
        kept.pop(name, None)
    shown = memory.pod_group.take(kept.get(name), now, write_seconds(store, job, RAY_CLUSTER))
    return tuple((kept | ({name: shown} if shown else {})).values())


def unreadable_kinds(store: Store) -> Iterator[tuple[RecipeKind, str]]:
    """Return the kinds of recipes that cannot be read, and why."""
    for name, kind in RECIPES.items():
        if kind in store.forbidden:
            yield name, f"the operator may not list {kind.resource} (chart value rbac.clusterRecipes)"
        elif kind not in store.served:
            yield name, f"the API server does not serve {kind.resource}; install its CRD (chart value crds.enabled)"


def write_seconds(store: Store, job: Manifest, sharing: Kind) -> float:
    """Return the shortest interval between two status writes of a job that only report progress.

    The jobs that have objects of the kind `sharing` share the rate: a job with a head may report steps, one with a
    cluster waits.
    """
    shared = store.count(sharing) / PROGRESS_WRITES_PER_SECOND
    if shared <= PROGRESS_WRITE_SECONDS:
        return PROGRESS_WRITE_SECONDS
    return jittered(shared, job["metadata"]["uid"], PROGRESS_JITTER)


def _key(job: Manifest) -> Key:
    return Key(job["metadata"]["namespace"], job["metadata"]["name"])
