"""What the operator knows of the cluster without a request: every watched object in its newest known version.

It is filled by a LIST before any watch starts, then by watch events, by the answers to our own writes and by the LIST
of every resync. These sources race, so the higher resourceVersion wins: an event older than the object that we just
wrote is ignored, duplicate events change nothing, and a deletion is not undone by an older event. The store never
decides; destructive steps read live.

resourceVersions are compared as numbers, which Kubernetes guarantees for one kind in one cluster (KEP-5504) and which
was always true with etcd. A version that is not a number is taken as newer.
"""

from __future__ import annotations

import contextlib
import enum
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rljob.api.limits import OVER_BUDGET
from rljob.api.status import State
from rljob.api.v1alpha1 import RecipeKind
from rljob.cluster.bounded import without_spec
from rljob.cluster.kinds import POD, RAY_CLUSTER, RECIPES, RLJOB, UNREAD, WORKLOAD, Kind
from rljob.cluster.manifests import controller_uid, interned, without_fields
from rljob.control.memory_budget import MemoryBudget, kept_bytes
from rljob.control.packed import packed
from rljob.core.manifest_facts import is_finished, pod_has_ended, port_block
from rljob.core.observed import KubeRayWork, Manifest, RecipeId
from rljob.core.scheduling.port_blocks import Holder, recorded_block
from rljob.core.spec.recipes import chain_ids, reference_id
from rljob.render.labels import ACCELERATOR, JOB, JOB_UID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rljob.cluster.port import Listing

TOMBSTONES = 10_000
"""Deletions remembered between two resyncs; beyond that the oldest are forgotten, and the next LIST corrects them."""

ENDED_PODS = 200
"""Pods remembered after their deletion; the jobs count their ends within seconds."""

SPECS_OF_TENANTS = frozenset({RLJOB, *RECIPES.values()})
"""Kinds whose specs have long texts."""

_FOREVER = "forever"
"""The tombstone of a uid that a live read did not find."""


