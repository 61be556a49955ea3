"""One operator at a time: a Lease that is taken, renewed, and given back.

The durations are those of controller-runtime. A holder that cannot renew for 10 s stops being the leader, 5 s before
anybody else may take the Lease, measured on monotonic clocks: another's renewal is timed from when *we* saw it change,
so clocks that disagree do no harm. Losing it ends the process; there is no way back into a half-known world.

A machine that is paused may stop its monotonic clock, too: who wakes on it still believes in its Lease. What tells it
is a status that it did not write (`doubt`); then it writes nothing more until it has renewed the Lease.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from rljob.cluster.errors import AlreadyExists, Conflict, NotFound, OutsideError, Unavailable
from rljob.cluster.kinds import LEASE
from rljob.cluster.port import Cluster
from rljob.control.clock import Clock
from rljob.core.observed import Manifest
from rljob.telemetry.log import Log
from rljob.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 5.0

log = Log(__name__)


class LeaseLostError(Exception):
    """This process is not the leader any more."""


@dataclass
class LeaseHolder:
    """This process's side of the Lease."""

    cluster: Cluster
    clock: Clock
    metrics: Metrics
    namespace: str
    name: str
    identity: str
    _lease: Manifest | None = None
    _held_until: float = float("-inf")
    """On our monotonic clock, and 5 s before anybody else may take it."""
    _doubts: int = 0
    _doubts_settled: int = 0
    """How many of them a renewal has followed that began later."""
    _seen: tuple[str, float] = field(default=("", 0.0))
    """The other holder's record, and when it last changed on our clock."""

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        began = self.clock.monotonic()
        while not await self._try(self._acquire, REQUEST_SECONDS):
            await asyncio.sleep(RETRY_SECONDS)
            began = self.clock.monotonic()
        self._held_until = began + RENEW_DEADLINE_SECONDS
        self.metrics.leader.set(1)
        log.info("Lease acquired", lease=self.name, identity=self.identity)

    async def hold(self) -> NoReturn:
        """Renew for ever; raises LeaseLostError when that fails for too long or another holds it."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            began, doubts = self.clock.monotonic(), self._doubts
            if began >= self._held_until:
                self._lose(f"not renewed for {RENEW_DEADLINE_SECONDS:g} s")
            if await self._try(self._renew, min(REQUEST_SECONDS, self._held_until - began)):
                self._held_until, self._doubts_settled = began + RENEW_DEADLINE_SECONDS, doubts

    def expect_held(self) -> None:
        """Refuse a write when the Lease may be another's by now.

        A process that was paused wakes with a request in hand, and sends it before `hold` has its turn.
        """
        if self.clock.monotonic() >= self._held_until:
            raise Unavailable(f"not sent: Lease {self.namespace}/{self.name} was not renewed in time")
        if self._doubts_settled < self._doubts:
            raise Unavailable(f"not sent: Lease {self.namespace}/{self.name} is to be renewed first")

    def doubt(self) -> None:
        """Hold all writes until the next renewal: a leader alone writes statuses, and somebody else wrote one.

        Where it was a restored backup, or our own write whose answer was lost, that costs RETRY_SECONDS at most.
        """
        self._doubts += 1
        log.warning("A status is not the one that was written last; renewing the Lease before any write")

    async def release(self) -> None:
        """Give the Lease back, so that a successor need not wait; best effort."""
        self.metrics.leader.set(0)
        self._held_until = float("-inf")
        if self._lease is not None and await self._try(self._give_back, REQUEST_SECONDS):
            log.info("Lease released", lease=self.name)

    async def _try(self, step: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await step()
        except (OutsideError, TimeoutError) as error:
            log.warning("Lease request failed", error=str(error) or type(error).__name__)
            return False

    async def _acquire(self) -> bool:
        try:
            lease = await self.cluster.get(LEASE, self.namespace, self.name)
        except NotFound:
            try:
                self._lease = await self.cluster.create(self._manifest({}, transitions=0))
            except AlreadyExists:
                return False
            return True
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") not in (None, "", self.identity) and not self._expired(spec):
            return False
        return await self._replace(lease, spec.get("leaseTransitions", 0) + 1)

    async def _renew(self) -> bool:
        lease = await self.cluster.get(LEASE, self.namespace, self.name)
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") != self.identity:
            self._lose(f"held by {spec.get('holderIdentity')!r}")
        return await self._replace(lease, spec.get("leaseTransitions", 0))

    async def _give_back(self) -> bool:
        lease = await self.cluster.get(LEASE, self.namespace, self.name)
        if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
            return False
        manifest = self._manifest(lease["metadata"], lease["spec"].get("leaseTransitions", 0))
        manifest["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        await self.cluster.replace(manifest)
        return True

    async def _replace(self, lease: Manifest, transitions: int) -> bool:
        try:
            self._lease = await self.cluster.replace(self._manifest(lease["metadata"], transitions))
        except Conflict:
            return False
        return True

    def _expired(self, spec: Manifest) -> bool:
        """Whether the other holder's record has stood still for as long as it promised to renew."""
        record = f"{spec.get('holderIdentity')}/{spec.get('renewTime')}"
        now = self.clock.monotonic()
        if self._seen[0] != record:
            self._seen = (record, now)
        return now - self._seen[1] > float(spec.get("leaseDurationSeconds", DURATION_SECONDS))

    def _manifest(self, metadata: Manifest, transitions: int) -> dict[str, Any]:
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        acquired = self._lease["spec"]["acquireTime"] if self._lease is not None else now
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**metadata, "namespace": self.namespace, "name": self.name},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _lose(self, why: str) -> NoReturn:
        self.metrics.leader.set(0)
        raise LeaseLostError(f"Lease {self.namespace}/{self.name}: {why}")
