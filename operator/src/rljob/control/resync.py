"""Compares the store with the API server every few minutes, because a watch can lose an event without noticing.

Each resync lists every watched kind, merges it into the store, counts what no watch had delivered, and queues every job
once, spread over half a minute. The same LIST discovers which kinds are served: 404 means that a CRD is not installed,
and 403 for an optional kind that this installation may not read it. `served_changed` signals changes to the watches.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NoReturn

from rljob.cluster.errors import Forbidden, NotFound, OutsideError
from rljob.cluster.kinds import WATCHED, Kind, Watch
from rljob.control.port_sweep import sweep
from rljob.control.queue import backoff_seconds
from rljob.control.reconciler import Reconciler
from rljob.core.jitter import fraction, jittered
from rljob.telemetry.log import Log

SETTLE_SECONDS = 10.0
"""Time for an event under way to arrive before its absence counts as drift."""
SPREAD_SECONDS = 30.0
FIRST_RETRY_SECONDS = 5.0
"""At the start, when nothing else runs before it succeeds."""
FAILURES_SKIPPED = 4
"""A retry lists everything and queues every job, so it begins with the fifth delay of a round's backoff: 8 s."""

log = Log(__name__)


@dataclass
class Resync:
    """The periodic LIST."""

    reconciler: Reconciler
    interval_seconds: float
    identity: str
    namespace: str | None = None
    settle_seconds: float = SETTLE_SECONDS
    served_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _last_success: float | None = None
    _runs: int = 0

    async def prime(self) -> None:
        """Fill the store for the first time, with retries: restarting the process would not end an outage sooner."""
        while True:
            try:
                await self.reconciler.prime(self.namespace)
            except OutsideError as error:
                if not error.transient:
                    raise
                log.warning("The first LIST failed", reason=error.reason, error=str(error))
                await asyncio.sleep(FIRST_RETRY_SECONDS)
            else:
                break
        self._report_served(self.reconciler.store.served)
        self._succeed()

    async def run(self) -> NoReturn:
        """Resync forever; sooner after a failure, with a growing delay after each further one in a row."""
        failures = 0
        while True:
            delay = self._jittered(self.interval_seconds)
            if failures:
                delay = min(delay, backoff_seconds(self.identity, FAILURES_SKIPPED + failures - 1))
            await asyncio.sleep(delay)
            failures = 0 if await self.once() else failures + 1

    async def once(self) -> bool:
        """Resync now; report whether every LIST was answered."""
        self._runs += 1
        store = self.reconciler.store
        answers = {watch.kind: await self._list(watch) for watch in WATCHED}
        silent = {kind for kind, answer in answers.items() if answer is None}
        # A kind that could not be listed keeps its state.
        self._update_served(frozenset(kind for kind, answer in answers.items() if answer) | (store.served & silent))
        # A kind of another operator, behind its webhook, must not delay what is ours.
        silent -= {watch.kind for watch in WATCHED if watch.addition}
        for key in store.job_keys():
            self.reconciler.queue.add_after(key, SPREAD_SECONDS * fraction(f"{key}"))
        self.reconciler.forget_gone()
        if not silent:
            # Only a complete store proves that a job is gone.
            await sweep(self.reconciler.cluster, store, self.reconciler.observer.requests.port_pool)
        if silent:
            return False
        await asyncio.sleep(self.settle_seconds)
        self._count_drift()
        self._succeed()
        return True

    def age_seconds(self) -> float | None:
        """Return the seconds since the last complete resync; None before the first."""
        return None if self._last_success is None else self.reconciler.clock.monotonic() - self._last_success

    async def _list(self, watch: Watch) -> bool | None:
        """Merge one kind: True if listed, False if it is not served, None without an answer."""
        try:
            listing = await self.reconciler.cluster.list(watch.kind, self.namespace, watch.label_selector)
        except NotFound:
            # Its stored objects stay: a server that starts may not know its CRDs yet, and runs must not be touched.
            return False
        except OutsideError as error:
            if watch.optional and isinstance(error, Forbidden):
                self.reconciler.store.forbidden |= {watch.kind}
                return False
            self.reconciler.metrics.resync_failures.labels(watch.kind.resource).inc()
            log.warning("Resync could not list a kind", kind=watch.kind.resource, reason=error.reason, error=str(error))
            return None
        self.reconciler.store.forbidden -= {watch.kind}
        self.reconciler.store.merge(watch.kind, listing)
        return True

    def _count_drift(self) -> None:
        for drift in self.reconciler.store.unconfirmed():
            self.reconciler.metrics.resync_drift.labels(drift.kind.resource, drift.drift).inc()
            log.warning("A watch lost a change", kind=drift.kind.resource, drift=drift.drift, job=drift.key)

    def _update_served(self, served: frozenset[Kind]) -> None:
        if served != self.reconciler.store.served:
            self.reconciler.store.served = served
            self._report_served(served)
            self.served_changed.set()

    def _report_served(self, served: frozenset[Kind]) -> None:
        for watch in WATCHED:
            self.reconciler.metrics.kind_served.labels(watch.kind.resource).set(watch.kind in served)
        log.info("Kinds served", kinds=sorted(kind.resource for kind in served))

    def _succeed(self) -> None:
        self._last_success = self.reconciler.clock.monotonic()
        self.reconciler.metrics.resync_last_success.set(self.reconciler.clock.now().timestamp())

    def _jittered(self, seconds: float) -> float:
        # From 90 to 110 %, so that the mean interval is the configured one.
        return jittered(0.9 * seconds, f"{self.identity}/{self._runs}", 0.2 / 0.9)
