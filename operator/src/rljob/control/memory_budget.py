"""What the jobs and recipes of each namespace keep of the operator's memory, and how much they may.

The CRD bounds one spec, and a ResourceQuota the number of jobs where an admin has set one. Without a quota, a tenant
could fill the container of the operator for everybody: what does not fit is therefore not kept, and its job refused.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.control.packed import PackedManifest

OWN_BYTES = 192 * 2**20
"""What the operator takes without tenants' specs, with room for the objects of a thousand jobs (docs/benchmarks.md)."""
SHARE = 4
"""A namespace may take this part of the rest: as of the blocks of ports."""
COPIES = 3
"""What is derived from a spec, such as the checked model, takes about twice as much again
(operator/tests/contract/test_hostile.py measures it)."""
MIB = 2**20


@dataclass
class MemoryBudget:
    """Bytes by namespace."""

    limit: int = 0
    """Of one namespace; 0: none."""
    _held: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Namespace and bytes by UID."""
    _used: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of_container(cls, memory: int, *, shared: bool) -> MemoryBudget:
        """Return the budget in a container with so many bytes, 0 for no limit; shared: by several namespaces."""
        if memory == 0:
            return cls()
        return cls(max(memory - OWN_BYTES, memory // SHARE) // (SHARE if shared else 1))

    def take(self, uid: str, namespace: str, size: int, *, begun: bool) -> str:
        """Count an object; return why it does not fit, or nothing.

        What was accepted at this size stays, and so does a job that began before this process did.
        """
        before = self.of(uid)
        whatever = before >= size if before else begun
        self.release(uid)
        used = self._used[namespace]
        if self.limit and used + size > self.limit and not whatever and namespace:
            return (
                f"would take {_mib(size)} of the operator's memory; jobs and recipes of namespace {namespace} take "
                f"{_mib(used)} of {_mib(self.limit)} already. Delete jobs that have finished, and it is looked at "
                "again within minutes, or ask an admin to raise resources.limits.memory of the operator"
            )
        self._held[uid] = (namespace, size)
        self._used[namespace] += size
        return ""

    def release(self, uid: str) -> None:
        """Forget an object."""
        namespace, size = self._held.pop(uid, ("", 0))
        self._used[namespace] -= size
        if self._used[namespace] <= 0:
            del self._used[namespace]

    def of(self, uid: str) -> int:
        """Return the bytes of an object; 0 if it is not counted."""
        return self._held.get(uid, ("", 0))[1]


def kept_bytes(manifest: Mapping[str, Any]) -> int:
    """Return what a stored manifest takes, with what is derived from it."""
    if isinstance(manifest, PackedManifest):
        return COPIES * manifest.kept_bytes
    return COPIES * _bytes(manifest.get("spec"))


def _bytes(value: object) -> int:
    if isinstance(value, Mapping):
        return sys.getsizeof(value) + sum(_bytes(name) + _bytes(member) for name, member in value.items())
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(map(_bytes, value))
    return sys.getsizeof(value)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