class Key(NamedTuple):
    """Namespace and name of an RLJob or a recipe; a ClusterRLRecipe has no namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DriftKind(enum.StrEnum):
    """What a LIST found that no watch had delivered."""

    MISSED_ADD = "missed_add"
    MISSED_UPDATE = "missed_update"
    MISSED_DELETE = "missed_delete"


@dataclass(frozen=True)
class Drift:
    """One object that was outdated in the store at a resync."""

    kind: Kind
    drift: DriftKind
    uid: str
    key: Key | None


class Store:
    """Watched objects by kind and uid; `changed` is called for every job whose objects changed."""

    def __init__(self, changed: Callable[[Key], None], budget: MemoryBudget | None = None) -> None:
        self.budget = budget or MemoryBudget()
        self.served: frozenset[Kind] = frozenset()
        """Kinds that the last LIST found served and readable; of the others nothing is known."""
        self.forbidden: frozenset[Kind] = frozenset()
        """Optional kinds that this operator may not read."""
        self.kuberay = KubeRayWork()
        """How far KubeRay is, by all RayClusters that were ever in the store."""
        self.ended_pods: OrderedDict[str, Manifest] = OrderedDict()
        """The last state of watched pods that had ended when they were deleted, by uid."""
        self._changed = changed
        self._objects: dict[Kind, dict[str, Manifest]] = defaultdict(dict)
        self._by_key: dict[tuple[Kind, Key], set[str]] = defaultdict(set)
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._unlooked: dict[str, dict[str, str]] = defaultdict(dict)
        """The `creationTimestamp` of RayClusters without a status, by namespace and uid."""
        self._unconfirmed: dict[str, Drift] = {}
        self._put_off: dict[str, list[Callable[[], bool]]] = {}

    def put(self, kind: Kind, manifest: Manifest) -> bool:
        """Store an object from an event; report whether it was new."""
        uid, version = _uid(manifest), _version(manifest)
        if uid in self._put_off:
            self._put_off[uid].append(partial(self.put, kind, manifest))
            return False
        self._unconfirmed.pop(uid, None)
        return self._put(kind, uid, version, manifest)

    @contextlib.contextmanager
    def answer_first(self, uid: str) -> Iterator[None]:
        """Delay events about an object until the answer to our write is stored: the event often arrives first."""
        self._put_off[uid] = []
        try:
            yield
        finally:
            for take in self._put_off.pop(uid):
                take()

    def learn(self, kind: Kind, manifest: Manifest) -> None:
        """Store an object from the answer to our own request; no job is queued, since the caller knows it already."""
        with self._quietly():
            self._put(kind, _uid(manifest), _version(manifest), manifest)

    def vanished(self, kind: Kind, uid: str) -> None:
        """Remove an object that a live read did not find: a uid never returns. No job is queued."""
        with self._quietly():
            self._remove(kind, uid, _FOREVER)

    def remove(self, kind: Kind, manifest: Manifest) -> bool:
        """Remove an object by an event; report whether it was stored."""
        uid, version = _uid(manifest), _version(manifest)
        if uid in self._put_off:
            self._put_off[uid].append(partial(self.remove, kind, manifest))
            return False
        self._unconfirmed.pop(uid, None)
        if kind == POD and pod_has_ended(manifest):
            # KubeRay deletes such a pod at once: its deletion may be the only event that shows how it ended.
            self.ended_pods[uid] = without_fields(manifest, UNREAD[kind])
            while len(self.ended_pods) > ENDED_PODS:
                self.ended_pods.popitem(last=False)
        return self._remove(kind, uid, version)

    def merge(self, kind: Kind, listing: Listing) -> list[Drift]:
        """Store a whole LIST; return what was outdated, and keep it until an event confirms it (`unconfirmed`)."""
        drifts: list[Drift] = []
        held = self._objects[kind]
        for manifest in sorted(listing.items, key=_claim_on_memory):
            known = _uid(manifest) in held
            news = self._put(kind, _uid(manifest), _version(manifest), manifest)
            # A watch may have delivered what is delayed.
            if news and _uid(manifest) not in self._put_off:
                drift = DriftKind.MISSED_UPDATE if known else DriftKind.MISSED_ADD
                drifts.append(Drift(kind, drift, _uid(manifest), owner_key(kind, manifest)))
        listed = {_uid(manifest) for manifest in listing.items}
        for uid in [uid for uid in held if uid not in listed]:
            manifest = held[uid]
            # It was created after the LIST was taken, so it exists although the LIST lacks it.
            if _newer(_version(manifest), listing.resource_version):
                continue
            drifts.append(Drift(kind, DriftKind.MISSED_DELETE, uid, owner_key(kind, manifest)))
            self._remove(kind, uid, listing.resource_version)
        self._unconfirmed.update({drift.uid: drift for drift in drifts})
        return drifts

    def unconfirmed(self) -> list[Drift]:
        """Return, once, the drifts that no event has confirmed since their merge: a watch had lost them."""
        drifts = list(self._unconfirmed.values())
        self._unconfirmed.clear()
        return drifts

    def job(self, key: Key) -> Manifest | None:
        """Return the RLJob, or None."""
        return self._named(RLJOB, key)

    def siblings(self, job: Manifest) -> Mapping[str, Manifest]:
        """Return the other RLJobs of the job's namespace by name."""
        return Siblings(self, job["metadata"]["namespace"], job["metadata"]["name"])

    def recipes(self, job: Manifest) -> dict[RecipeId, Manifest]:
        """Return the existing recipes that a job uses, or used when its spec was frozen."""
        found = {recipe: self._recipe(job, recipe) for recipe in self._recipe_ids(job)}
        return {recipe: manifest for recipe, manifest in found.items() if manifest is not None}

    def children(self, kind: Kind, key: Key, job_uid: str | None = None) -> tuple[Manifest, ...]:
        """Return the objects of a kind with the job's labels, sorted by name; with a uid, only those of that job."""
        held = self._objects[kind]
        found = (held[uid] for uid in tuple(self._by_key.get((kind, key), ())) if uid in held)
        mine = (item for item in found if job_uid is None or _labels(item).get(JOB_UID) == job_uid)
        return tuple(sorted(mine, key=lambda item: (str(item["metadata"]["name"]), _uid(item))))

    def workload(self, cluster: Manifest) -> Manifest | None:
        """Return Kueue's Workload of a RayCluster."""
        return self._named(WORKLOAD, Key(cluster["metadata"]["namespace"], cluster["metadata"]["uid"]))

    def job_keys(self) -> list[Key]:
        """Return the key of every RLJob."""
        jobs = tuple(self._objects[RLJOB].values())
        return sorted({Key(item["metadata"]["namespace"], item["metadata"]["name"]) for item in jobs})

    def port_blocks(self) -> list[tuple[int, Holder]]:
        """Return the port blocks that the statuses of jobs name, and those that RayClusters were rendered with."""
        found = []
        for job in self._objects[RLJOB].values():
            first, metadata = recorded_block(job.get("status") or {}), job["metadata"]
            if first is not None:
                found.append((first, Holder(metadata["uid"], metadata["namespace"], metadata["name"])))
        for cluster in self._objects[RAY_CLUSTER].values():
            # Anybody can copy labels.
            marks, block, owner = _labels(cluster), port_block(cluster), controller_uid(cluster)
            if block is not None and owner is not None and owner == marks.get(JOB_UID):
                name = marks.get(JOB, cluster["metadata"]["name"])
                found.append((block.first, Holder(owner, cluster["metadata"]["namespace"], name)))
        return found

    def devices_taken(self, but: str) -> dict[str, int]:
        """Return the devices of all other jobs' clusters by accelerator class; a suspended cluster has none."""
        taken: dict[str, int] = defaultdict(int)
        for cluster in self._objects[RAY_CLUSTER].values():
            owner = controller_uid(cluster)
            if owner in (None, but) or (cluster.get("spec") or {}).get("suspend", False):
                continue
            resolved = ((self._objects[RLJOB].get(str(owner)) or {}).get("status") or {}).get("resolved") or {}
            taken[_labels(cluster).get(ACCELERATOR, "")] += int(resolved.get("devices") or 0)
        return dict(taken)

    def port_claimants(self) -> set[str]:
        """Return the uids of jobs that have a port block or may get one: all but finished ones without a block."""
        jobs = self._objects[RLJOB].items()
        return {uid for uid, job in jobs if not (is_finished(job) and recorded_block(job.get("status") or {}) is None)}

    def unlooked(self, namespace: str, since: str) -> int:
        """Return how many RayClusters of a namespace, created since then, KubeRay has not looked at."""
        return sum(created >= since for created in self._unlooked.get(namespace, {}).values())

    def uids(self, kind: Kind) -> set[str]:
        """Return the uids of a kind's objects."""
        return set(self._objects[kind])

    def count(self, kind: Kind) -> int:
        """Return how many objects of a kind are stored."""
        return len(self._objects[kind])

    def _named(self, kind: Kind, key: Key) -> Manifest | None:
        found = self.children(kind, key)
        # While an object is deleted and created again, both may be stored for a moment: the newest one has the name.
        return max(found, key=lambda item: _number(_version(item)) or 0, default=None)

    def _recipe(self, job: Manifest, recipe: RecipeId) -> Manifest | None:
        kind = RECIPES[recipe.kind]
        return self._named(kind, Key(job["metadata"]["namespace"] if kind.namespaced else "", recipe.name))

    def _recipe_ids(self, job: Manifest) -> set[RecipeId]:
        frozen = ((job.get("status") or {}).get("resolved") or {}).get("recipes") or ()
        taken = (reference_id(entry) for entry in frozen)
        now = chain_ids(job.get("spec") or {}, lambda recipe: self._recipe(job, recipe))
        return {*now, *(recipe for recipe in taken if recipe is not None)}

    def _report(self, kind: Kind, key: Key) -> None:
        """Report a change of an object: for its job, or for every job that uses the recipe.

        Whether a job's chain reaches a recipe does not depend on that recipe's content, so the order of this call and
        the change does not matter. Recipes change rarely, so no index is kept for this.
        """
        if kind == WORKLOAD:
            owner = self._objects[RAY_CLUSTER].get(key.name)
            # Once the cluster is stored, its own event queues the job.
            place = owner_key(RAY_CLUSTER, owner) if owner is not None else None
            if place is not None:
                self._changed(place)
            return
        if kind not in RECIPES.values():
            self._changed(key)
            return
        recipe = RecipeId(RecipeKind(kind.kind), key.name)
        for job in tuple(self._objects[RLJOB].values()):
            place = Key(job["metadata"]["namespace"], job["metadata"]["name"])
            if key.namespace in ("", place.namespace) and recipe in self._recipe_ids(job):
                self._changed(place)

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        changed, self._changed = self._changed, _nobody
        try:
            yield
        finally:
            self._changed = changed

    def _put(self, kind: Kind, uid: str, version: str, manifest: Manifest) -> bool:
        current = self._objects[kind].get(uid)
        if current is not None and not _newer(version, _version(current)):
            if is_over_budget(current) and version == _version(current):
                self._try_again(kind, uid, manifest)
            return False
        key = owner_key(kind, manifest)
        if kind == WORKLOAD and key is None:
            # It belongs to a Job, or to anything else that Kueue queues.
            return False
        gone = self._gone.get(uid)
        if gone is not None and (gone == _FOREVER or not _newer(version, gone)):
            return False
        # It had only lost the labels of our selector, and has them again.
        self._gone.pop(uid, None)
        kept = without_fields(manifest, UNREAD.get(kind, ()))
        stored = self._in_budget(kind, uid, kept) if kind in SPECS_OF_TENANTS else interned(kept)
        former = owner_key(kind, current) if current is not None else None
        if former != key:
            # Otherwise the object stays in its place: large jobs read the store in a thread.
            self._unindex(kind, uid)
        self._objects[kind][uid] = stored
        if kind == RAY_CLUSTER:
            self.kuberay = self.kuberay.seen(manifest)
            self._note_look(uid, manifest, waits=not manifest.get("status"))
        if key is not None:
            self._by_key[kind, key].add(uid)
        # Reported once it is stored: the queue asks for the lane of the job.
        for place in dict.fromkeys((former, key)):
            if place is not None:
                self._report(kind, place)
        return True

    def _note_look(self, uid: str, cluster: Manifest, *, waits: bool) -> None:
        metadata = cluster["metadata"]
        waiting = self._unlooked[metadata["namespace"]]
        waiting.pop(uid, None)
        if waits:
            waiting[uid] = str(metadata.get("creationTimestamp", ""))
        if not waiting:
            del self._unlooked[metadata["namespace"]]

    def _try_again(self, kind: Kind, uid: str, manifest: Manifest) -> None:
        """Keep an object that did not fit, if there is room by now."""
        stored = self._in_budget(kind, uid, without_fields(manifest, UNREAD.get(kind, ())))
        key = owner_key(kind, manifest)
        if not is_over_budget(stored) and key is not None:
            self._objects[kind][uid] = stored
            self._report(kind, key)

    def _in_budget(self, kind: Kind, uid: str, manifest: Manifest) -> Manifest:
        """Return what is kept of a job or a recipe: not its spec, if the namespace has no memory left for it."""
        metadata, found = manifest["metadata"], packed(manifest, "spec")
        # What is derived from a job contains its recipes.
        below = sum(self.budget.of(_uid(recipe)) for recipe in self.recipes(manifest).values()) if kind == RLJOB else 0
        size = kept_bytes(found) + below
        why = self.budget.take(uid, metadata.get("namespace", ""), size, begun=_has_begun(manifest))
        if not why:
            return found
        # The figures of the first refusal stay: other jobs change them, and each message is a write.
        why = ((self._objects[kind].get(uid) or {}).get("spec") or {}).get(OVER_BUDGET, why)
        return interned({**manifest, "spec": without_spec(manifest.get("spec"), {OVER_BUDGET: why})})

    def _remove(self, kind: Kind, uid: str, version: str) -> bool:
        current = self._objects[kind].get(uid)
        if current is not None and version != _FOREVER and _newer(_version(current), version):
            return False
        former = self._unindex(kind, uid)
        self._objects[kind].pop(uid, None)
        if kind == RAY_CLUSTER and current is not None:
            self._note_look(uid, current, waits=False)
        self.budget.release(uid)
        buried = self._gone.get(uid, version)
        self._gone[uid] = buried if buried == _FOREVER or _newer(buried, version) else version
        while len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)
        if former is not None:
            self._report(kind, former)
        return current is not None

    def _unindex(self, kind: Kind, uid: str) -> Key | None:
        """Remove an object from the index; return its key."""
        current = self._objects[kind].get(uid)
        key = owner_key(kind, current) if current is not None else None
        if key is None:
            return None
        self._by_key[kind, key].discard(uid)
        if not self._by_key[kind, key]:
            del self._by_key[kind, key]
        return key


