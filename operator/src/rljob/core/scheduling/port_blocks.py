"""Allocation of port blocks on the host network: one ConfigMap of the operator, changed by compare and swap.

The ConfigMap is the source of truth. The job's status contains a copy, and so does the RayCluster that was rendered
with it. Any of them can be lost: a job finds its block again by its uid, and blocks that statuses and clusters of other
jobs name count as taken and are written back with the next change. A block is released when the job is finished and its
pods are gone; blocks of deleted jobs are swept when none of their pods is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rljob.render.names import JobIdentity
from rljob.render.ports import BLOCK_SIZE

FIRST_PORT = 20_000
"""Above Ray's defaults (up to 19999), below NodePorts (30000 to 32767) and Linux's ephemeral ports."""
BLOCKS = 256
SHARES = 4
"""No namespace has more than a quarter of the blocks, so that jobs which never end take them from nobody else."""


@dataclass(frozen=True)
class PortPool:
    """The range of port blocks."""

    namespace: str = "default"
    name: str = "rljob-operator-ports"
    first: int = FIRST_PORT
    blocks: int = BLOCKS
    share: int = BLOCKS // SHARES
    """Most blocks of the jobs of one namespace."""

    def candidates(self) -> range:
        """Return the first port of every block."""
        return range(self.first, self.first + self.blocks * BLOCK_SIZE, BLOCK_SIZE)

    def is_block(self, first: int) -> bool:
        """Report whether a block of the pool begins at a port."""
        return first in self.candidates()


@dataclass(frozen=True)
class Holder:
    """The job that has a block."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.uid} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Allocations:
    """The ConfigMap as read, and the blocks that statuses of jobs add to it."""

    pool: PortPool
    held: Mapping[int, Holder] = field(default_factory=dict)
    resource_version: str | None = None
    """None where the ConfigMap does not exist."""

    def block_of(self, uid: str) -> int | None:
        """Return the block of a job."""
        return next((first for first, holder in sorted(self.held.items()) if holder.uid == uid), None)

    def has_its_share(self, namespace: str) -> bool:
        """Report whether the jobs of a namespace have as many blocks as they may."""
        return sum(holder.namespace == namespace for holder in self.held.values()) >= self.pool.share

    def free(self, namespace: str) -> int | None:
        """Return the lowest free block, for a job of a namespace."""
        if self.has_its_share(namespace):
            return None
        return next((first for first in self.pool.candidates() if not _is_taken(self.held, first)), None)

    def can_have(self, uid: str, first: int) -> bool:
        """Report whether a job may take a block that it had before."""
        others = (start for start, holder in self.held.items() if holder.uid != uid)
        return self.pool.is_block(first) and not _is_taken(others, first)

    def with_block(self, job: JobIdentity, first: int) -> Allocations:
        """Return the allocations with this block, and no other, for the job."""
        kept = {start: holder for start, holder in self.held.items() if holder.uid != job.uid}
        return replace(self, held={**kept, first: Holder(job.uid, job.namespace, job.name)})

    def without(self, uids: Iterable[str]) -> Allocations:
        """Return the allocations without those of some jobs."""
        gone = set(uids)
        return replace(self, held={first: h for first, h in self.held.items() if h.uid not in gone})

    def with_recorded(self, recorded: Iterable[tuple[int, Holder]]) -> Allocations:
        """Add blocks from the statuses of jobs that the ConfigMap lacks; its own entries take precedence."""
        held, known = dict(self.held), {holder.uid for holder in self.held.values()}
        for first, holder in sorted(recorded, key=lambda entry: (entry[0], entry[1].uid)):
            if holder.uid not in known and not _is_taken(held, first):
                held[first] = holder
        return replace(self, held=held)

    def manifest(self) -> dict[str, Any]:
        """Return the ConfigMap to write, with the version that was read as precondition."""
        metadata: dict[str, Any] = {"name": self.pool.name, "namespace": self.pool.namespace}
        if self.resource_version is not None:
            metadata["resourceVersion"] = self.resource_version
        data = {str(first): str(holder) for first, holder in sorted(self.held.items())}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _is_taken(starts: Iterable[int], first: int) -> bool:
    # A pool that was moved may overlap blocks of the previous one.
    return any(abs(first - start) < BLOCK_SIZE for start in starts)


def read_allocations(pool: PortPool, manifest: Mapping[str, Any] | None) -> Allocations:
    """Parse the ConfigMap; an unreadable entry is skipped, and removed with the next change."""
    if manifest is None:
        return Allocations(pool)
    held = {}
    for key, text in (manifest.get("data") or {}).items():
        uid, _, place = str(text).partition(" ")
        namespace, slash, name = place.partition("/")
        if str(key).isdecimal() and uid and slash:
            held[int(key)] = Holder(uid, namespace, name)
    return Allocations(pool, held, str(manifest["metadata"].get("resourceVersion", "")))


def recorded_block(status: Mapping[str, Any]) -> int | None:
    """Return the block that a job's status names; None also where it is unreadable."""
    network = status.get("network")
    first = network.get("portBlock") if isinstance(network, Mapping) else None
    return first if isinstance(first, int) and not isinstance(first, bool) else None
