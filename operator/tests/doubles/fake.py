"""An API server in memory with the semantics that matter to control loops, and with faults on demand.

It implements `Cluster` for the tests: uids, resourceVersions, preconditions, the status subresource, finalizers,
deletion with grace period, garbage collection by owner references, and a watch. `tests/contract` runs one suite against
it and a real API server, so both behave alike.

    cluster = FakeCluster()
    job = cluster.put({...})                       # as a user would: not counted as a write of the operator
    cluster.watch(engine.feed)                     # every later event goes to the callback
    cluster.faults.append(fail_write(3, Unavailable("down"), committed=True))
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from doubles.selectors import matches
from rljob.cluster import errors
from rljob.cluster.kinds import EVENT, POD, RAY_CLUSTER, RLJOB, Kind, kind_of
from rljob.cluster.manifests import same_json, without_nulls
from rljob.cluster.port import Listing
from rljob.core.observed import Manifest

Event = tuple[str, Kind, Manifest]
EventCallback = Callable[[str, Kind, Manifest], None]
"""Called with ADDED, MODIFIED or DELETED, the kind and the object."""

_WITH_STATUS = (RLJOB, RAY_CLUSTER)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_READS = ("get", "list")
_Key = tuple[Kind, str, str]
_Objects = dict[_Key, dict[str, Any]]

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One request of the operator, for faults and assertions."""

    number: int
    """Number of the write, counted from 1; 0 for reads."""
    verb: str
    kind: Kind
    namespace: str
    name: str

    @property
    def is_write(self) -> bool:
        """Return whether it is a write."""
        return self.verb not in _READS


@dataclass(frozen=True)
class Failure:
    """The effect of a fault on a call."""

    error: errors.ClusterError
    committed: bool = False
    """Whether the write is committed and only its answer is lost."""

    def fresh(self) -> errors.ClusterError:
        """Return the error without the traceback of its last raise, which would keep that world alive."""
        return self.error.with_traceback(None)


Fault = Callable[[Call], Failure | None]
Gate = Callable[[Call], Awaitable[None]]
"""Awaited before a request has any effect; blocking it freezes the sender."""


async def _open(_: Call) -> None:
    await asyncio.sleep(0)


def fail_write(number: int, error: errors.ClusterError, *, committed: bool = False) -> Fault:
    """Make the n-th write of the operator fail."""
    return lambda call: Failure(error, committed) if call.number == number else None


def fail_calls(verb: str, kind: Kind, error: errors.ClusterError, *, times: int, committed: bool = False) -> Fault:
    """Make the next calls with this verb and kind fail."""
    left = iter(range(times))

    def fault(call: Call) -> Failure | None:
        wanted = call.verb == verb and call.kind == kind
        return Failure(error, committed) if wanted and next(left, None) is not None else None

    return fault