@dataclass(frozen=True)
class Siblings(Mapping[str, Manifest]):
    """The other RLJobs of a namespace, looked up one by one: a job that begins needs at most one of them."""

    store: Store
    namespace: str
    me: str

    def __getitem__(self, name: str) -> Manifest:
        """Return the job of that name."""
        found = None if name == self.me else self.store.job(Key(self.namespace, name))
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        """Iterate over their names."""
        return (key.name for key in self.store.job_keys() if key.namespace == self.namespace and key.name != self.me)

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(1 for _ in self)


def _nobody(_: Key) -> None:
    """Ignore a change."""


def owner_key(kind: Kind, manifest: Manifest) -> Key | None:
    """Return the key of an object: its own name, or that of the job in its labels.

    A Workload has no label of ours; its key is the uid of its RayCluster.
    """
    metadata = manifest["metadata"]
    if kind == WORKLOAD:
        uid = controller_uid(manifest, RAY_CLUSTER.kind)
        return Key(metadata["namespace"], uid) if uid else None
    own = kind == RLJOB or kind in RECIPES.values()
    name = metadata["name"] if own else _labels(manifest).get(JOB)
    return Key(metadata["namespace"] if kind.namespaced else "", name) if name else None


def _has_begun(manifest: Manifest) -> bool:
    """Report whether something was created for a job, whose spec must therefore stay readable."""
    status = manifest.get("status")
    return isinstance(status, Mapping) and bool(status.get("intent"))


def _claim_on_memory(manifest: Manifest) -> int:
    """Return the order in which objects get memory: jobs that began first, and those that were refused last."""
    status = manifest.get("status")
    state = status.get("state") if isinstance(status, Mapping) else None
    return 0 if _has_begun(manifest) else 2 if state == State.INVALID else 1


def is_over_budget(manifest: Manifest) -> bool:
    """Report whether the spec of an object was not kept, because its namespace has no memory left for it."""
    return OVER_BUDGET in (manifest.get("spec") or ())


def _labels(manifest: Manifest) -> dict[str, str]:
    return manifest["metadata"].get("labels") or {}


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"]["uid"])


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int | None:
    return int(version) if version.isdecimal() else None


def _newer(version: str, than: str) -> bool:
    """Report whether a version is later than another; versions that are not numbers count as later if they differ."""
    left, right = _number(version), _number(than)
    if left is None or right is None:
        return version != than
    return left > right
