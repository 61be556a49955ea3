"""Leader election: a Lease that is acquired, renewed and released.

The durations are those of controller-runtime. A holder that cannot renew for 10 s stops being the leader, 5 s before
anybody else may take the Lease. Both are measured on monotonic clocks, and another holder's renewal is timed from when
*we* saw it change, so clock skew does no harm. Losing the Lease ends the process: its view of the world is outdated.

If a machine is paused, its monotonic clock may stop too, and a process that resumes still takes itself for the leader.
It notices by a status that it did not write (`doubt`), and then writes nothing until it has renewed the Lease.
`kubernetes.aio.leaderelection` of the client library has neither that nor a fence for single writes, which is why this
module exists.

The Lease is renewed from a thread with an event loop of its own (`ThreadedLease`): the process remains the leader while
a computation keeps its main loop busy, but no longer than the liveness probe would let it live.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from rljob.cluster.errors import AlreadyExists, Conflict, NotFound, OutsideError, Unavailable
from rljob.cluster.kinds import LEASE
from rljob.cluster.port import Cluster
from rljob.control.clock import Clock
from rljob.core.observed import Manifest
from rljob.telemetry.log import Log
from rljob.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 5.0

STUCK_SECONDS = 60.0
"""Seconds after which the liveness probe of the chart restarts a process whose event loop does not turn."""
TURN_SECONDS = 1.0
"""How often the main loop shows that it turns."""

log = Log(__name__)
T = TypeVar("T")


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
    """Time on our monotonic clock until which this process holds the Lease: 5 s before another one may take it."""
    _doubts: int = 0
    _doubts_settled: int = 0
    """How many doubts were followed by a renewal that began after them."""
    _seen: tuple[str, float] = field(default=("", 0.0))
    """The other holder's record, and when it last changed on our clock."""
    _turned: float = float("-inf")
    """When the loop that works under the Lease last turned, on our clock."""

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        began = self.clock.monotonic()
        while not await self._try(self._acquire, REQUEST_SECONDS):
            await asyncio.sleep(RETRY_SECONDS)
            began = self.clock.monotonic()
        self._held_until = began + RENEW_DEADLINE_SECONDS
        self.turned()
        self.metrics.leader.set(1)
        log.info("Lease acquired", lease=self.name, identity=self.identity)

    async def hold(self) -> NoReturn:
        """Renew forever; raise LeaseLostError if the Lease is lost, or if the process does not work under it.

        It is lost if renewing fails for too long or another process holds it.
        """
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            began, doubts = self.clock.monotonic(), self._doubts
            if began >= self._held_until:
                self._lose(f"not renewed for {RENEW_DEADLINE_SECONDS:g} s")
            if began - self._turned > STUCK_SECONDS:
                self._lose(f"not renewed any more, because the event loop did not turn for {STUCK_SECONDS:g} s")
            if await self._try(self._renew, min(REQUEST_SECONDS, self._held_until - began)):
                self._held_until, self._doubts_settled = began + RENEW_DEADLINE_SECONDS, doubts

    def turned(self) -> None:
        """Note that the loop that works under the Lease turns."""
        self._turned = self.clock.monotonic()

    def expect_held(self) -> None:
        """Refuse a write if another process may hold the Lease by now.

        A process that was paused resumes in the middle of a request, and sends it before `hold` runs again.
        """
        if self.clock.monotonic() >= self._held_until:
            raise Unavailable(f"not sent: Lease {self.namespace}/{self.name} was not renewed in time")
        if self._doubts_settled < self._doubts:
            raise Unavailable(f"not sent: Lease {self.namespace}/{self.name} must be renewed first")

    def doubt(self) -> None:
        """Block all writes until the next renewal: only a leader writes statuses, and somebody else wrote one.

        If it was a restored backup, or our own write whose answer was lost, that costs RETRY_SECONDS at most.
        """
        self._doubts += 1
        log.warning("A status was written by another process; renewing the Lease before any write")

    async def release(self) -> None:
        """Release the Lease, so that a successor need not wait; best effort."""
        self.metrics.leader.set(0)
        self._held_until = float("-inf")
        if self._lease is not None and await self._try(self._release, REQUEST_SECONDS):
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

    async def _release(self) -> bool:
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
        """Report whether the other holder has not renewed for as long as it promised to."""
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


class OwnThread:
    """An event loop on a thread of its own, within the context."""

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        # A daemon thread, so that a request that does not end cannot keep alive a process that has lost its Lease.
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, REQUEST_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stop.wait())

    async def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Run a step on the thread; a cancellation reaches it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step, self._loop))


@dataclass(frozen=True)
class ThreadedLease:
    """A Lease that is acquired, renewed and released on a thread of its own, where also its requests are made."""

    holder: LeaseHolder
    thread: OwnThread

    async def acquire(self) -> None:
        """See `LeaseHolder.acquire`."""
        await self.thread.run(self.holder.acquire())

    async def hold(self) -> NoReturn:
        """See `LeaseHolder.hold`; the loop of the caller is the one that works under the Lease."""
        self.holder.turned()
        renewing = asyncio.create_task(self.thread.run(self.holder.hold()))
        try:
            while not renewing.done():
                await asyncio.wait((renewing,), timeout=TURN_SECONDS)
                self.holder.turned()
        finally:
            renewing.cancel()
            # What is cancelled must not renew after `release`.
            await asyncio.wait((renewing,))
        await renewing
        raise AssertionError("a Lease is held until it is lost")

    async def release(self) -> None:
        """See `LeaseHolder.release`."""
        await self.thread.run(self.holder.release())
