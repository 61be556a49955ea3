"""Reads the nodes that jobs hold, and only those: by name, rarely, and bounded over all jobs together.

Every node is read at most twice a minute, however many jobs ask, together with the ConfigMaps in which MindCluster
reports the health of its devices and of the machine; that with the public faults of all nodes is read as often. No
permission is required: a missing one is logged once, and then nothing is known. A node that could not be read lately is
left out, and nothing follows from that.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from rljob.cluster.errors import Forbidden, NotFound, OutsideError
from rljob.cluster.kinds import CONFIG_MAP, NODE, Kind
from rljob.cluster.limiter import TimeShare, TokenBucket
from rljob.cluster.port import Cluster
from rljob.core.observed import Manifest, Unseen
from rljob.core.scheduling.node_faults import (
    DEVICE_INFO_PREFIX,
    NODE_INFO_PREFIX,
    PUBLIC_FAULTS,
    DeviceFault,
    NodeLook,
    read_node,
    read_public_faults,
)
from rljob.telemetry.log import Log

KEEP_SECONDS = 30.0
"""The plug-in reports a fault within 5 s; a job must not cost more than six requests per minute and node."""
FRESH_SECONDS = 3.0
"""Used when a run has just ended, and a fault may explain it."""
OVERDUE_SECONDS = 300.0
"""A node that was read is read again after this time, however slow the API server is."""
STALE_SECONDS = 400.0
"""Older results are discarded."""
LOOKS_PER_SECOND = 3.0
LOOKS_AT_ONCE = 40
"""Node reads per second for all jobs together, three requests each: a thousand nodes are read every 333 s, those of a
16-node job at once.

