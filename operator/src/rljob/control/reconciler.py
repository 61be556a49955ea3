"""One round of one job: observe, reconcile, execute.

In production `__main__` feeds it from watches and the workers of `worker.py` call `round`; tests drive the same object
with frozen time (`operator/tests/doubles`).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from rljob.cluster.errors import ClusterError, Forbidden, NotFound
from rljob.cluster.kinds import RAY_CLUSTER, RECIPES, RLJOB, WATCHED, Kind, Watch
from rljob.cluster.port import Cluster, RayApi
from rljob.control.admission_order import Line
from rljob.control.clock import Clock
from rljob.control.event_lists import EventLists
from rljob.control.execute import Executor, Hooks, StaleError
from rljob.control.head_poller import HeadPoller
from rljob.control.head_writes import HeadWrites
from rljob.control.job_memory import JobMemories
from rljob.control.large_jobs import LargeJobs
from rljob.control.memory_budget import MemoryBudget
from rljob.control.node_cache import NodeCache
from rljob.control.node_looks import NodeLooks
from rljob.control.observe import Observer, Pending
from rljob.control.pod_group_api import PodGroups
from rljob.control.pod_lists import PodLists
from rljob.control.pure_core import Core
from rljob.control.queue import KeyQueue, Lane
from rljob.control.requests import Requests
from rljob.control.store import Key, Store
from rljob.control.turns import Turns
from rljob.core.context import Context
from rljob.core.manifest_facts import is_finished, is_ours
from rljob.core.observed import PARTIAL_SECONDS
from rljob.core.plan import EventNote, EventType
from rljob.core.reasons import Reason
from rljob.core.scheduling.discovery import device_resources
from rljob.core.scheduling.node_faults import DEVICE_INFO_NAMESPACE, NODE_INFO_NAMESPACE, PUBLIC_FAULTS_NAMESPACE
from rljob.core.scheduling.port_blocks import PortPool
from rljob.render.labels import KUEUE_QUEUE, VOLCANO_QUEUE
from rljob.telemetry.events import EventRecorder
from rljob.telemetry.ledger import Ledger
from rljob.telemetry.log import Log
from rljob.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from rljob.api.lifecycle import Restart
    from rljob.cluster.token import TokenKey
    from rljob.core.derived import Derived
    from rljob.core.observed import Manifest, Observed
    from rljob.core.plan import Plan

ROUNDS_IN_A_ROW = 20
"""Twice what the core promises; a job that still writes is put on backoff instead of overloading the API server."""

TOLD_FROM = 200
"""A job with as many in line before it gets a status that says so, at one more write: it waits for ten seconds or more,
because 20 begin each second at the default rate of requests. So does one with more of its own namespace before it than
may begin now."""

log = Log(__name__)


class Result(enum.StrEnum):
    """The result of a round."""

    SETTLED = "settled"
    """Nothing to write."""
    WROTE = "wrote"
    STALE = "stale"
    """The world had changed since it was observed; this is normal."""
    GONE = "gone"
    """The job does not exist any more."""
    RESTING = "resting"
    """Delayed: the job did not settle for many rounds, and the events of its own writes must not bring it back; or it
    is large, and others of its namespace had their turn."""
    ASKED = "asked"
    """The job's head is being asked; its answer brings the job back."""
    LINED_UP = "lined_up"
    """A new job is valid and waits for its turn to begin."""