class FakeCluster:
    """`Cluster` in memory. Methods that are not part of the port act as the user, KubeRay and the garbage collector."""

    def __init__(self, now: Callable[[], datetime] = lambda: _EPOCH) -> None:
        self.calls: list[Call] = []
        """Every attempted write, except Kubernetes events."""
        self.faults: list[Fault] = []
        self.gate: Gate = _open
        self.unserved: set[Kind] = set()
        """Kinds whose CRD is not installed."""
        self.fields: dict[Kind, frozenset[str]] = {}
        """Results of `spec_fields` by kind; empty for kinds that are not listed."""
        self.lingering: set[Kind] = set()
        """Kinds whose objects remain with a deletionTimestamp until `finish_deletion`, as with grace periods."""
        self.logs: dict[tuple[str, str, str], str] = {}
        """Logs of containers, by namespace, pod and container; a missing key means not started."""
        self._now = now
        self._objects: _Objects = {}
        self._frozen: _Objects | None = None
        self._version = 100
        self._uids = 0
        self._watchers: list[EventCallback] = []
        self._held: deque[Event] | None = None

    # The port.

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """See `Cluster.get`."""
        await self._enter("get", kind, namespace, name)
        found = self._seen().get((kind, namespace, name))
        if found is None:
            raise errors.NotFound(f"{kind.resource} {namespace}/{name} not found")
        return _copied(found)

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int | None = None,
        field_selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> Listing:
        """See `Cluster.list`."""
        await self._enter("list", kind, namespace or "", "")
        found = [
            item
            for key, item in _sorted(self._seen())
            if key[0] == kind
            and (not kind.namespaced or namespace in (None, "", key[1]))
            and matches(label_selector, _labels(item))
            and matches(field_selector, _fields(item))
        ]
        if metadata_only:
            found = [{name: item[name] for name in ("apiVersion", "kind", "metadata")} for item in found]
        cut = limit is not None and len(found) > limit
        return Listing(tuple(_copied(found[:limit])), str(self._version), is_cut=cut)

    async def spec_fields(self, kind: Kind) -> frozenset[str]:
        """See `Cluster.spec_fields`."""
        await self._enter("list", kind, "", "")
        return self.fields.get(kind, frozenset())

    async def log_tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """See `Cluster.log_tail`; `logs` contains the output of containers."""
        await self._enter("get", POD, namespace, pod)
        found = self._seen().get((POD, namespace, pod))
        if found is None:
            raise errors.NotFound(f"pods {namespace}/{pod} not found")
        written = self.logs.get((namespace, pod, container))
        if written is None and found.get("spec", {}).get("nodeName"):
            raise errors.Invalid(f"container {container} in pod {pod} is waiting to start")
        return "".join((written or "").splitlines(keepends=True)[-lines:])

    async def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        kind, namespace, name = _key(manifest)
        async with self._write("create", kind, namespace, name):
            if (kind, namespace, name) in self._objects:
                raise errors.AlreadyExists(f"{kind.resource} {namespace}/{name} already exists")
            made = self.put(manifest, status=False)
            owners = _owners(made)
            if owners and not owners & self._uids_alive():
                # The garbage collector: the owner was deleted before the object was created.
                self._begin_deletion(kind, self._objects[kind, namespace, name])
            return made

    async def replace(self, manifest: Manifest) -> Manifest:
        """See `Cluster.replace`."""
        kind, namespace, name = _key(manifest)
        async with self._write("update", kind, namespace, name):
            current = self._expect(kind, namespace, name, manifest["metadata"].get("resourceVersion"))
            changed = _copied(dict(manifest))
            changed["metadata"] = {**current["metadata"], **changed["metadata"]}
            return self._commit(kind, changed)

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str | None, *, grace_seconds: int | None = None
    ) -> None:
        """See `Cluster.delete`; a shortened grace period ends at once."""
        async with self._write("delete", kind, namespace, name):
            current = self._expect(kind, namespace, name, None)
            if uid not in (None, current["metadata"]["uid"]):
                raise errors.Conflict(f"{kind.resource} {namespace}/{name}: uid is {current['metadata']['uid']}")
            if grace_seconds is not None and current["metadata"].get("deletionTimestamp"):
                self._vanish(kind, current)
            else:
                self._begin_deletion(kind, current)

    async def apply(self, manifest: Manifest) -> Manifest:
        """See `Cluster.apply`; everything except metadata has one owner here, and labels are merged."""
        kind, namespace, name = _key(manifest)
        async with self._write("patch", kind, namespace, name):
            current = self._objects.get((kind, namespace, name))
            if current is None:
                return self.put(manifest, status=False)
            labels = {**_labels(current), **_labels(manifest)}
            kept = {"metadata": {**current["metadata"], "labels": labels}}
            return self._commit(kind, {**_copied(dict(manifest)), **kept})

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """See `Cluster.apply_status`; the whole status has one owner here."""
        kind, namespace, name = _key(manifest)
        async with self._write("patch", kind, namespace, name):
            current = self._expect_this(manifest)
            return self._commit(kind, {**current, "status": without_nulls(manifest.get("status", {}))})

    async def set_finalizers(self, manifest: Manifest) -> Manifest:
        """See `Cluster.set_finalizers`."""
        kind, namespace, name = _key(manifest)
        async with self._write("patch", kind, namespace, name):
            changed = _copied(self._expect_this(manifest))
            changed["metadata"].pop("finalizers", None)
            if wanted := list(manifest["metadata"]["finalizers"]):
                changed["metadata"]["finalizers"] = wanted
            return self._commit(kind, changed)

    # Actions of other clients.

    @property
    def writes(self) -> int:
        """Return the number of writes that the operator attempted."""
        return len(self.calls)

    def objects(self, kind: Kind) -> tuple[Manifest, ...]:
        """Return every object of a kind, by name."""
        return tuple(_copied(item) for key, item in _sorted(self._objects) if key[0] == kind)

    def find(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Return one object, or None."""
        return _copied(self._objects.get((kind, namespace, name)))

    def put(self, manifest: Manifest, *, status: bool = True, uid: str | None = None) -> Manifest:
        """Create an object as another client; with its status if `status`, and with a given UID if requested."""
        kind, _, _ = _key(manifest)
        created = _copied(dict(manifest))
        if not status and kind in _WITH_STATUS:
            created.pop("status", None)
        self._uids += 1
        created["metadata"] = {
            **created["metadata"],
            "uid": uid or f"{self._uids:08x}-0000-4000-8000-{self._uids:012x}",
            "creationTimestamp": self._now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "generation": 1,
        }
        return self._commit(kind, created)

    def edit(self, kind: Kind, namespace: str, name: str, change: Callable[[dict[str, Any]], None]) -> Manifest:
        """Change an object as another client; a change of anything but metadata and status is a new generation."""
        changed = _copied(self._objects[kind, namespace, name])
        change(changed)
        return self._commit(kind, changed)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object as another client."""
        self._begin_deletion(kind, self._objects[kind, namespace, name])

    def finish_deletion(self, kind: Kind, namespace: str, name: str) -> None:
        """End the grace period of a terminating object."""
        current = self._objects[kind, namespace, name]
        current["metadata"].pop("finalizers", None)
        self._vanish(kind, current)

    def watch(self, callback: EventCallback) -> None:
        """Send every later event to the callback."""
        self._watchers.append(callback)

    def unwatch(self, callback: EventCallback) -> None:
        """Stop sending events to the callback, as for a dead operator."""
        self._watchers.remove(callback)

    def hold_events(self) -> None:
        """Deliver no events until they are released, like a slow or dead watch."""
        self._held = deque()

    def release_events(self, order: Callable[[Sequence[Event]], Sequence[Event]] = tuple) -> None:
        """Deliver the held events as `order` returns them: permuted, duplicated, or with losses."""
        held, self._held = self._held or (), None
        for event in order(tuple(held)):
            self._deliver(*event)

    def freeze_reads(self) -> None:
        """Answer reads from the current state until `thaw_reads`, like an API server that lags."""
        self._frozen = {key: _copied(item) for key, item in self._objects.items()}

    def thaw_reads(self) -> None:
        """Answer reads from the current state again."""
        self._frozen = None

    # Implementation.

    def _seen(self) -> _Objects:
        return self._objects if self._frozen is None else self._frozen

    async def _enter(self, verb: str, kind: Kind, namespace: str, name: str) -> Failure | None:
        """Count a call and apply faults; return a failure that is due after the commit."""
        counted = verb not in _READS and kind != EVENT
        call = Call(self.writes + 1 if counted else 0, verb, kind, namespace, name)
        if counted:
            self.calls.append(call)
        await self.gate(call)
        failure = next((failure for fault in self.faults if (failure := fault(call))), None)
        if failure is not None and not failure.committed:
            raise failure.fresh()
        if kind in self.unserved:
            raise errors.NotFound(f"the server does not serve {kind.resource}")
        return failure

    def _write(self, verb: str, kind: Kind, namespace: str, name: str) -> _Write:
        return _Write(self, verb, kind, namespace, name)

    def _expect(self, kind: Kind, namespace: str, name: str, version: str | None) -> dict[str, Any]:
        current = self._objects.get((kind, namespace, name))
        if current is None:
            raise errors.NotFound(f"{kind.resource} {namespace}/{name} not found")
        if version not in (None, current["metadata"]["resourceVersion"]):
            raise errors.Conflict(f"{kind.resource} {namespace}/{name}: the object has been modified")
        return current

    def _expect_this(self, manifest: Manifest) -> dict[str, Any]:
        kind, namespace, name = _key(manifest)
        current = self._expect(kind, namespace, name, manifest["metadata"].get("resourceVersion"))
        if manifest["metadata"].get("uid") not in (None, current["metadata"]["uid"]):
            raise errors.Conflict(f"{kind.resource} {namespace}/{name}: uid is {current['metadata']['uid']}")
        return current

    def _commit(self, kind: Kind, changed: dict[str, Any]) -> Manifest:
        """Store an object with a new resourceVersion, unless nothing changed, and notify the watchers."""
        key = _key(changed)
        current = self._objects.get(key)
        if current is not None and same_json(current, changed):
            return _copied(current)
        if current is not None and not same_json(_desired(current), _desired(changed)):
            changed["metadata"]["generation"] = current["metadata"].get("generation", 1) + 1
        self._version += 1
        changed["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = changed
        self._deliver("ADDED" if current is None else "MODIFIED", kind, changed)
        leaving = changed["metadata"].get("deletionTimestamp") and not changed["metadata"].get("finalizers")
        if leaving and kind not in self.lingering:
            self._vanish(kind, changed)
        return _copied(changed)

    def _begin_deletion(self, kind: Kind, current: dict[str, Any]) -> None:
        metadata = current["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        if metadata.get("finalizers") or kind in self.lingering:
            changed = _copied(current)
            changed["metadata"]["deletionTimestamp"] = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
            self._commit(kind, changed)
        else:
            self._vanish(kind, current)

    def _vanish(self, kind: Kind, current: dict[str, Any]) -> None:
        """Remove an object and, as the garbage collector does, its dependents."""
        del self._objects[_key(current)]
        self._version += 1
        last = _copied(current)
        last["metadata"]["resourceVersion"] = str(self._version)
        self._deliver("DELETED", kind, last)
        for key, item in list(self._objects.items()):
            owners = _owners(item)
            if last["metadata"]["uid"] in owners and not owners & self._uids_alive() and key in self._objects:
                self._begin_deletion(key[0], item)

    def _uids_alive(self) -> set[str]:
        return {item["metadata"]["uid"] for item in self._objects.values()}

    def _deliver(self, event: str, kind: Kind, manifest: Manifest) -> None:
        if self._held is not None:
            self._held.append((event, kind, _copied(manifest)))
            return
        told = _copied(manifest)
        for callback in list(self._watchers):
            callback(event, kind, told)


class _Write:
    """Context of a write: counted, and failed before or after the commit according to the faults."""

    def __init__(self, cluster: FakeCluster, verb: str, kind: Kind, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._call = (verb, kind, namespace, name)
        self._failure: Failure | None = None

    async def __aenter__(self) -> None:
        self._failure = await self._cluster._enter(*self._call)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None and self._failure is not None:
            raise self._failure.fresh()


def _key(manifest: Manifest) -> _Key:
    kind, metadata = kind_of(manifest), manifest["metadata"]
    return kind, metadata["namespace"] if kind.namespaced else "", metadata["name"]


def _copied(value: T) -> T:
    """Return a copy of JSON that shares nothing. pickle takes a fourth of the time of a Python loop."""
    copied: T = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # noqa: S301 - what this module wrote
    return copied


def _sorted(objects: _Objects) -> list[tuple[_Key, dict[str, Any]]]:
    return sorted(objects.items(), key=lambda entry: entry[0][1:])


def _fields(item: Manifest) -> dict[str, str]:
    """Return the fields of an Event that a field selector may use."""
    about = {f"regarding.{name}": value for name, value in (item.get("regarding") or {}).items()}
    return about | {name: value for name, value in item.items() if isinstance(value, str)}


def _labels(manifest: Manifest) -> dict[str, str]:
    return manifest["metadata"].get("labels") or {}


def _owners(manifest: Manifest) -> set[str]:
    return {owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ()}


def _desired(manifest: Manifest) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