With six progress writes per second beside them, the operator stays below 20 requests per second (docs/benchmarks.md).
"""
TIME_SHARE = 0.1
TIME_IN_HAND_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0
"""The same bound for a slow API server: while a thousand jobs start, these were a fifth of its requests. Nodes that are
overdue, and those of a run that has just ended, are read nevertheless."""
LISTS_PER_SECOND = 2.0
LISTS_AT_ONCE = 20
"""LISTs of pods to find the nodes of a run, once per attempt; those that diagnose a start have their own budget."""
FORBIDDEN_SECONDS = 600.0
"""A missing permission is tried again after this time: somebody may have granted it."""
NODES_KEPT = 2000

log = Log(__name__)


@dataclass(frozen=True)
class _Seen:
    look: NodeLook
    time: float

    def age(self, now: float) -> float:
        return now - self.time


@dataclass
class NodeLooks:
    """Nodes as they were last read."""

    cluster: Cluster
    monotonic: Callable[[], float]
    device_info_namespace: str
    """Where the device plug-in keeps its ConfigMaps; empty to read none."""
    node_info_namespace: str
    """The same of NodeD."""
    public_faults_namespace: str
    """The same of ClusterD."""
    resources: Collection[str]
    """Resources by which nodes offer NPUs."""
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _forbidden_until: dict[tuple[Kind, str], float] = field(default_factory=dict)
    """By kind and namespace."""
    _public: dict[str, tuple[DeviceFault, ...]] = field(default_factory=dict)
    _public_time: float = -math.inf
    """When they were last asked for."""
    _public_read: float = -math.inf
    """When they were last read."""
    _public_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lists: TokenBucket = field(init=False)
    """For callers that have to find the nodes first."""
    _looks: TokenBucket = field(init=False)
    _time: TimeShare = field(init=False)

    def __post_init__(self) -> None:
        """Fill the buckets."""
        self.lists = TokenBucket(LISTS_PER_SECOND, LISTS_AT_ONCE, self.monotonic)
        self._looks = TokenBucket(LOOKS_PER_SECOND, LOOKS_AT_ONCE, self.monotonic)
        self._time = TimeShare(TIME_SHARE, TIME_IN_HAND_SECONDS, LONGEST_PAUSE_SECONDS, self.monotonic)

    async def look(self, names: Iterable[str], *, fresh: bool = False) -> dict[str, NodeLook]:
        """Return what is known of nodes; unknown ones are left out."""
        # The oldest first: if there are more nodes than may be read at once, each gets its turn.
        wanted = sorted(set(names), key=lambda name: (self._seen[name].time if name in self._seen else -1.0, name))
        keep = FRESH_SECONDS if fresh else KEEP_SECONDS
        # Usually none is due, and a task for each would cost more than this check.
        due = [name for name in wanted if self._is_due(name, keep)]
        if not fresh and not self._time.has_room():
            # Before what is known of them is discarded.
            due = [name for name in due if name in self._seen and self._is_due(name, OVERDUE_SECONDS)]
        if due:
            with self._time.timed():
                await asyncio.gather(*(self._refresh(name, keep) for name in due))
        now = self.monotonic()
        known = ((name, self._seen.get(name)) for name in wanted)
        return {name: seen.look for name, seen in known if seen is not None and seen.age(now) < STALE_SECONDS}

    def _is_due(self, name: str, keep_seconds: float) -> bool:
        known = self._seen.get(name)
        return known is None or known.age(self.monotonic()) >= keep_seconds

    async def _refresh(self, name: str, keep_seconds: float) -> None:
        now = self.monotonic()
        if self._is_forbidden(NODE, "") or not self._looks.try_take():
            return
        node = await self._get(NODE, "", name)
        if isinstance(node, Unseen):
            return
        if node is None:
            # Its pods are deleted with it, and that is what counts.
            self._seen.pop(name, None)
            return
        devices = await self._report(self.device_info_namespace, f"{DEVICE_INFO_PREFIX}{name}")
        machine = await self._report(self.node_info_namespace, f"{NODE_INFO_PREFIX}{name}")
        if isinstance(devices, Unseen) or isinstance(machine, Unseen):
            # Without the ConfigMap, a fault would seem to be gone.
            return
        await self._refresh_public(keep_seconds)
        look = read_node(name, node, devices, machine, self._public.get(name, ()), self.resources)
        self._seen[name] = _Seen(look, now)
        if len(self._seen) > NODES_KEPT:
            self._seen = {name: seen for name, seen in self._seen.items() if seen.age(now) < STALE_SECONDS}

    async def _refresh_public(self, keep_seconds: float) -> None:
        async with self._public_lock:
            if self.monotonic() - self._public_time < keep_seconds:
                return
            found = await self._report(self.public_faults_namespace, PUBLIC_FAULTS)
            self._public_time = now = self.monotonic()
            if not isinstance(found, Unseen):
                self._public, self._public_read = {} if found is None else read_public_faults(found), now
            elif now - self._public_read >= STALE_SECONDS:
                self._public = {}

    async def _report(self, namespace: str, name: str) -> Manifest | Unseen | None:
        if not namespace or self._is_forbidden(CONFIG_MAP, namespace):
            return None
        found = await self._get(CONFIG_MAP, namespace, name)
        return None if self._is_forbidden(CONFIG_MAP, namespace) else found

    def _is_forbidden(self, kind: Kind, namespace: str) -> bool:
        return self.monotonic() < self._forbidden_until.get((kind, namespace), 0.0)

    async def _get(self, kind: Kind, namespace: str, name: str) -> Manifest | Unseen | None:
        try:
            return await self.cluster.get(kind, namespace, name)
        except NotFound:
            return None
        except Forbidden as error:
            if (kind, namespace) not in self._forbidden_until:
                log.warning("Node faults are not detected: reading is forbidden", kind=kind.resource, error=str(error))
            self._forbidden_until[kind, namespace] = self.monotonic() + FORBIDDEN_SECONDS
        except OutsideError as error:
            log.info("A node could not be read", kind=kind.resource, name=name, reason=error.reason, error=str(error))
        return Unseen.UNSEEN