@dataclass
class Reconciler:
    """Everything between events and writes."""

    cluster: Cluster
    observer: Observer
    executor: Executor
    store: Store
    queue: KeyQueue[Key]
    memories: JobMemories
    core: Core
    clock: Clock
    metrics: Metrics
    ledger: Ledger
    line: Line
    turns: Turns
    large: LargeJobs
    _streaks: dict[Key, int] = field(default_factory=dict)
    """Rounds in a row that did not settle."""
    _resting_until: dict[Key, float] = field(default_factory=dict)

    @classmethod
    def build(  # noqa: PLR0913 - everything that is wired, by name
        cls,
        cluster: Cluster,
        ray: RayApi,
        clock: Clock,
        key: TokenKey,
        *,
        core: Core,
        metrics: Metrics | None = None,
        identity: str = "rljob-operator",
        hooks: Hooks | None = None,
        port_pool: PortPool | None = None,
        device_info_namespace: str = DEVICE_INFO_NAMESPACE,
        node_info_namespace: str = NODE_INFO_NAMESPACE,
        public_faults_namespace: str = PUBLIC_FAULTS_NAMESPACE,
        partial_seconds: float = PARTIAL_SECONDS,
        closed_namespaces: frozenset[str] = frozenset(),
        workers: int = 16,
        budget: MemoryBudget | None = None,
    ) -> Reconciler:
        """Create all parts around a cluster and its heads."""
        metrics = metrics or Metrics()
        # A quarter is left for jobs that may have NPUs.
        hands = dict.fromkeys((Lane.NEW, Lane.TO_BEGIN), max(1, 3 * workers // 8))
        store = Store(lambda key: queue.add(key), budget)  # noqa: PLW0108 - the queue is created after it
        memories = JobMemories()
        line = Line(store, memories, clock)
        queue: KeyQueue[Key] = KeyQueue(
            clock.monotonic, metrics, line.lane_of, hands, attrgetter("namespace"), line.may_take
        )
        for watch in WATCHED:
            metrics.store_objects.labels(watch.kind.resource).set_function(partial(store.count, watch.kind))
        recorder = EventRecorder(cluster, clock.now, clock.monotonic, identity, metrics)
        writes = HeadWrites.of_workers(workers)
        executor = Executor(cluster, ray, store, memories, recorder, key, metrics, hooks or Hooks(), writes)
        requests = Requests(
            cluster,
            ray,
            store,
            core,
            memories,
            PodLists.bounded(clock.monotonic),
            EventLists(cluster, clock.monotonic),
            NodeCache(cluster, clock.monotonic, core.accelerators),
            NodeLooks(
                cluster,
                clock.monotonic,
                device_info_namespace,
                node_info_namespace,
                public_faults_namespace,
                device_resources(core.accelerators),
            ),
            PodGroups(cluster, store, clock.monotonic),
            port_pool or PortPool(),
        )
        heads = HeadPoller(lambda question: requests.head(question, clock.now), queue.add, clock.monotonic)
        observer = Observer(store, core, requests, memories, heads, partial_seconds, closed_namespaces)
        made = cls(
            cluster,
            observer,
            executor,
            store,
            queue,
            memories,
            core,
            clock,
            metrics,
            Ledger(metrics),
            line,
            Turns(clock.monotonic),
            LargeJobs(clock.monotonic, store.budget),
        )
        metrics.before_exposition = made.account
        return made

    def feed(self, event: str, kind: Kind, manifest: Manifest) -> None:
        """Store the object of a watch event, and queue its job."""
        self.metrics.watch_events.labels(kind.resource, event.lower()).inc()
        self.metrics.watch_last_event.labels(kind.resource).set(self.clock.now().timestamp())
        if event == "DELETED":
            self.store.remove(kind, manifest)
        else:
            self.store.put(kind, manifest)

    async def prime(self, namespace: str | None = None) -> None:
        """Fill the store from LISTs before any watch starts."""
        served, forbidden = set(), set()
        recipes = tuple(watch for watch in WATCHED if watch.kind in RECIPES.values())
        # Recipes first: a new job looks up its recipes, and a new recipe would have to look up every job.
        for watches in (recipes, tuple(watch for watch in WATCHED if watch not in recipes)):
            async with asyncio.TaskGroup() as group:
                asked = [(watch, group.create_task(self._merge_listed(watch, namespace))) for watch in watches]
            for watch, answer in asked:
                match answer.result():
                    case None:
                        served.add(watch.kind)
                    case NotFound():
                        write = log.info if watch.addition else log.warning
                        write("Kind is not served; is its CRD installed?", kind=watch.kind.resource)
                    case Forbidden() if watch.optional:
                        forbidden.add(watch.kind)
                        log.warning("Kind may not be read; jobs that need it report it", kind=watch.kind.resource)
                    case error if not watch.addition:
                        raise error
                    case error:
                        # Its conversion webhook may be down: training must not wait for another operator.
                        kind = watch.kind.resource
                        log.warning("Kind could not be listed; starting without it", kind=kind, error=str(error))
        # What the first LIST brings was not lost by a watch.
        self.store.unconfirmed()
        self.store.served, self.store.forbidden = frozenset(served), frozenset(forbidden)

    async def _merge_listed(self, watch: Watch, namespace: str | None) -> ClusterError | None:
        """Store one kind as soon as it is listed; return the error if that failed."""
        try:
            listing = await self.cluster.list(watch.kind, namespace, watch.label_selector)
        except ClusterError as error:
            return error
        self.store.merge(watch.kind, listing)
        return None

    async def round(self, key: Key) -> Result:
        """Run one round and queue the next one, if there is one. Errors of requests are raised."""
        rest = self._resting_until.get(key, 0.0) - self.clock.monotonic()
        if rest > 0:
            self.queue.add_after(key, rest)
            return Result.RESTING
        job = self.store.job(key)
        if job is None:
            return await self._turn(key)
        if (wait := self.large.claim(job)) > 0:
            self.queue.add_after(key, wait)
            return Result.RESTING
        try:
            return await self._turn(key)
        finally:
            self.large.release(job)

    async def _turn(self, key: Key) -> Result:
        # Nothing else yields to the event loop: a thousand looks in a row would delay all answers and events.
        await self.turns.give_way()
        if await self._lines_up(key):
            self.metrics.reconciles.labels(Result.LINED_UP).inc()
            self.queue.add(key)
            return Result.LINED_UP
        result, after = await self._round(key)
        self.metrics.reconciles.labels(result).inc()
        if result is Result.ASKED:
            # Neither progress nor a failure: streaks and backoff stay as they are.
            return result
        if result in (Result.SETTLED, Result.GONE) or after is not None:
            self._streaks.pop(key, None)
            self._resting_until.pop(key, None)
            self.queue.forget(key)
            if after is not None:
                self.queue.add_after(key, after)
            return result
        self._streaks[key] = self._streaks.get(key, 0) + 1
        if self._streaks[key] % ROUNDS_IN_A_ROW == 0:
            seconds = self.queue.add_failed(key)
            self._resting_until[key] = self.clock.monotonic() + seconds
            log.warning("Job does not settle", job=key, rounds=self._streaks[key], seconds=seconds)
        else:
            self.queue.add(key)
        return result

    async def _lines_up(self, key: Key) -> bool:
        """Look at a new job; report whether it has to wait for its turn. Any other is answered at once."""
        job = self.store.job(key)
        if job is None or self.line.lane_of(key) is not Lane.NEW:
            return False
        observed = self.observer.glance(job)
        derived = self.memories.of(job).derived(observed)
        join = self.line.place_of(job)
        known = observed, self.clock.now(), self.core.launcher, self.core.accelerators, derived
        parts = self.core.begins(*known)
        begins = await (self.large.take(job, parts) if self.large.includes(job) else self.turns.take(parts))
        own = self.queue.waiting_in(Lane.TO_BEGIN, key.namespace)
        waits = own >= self.line.room_for(key.namespace) or self.queue.waiting_in(Lane.TO_BEGIN) >= TOLD_FROM
        plan = self.core.await_turn(*known) if begins and waits else None
        self.memories.of(job).rest(observed)
        if begins:
            join()
        if plan is not None:
            # Otherwise a thousand jobs that are created at once say nothing for a minute.
            with contextlib.suppress(StaleError):
                await self.executor.execute(observed, plan)
        return begins

    async def warn(self, key: Key, message: str) -> None:
        """Report to the owner of a job that its reconcile fails."""
        job = self.store.job(key)
        if job is not None:
            await self.executor.recorder.record(job, EventNote(EventType.WARNING, Reason.RECONCILE_ERROR, message))

    def account(self) -> None:
        """Update the metrics of all jobs."""
        jobs = (job for key in self.store.job_keys() if (job := self.store.job(key)) is not None and is_ours(job))
        self.ledger.refresh(((job, self._queue_of(job)) for job in jobs), self.clock.now())

    def _queue_of(self, job: Manifest) -> str | None:
        """Return the queue of the job's clusters; None if it is unknown.

        A recipe may name the queue; then only a cluster shows it.
        """
        metadata = job["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        for cluster in self.store.children(RAY_CLUSTER, key, metadata["uid"]):
            marks = cluster["metadata"]["labels"]
            return str(marks.get(KUEUE_QUEUE) or marks.get(VOLCANO_QUEUE, ""))
        named = ((job.get("spec") or {}).get("scheduling") or {}).get("queueName")
        return str(named) if named else None

    def forget_gone(self) -> None:
        """Forget the jobs that are gone."""
        uids = self.store.uids(RLJOB)
        self.memories.keep_only(uids)
        self.ledger.keep_only(uids)
        self.observer.heads.keep_only(set(self.store.job_keys()))

    def _note(self, job: Manifest, restart: Restart | None = None) -> None:
        if is_ours(job):
            self.ledger.note(job, self._queue_of(job), self.clock.now(), restart)

    def _decide(self, observed: Observed, derived: Derived) -> tuple[Plan, Restart | None]:
        """Return the next step, and the restart policy for the metrics; a finished job needs none."""
        known = observed, self.clock.now(), self.core.launcher, self.core.accelerators, derived
        plan = self.core.reconcile(*known)
        counts = is_ours(observed.job) and not is_finished(observed.job)
        return plan, Context.of(*known).restart if counts else None

    async def _round(self, key: Key) -> tuple[Result, float | None]:
        observed = await self.observer.observe(key, self.clock.now())
        if observed is None:
            return Result.GONE, None
        if isinstance(observed, Pending):
            return Result.ASKED, None
        memory = self.memories.of(observed.job)
        plan, restart = await self.large.run(observed.job, partial(self._decide, observed, memory.derived(observed)))
        self._note(observed.job, restart)
        memory.rest(observed)
        try:
            wrote = await self.executor.execute(observed, plan)
        except StaleError as error:
            log.info("The world changed during the round; running it again", job=key, why=str(error))
            return Result.STALE, None
        if wrote and plan.status is not None and (job := self.store.job(key)) is not None:
            # The job may be gone before the next scrape.
            self._note(job)
        if wrote:
            return Result.WROTE, plan.requeue_after_seconds if plan.rests else None
        return Result.SETTLED, plan.requeue_after_seconds
