"""The operators of a simulated world: started with empty memory, run round by round, stopped at any write, or frozen.

One leads at a time. A frozen operator is in the middle of a write; its successor takes over, and when it resumes, it
continues with its old memory, like a process whose node was paused. `request_faults` decide the result of requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from builders import Json
from doubles.clock import FrozenClock
from doubles.fake import Call, Failure, FakeCluster
from doubles.fake_ray import FakeRay
from property.chaos import STATISTICS
from property.watch import Watch

from rljob.cluster.errors import HeadUnreachable, OutsideError, RateLimited, Unavailable
from rljob.cluster.kinds import CONFIG_MAP, EVENT
from rljob.cluster.token import TokenKey
from rljob.control.execute import Hooks
from rljob.control.lease import RETRY_SECONDS
from rljob.control.pure_core import Core
from rljob.control.reconciler import Reconciler, Result
from rljob.control.resync import Resync
from rljob.control.store import Key
from rljob.core.context import Context
from rljob.core.derived import Derived
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Observed
from rljob.core.plan import Plan
from rljob.core.reconcile import STEPS
from rljob.core.watched import Watched
from rljob.launchers import LAUNCHER
from rljob.render import labels
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN
from rljob.render.configmap import SPEC_KEY
from rljob.render.metadata import canonical_json

if TYPE_CHECKING:
    from rljob.core.observed import RayJob
    from rljob.core.plan import StopRun, SubmitJob
    from rljob.core.requirements import Head
    from rljob_runtime.contract import Progress

PROMISED_ROUNDS = 10
RESYNC_SECONDS = 300.0
START_AGAIN_SECONDS = 10.0
"""The kubelet's first delay before it restarts a container."""
ROUNDS_OF_AN_EX_LEADER = 5
"""More rounds than it gets before it renews its Lease: a clock that was paused with it lets it write for that long."""


def reconcile_as_declared(
    observed: Observed, now: datetime, launcher: LauncherOf, accelerators: AcceleratorTable, derived: Derived
) -> Plan:
    """Reconcile, and check that a step decides if its requirements say that it does in any case."""
    context = Context.of(observed, now, launcher, accelerators, derived)
    seen = Watched(observed.job, observed.clusters, observed.head_pod, now)
    for step in STEPS:
        if (plan := step(context)) is not None:
            return plan
        assert not step.requires(seen).stops_here, f"{step.decide} does not decide"
    raise AssertionError("the last step always decides")


class CrashError(Exception):
    """The operator's process ends here."""


@dataclass(frozen=True)
class Request:
    """One request of an operator."""

    number: int
    """Number of the write, counted from 1, except Kubernetes events; 0 for everything else."""
    word: str
    to_head: bool = False

    @property
    def writes(self) -> bool:
        """Return whether it is one of the counted writes."""
        return self.number > 0


@dataclass(frozen=True)
class _Sleeper:
    """An operator that is frozen in the middle of a write."""

    operator: Reconciler
    work: asyncio.Task[Result]
    key: Key
    thawed: asyncio.Event


RequestFault = Callable[[Request], Failure | None]


class Operators:
    """The operators and the faults that affect them."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.cluster = FakeCluster(self.clock.now)
        self.cluster.gate = self._gate
        self.cluster.faults.append(self._fault)
        self.ray = _Ray(self)
        self.watch = Watch(self.cluster)
        self.loop = asyncio.Runner()
        self.request_faults: list[RequestFault] = []
        self.words: list[str] = []
        """What operators wrote, in order."""
        self.tried = 0
        """Writes that they attempted."""
        self.stops: Callable[[int], bool] = lambda _: False
        """Writes, counted from 1, after which the operator's process ends."""
        self.crashes: list[str] = []
        """The writes after which it ended."""
        self.away_until = 0.0
        """No operator is started before this time."""
        self.outage_until = 0.0
        """The API server answers nothing until this time."""
        self.heads_silent_until = 0.0
        self.freezes_at: int | None = None
        """The write before which it freezes."""
        self.ex_leader: _Sleeper | None = None
        self.ex_leader_is_awake = False
        self._ex_leader_doubts = False
        self._doubts_until = 0.0
        """Time at which the leader has renewed its Lease and writes again."""
        self.ex_leader_sleeps = 0
        """Number of acts of a scenario for which it sleeps; 0: until its successor rests."""
        self.wiped = False
        """Whether the status was lost once."""
        self.retry_pending = False
        """Whether the last round failed and the next one has not run yet."""
        self.operator: Reconciler | None = None
        self._resynced = 0.0
        self._request = Request(0, "")
        self._stale = 0
        """Rounds that found a changed world; they are not a fault of the core, and the reconciler bounds them."""
        self._frozen, self._thawed = asyncio.Event(), asyncio.Event()
        self._renderer = labels.RENDERER_VERSION

    def accepted(self, submitted: SubmitJob) -> None:
        """Record that a head has accepted a new submission."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the event loop, and undo the upgrade."""
        self.loop.close()
        labels.RENDERER_VERSION = self._renderer

    # One life of an operator.

    def start_operator(self) -> Reconciler | None:
        """Start an operator with empty memory; return None if it exits because the API server does not answer."""
        key = TokenKey(b"k" * 32)
        hooks = Hooks(after_write=self._after_write, doubt=self._doubt)
        core = Core(LAUNCHER, BUILT_IN, reconcile=reconcile_as_declared)
        operator = Reconciler.build(self.cluster, self.ray, self.clock, key, core=core, hooks=hooks)
        self.watch.follow(None)
        try:
            self.loop.run(operator.prime())
        except OutsideError:
            return None
        self.watch.follow(operator.feed)
        self.operator, self._resynced = operator, self.clock.monotonic()
        return operator

    def stop_operator(self) -> None:
        """Stop the operator and drop its memory."""
        STATISTICS["operator stops"] += 1
        self.operator = None
        self.watch.follow(None)

    def begin_outage(self, seconds: float) -> None:
        """Make the API server unreachable for a while, and cut the watches."""
        self.outage_until = self.clock.monotonic() + seconds
        self.watch.cut()

    def upgrade(self) -> None:
        """Replace the operator by a version with another renderer."""
        self.stop_operator()
        labels.RENDERER_VERSION = "later"

    def downgrade(self) -> None:
        """Restore the previous version, which knows fewer fields than the one in between."""
        self.stop_operator()
        labels.RENDERER_VERSION = self._renderer
        for found in self.cluster.objects(CONFIG_MAP):
            if SPEC_KEY in found["data"]:
                name = found["metadata"]["name"]
                self.cluster.edit(CONFIG_MAP, found["metadata"]["namespace"], name, _foresee)

    def settle(self, limit: int = PROMISED_ROUNDS + 2) -> None:
        """Run the operator until it rests; restart it after a crash."""
        rounds, self._stale = 0, 0
        first = len(self.words)
        while self.clock.monotonic() >= self.away_until:
            operator = self.operator or self.start_operator()
            if operator is None:
                self.retry_pending = True
                self.away_until = self.clock.monotonic() + START_AGAIN_SECONDS
                return
            try:
                while (key := self._next(operator)) is not None:
                    if not self._round(operator, key):
                        break
                    rounds += 1
                    # An attempt that ends and one that starts at the same time need a round each.
                    ends = "delete RayCluster" in self.words[first:]
                    assert rounds <= limit * (1 + ends) + self._stale, f"does not rest: {self.words[first:]}"
                else:
                    # Without a job, no round shows that everything works again.
                    self.retry_pending = self.retry_pending and operator.queue.next_due_seconds() is not None
                    return
            except CrashError:
                self.stop_operator()
            limit += PROMISED_ROUNDS + 2

    def resync(self) -> None:
        """Compare the store with the API server, if it is due."""
        if self.operator is not None and self.clock.monotonic() >= self._resynced + RESYNC_SECONDS:
            self._resynced = self.clock.monotonic()
            self.loop.run(Resync(self.operator, RESYNC_SECONDS, "me", settle_seconds=0).once())

    def pass_time(self) -> None:
        """Advance time until the operator or its world has something to do."""
        now = self.clock.monotonic()
        dues = [self._resynced + RESYNC_SECONDS, self.away_until, self.outage_until]
        if self.operator is not None and (due := self.operator.queue.next_due_seconds()) is not None:
            dues.append(now + due)
        self.clock.advance(max(min((due - now for due in dues if due > now), default=1.0), 1.0))
        if self.watch.is_cut and self.clock.monotonic() >= self.outage_until:
            self.watch.reconnect()
        self.resync()

    def _next(self, operator: Reconciler) -> Key | None:
        self.watch.pump()
        key = operator.queue.get_nowait()
        if key is None and self.loop.run(operator.observer.heads.settle()):
            key = operator.queue.get_nowait()
        return operator.queue.get_nowait() if key is None and self.watch.catch_up() else key

    def _round(self, operator: Reconciler, key: Key) -> bool:
        """Run one round; return False if the operator froze in it and no longer leads."""
        try:
            if (result := self.loop.run(self._work(operator, key))) is None:
                return False
        except OutsideError as error:
            self.retry_pending = True
            pause = error.retry_after_seconds if isinstance(error, RateLimited) else 0.0
            operator.queue.add_failed(key, pause)
        else:
            self.retry_pending = False
            self._stale += result in (Result.STALE, Result.ASKED)
        operator.queue.done(key)
        return True

    async def _work(self, operator: Reconciler, key: Key) -> Result | None:
        if self.freezes_at is None:
            return await operator.round(key)
        self._frozen, self._thawed = asyncio.Event(), asyncio.Event()
        work, frozen = asyncio.ensure_future(operator.round(key)), asyncio.ensure_future(self._frozen.wait())
        await asyncio.wait((work, frozen), return_when=asyncio.FIRST_COMPLETED)
        if not self._frozen.is_set():
            frozen.cancel()
            return await work
        STATISTICS["frozen leaders"] += 1
        self.ex_leader = _Sleeper(operator, work, key, self._thawed)
        self.freezes_at = self.operator = None
        self.watch.follow(None)
        return None

    def wake_ex_leader(self) -> None:
        """Let the frozen operator continue with its pending write and its old memory."""
        if self.ex_leader is None:
            return
        sleeper, self.ex_leader, self.ex_leader_is_awake = self.ex_leader, None, True
        self._ex_leader_doubts = False
        self.loop.run(self._go_on(sleeper))
        self.ex_leader_is_awake = False

    async def _go_on(self, sleeper: _Sleeper) -> None:
        sleeper.thawed.set()
        work = sleeper.work
        for _ in range(1 + ROUNDS_OF_AN_EX_LEADER):
            try:
                await work
            except OutsideError:
                STATISTICS["requests of an ex-leader that were refused"] += 1
            except CrashError:
                return
            await sleeper.operator.observer.heads.settle()
            work = asyncio.ensure_future(sleeper.operator.round(sleeper.key))
        work.cancel()

    # Results of its requests.

    async def begin_write(self, word: str, *, to_head: bool) -> Request:
        """Count a write that is about to be sent.

        The operator may freeze here, or withhold the write as `LeaseHolder` does.
        """
        if self._ex_leader_doubts if self.ex_leader_is_awake else self.clock.monotonic() < self._doubts_until:
            raise Unavailable("not sent: the Lease is to be renewed first")
        self.tried += 1
        request = Request(self.tried, word, to_head)
        if self.tried == self.freezes_at:
            thawed = self._thawed
            self._frozen.set()
            await thawed.wait()
        return request

    def _doubt(self) -> None:
        STATISTICS["doubts"] += 1
        if self.ex_leader_is_awake:
            # It never renews a Lease of another holder.
            self._ex_leader_doubts = True
        else:
            self._doubts_until = self.clock.monotonic() + RETRY_SECONDS

    async def _gate(self, call: Call) -> None:
        await asyncio.sleep(0)
        if call.is_write and call.kind != EVENT:
            self._request = await self.begin_write(f"{call.verb} {call.kind.kind}", to_head=False)
        else:
            self._request = Request(0, f"{call.verb} {call.kind.kind}")

    def _fault(self, _: Call) -> Failure | None:
        return self.failure_of(self._request)

    def failure_of(self, request: Request) -> Failure | None:
        """Return the failure of the first fault that affects a request."""
        failure = next((failure for fault in self.request_faults if (failure := fault(request)) is not None), None)
        if self.clock.monotonic() < (self.heads_silent_until if request.to_head else self.outage_until):
            failure = Failure(Unavailable("down"))
        if failure is not None:
            kind = "HeadUnreachable" if request.to_head else failure.error.reason
            STATISTICS[f"fault {kind}{' after the commit' if failure.committed else ''}"] += 1
        return failure

    def _after_write(self, word: str) -> None:
        STATISTICS["writes"] += 1
        self.words.append(word)
        if self.stops(len(self.words)):
            self.crashes.append(word)
            raise CrashError(word)


class _Ray(FakeRay):
    """The heads, whose exporter and job API can be silent separately, with the same faults as the API server."""

    def __init__(self, operators: Operators) -> None:
        super().__init__()
        self._operators = operators
        self.exporter_silent = False
        self.api_silent = False

    async def progress(self, head: Head) -> Progress:
        """Answer, unless the exporter is silent."""
        self._read("progress", silent=self.exporter_silent)
        return await super().progress(head)

    async def job(self, head: Head, submission_id: str) -> RayJob | None:
        """Answer, unless the job API is silent."""
        self._read("job", silent=self.api_silent)
        return await super().job(head, submission_id)

    async def submit(self, job: SubmitJob) -> None:
        """Accept a job, and check it if it is new."""
        failure = await self._write("submit", silent=self.api_silent)
        before = len(self.submissions)
        await super().submit(job)
        if len(self.submissions) > before:
            self._operators.accepted(job)
        _lose_answer(failure)

    async def stop(self, run: StopRun) -> None:
        """Accept a stop request."""
        failure = await self._write("stop", silent=self.exporter_silent)
        await super().stop(run)
        _lose_answer(failure)

    def _read(self, word: str, *, silent: bool) -> None:
        if silent or self._operators.failure_of(Request(0, word, to_head=True)) is not None:
            raise HeadUnreachable(f"{word}: no answer")

    async def _write(self, word: str, *, silent: bool) -> Failure | None:
        failure = self._operators.failure_of(await self._operators.begin_write(word, to_head=True))
        if silent or (failure is not None and not failure.committed):
            raise HeadUnreachable(f"{word}: no answer")
        return failure


def _foresee(found: Json) -> None:
    """Write a field into the frozen spec that only a later version knows."""
    found["data"][SPEC_KEY] = canonical_json(json.loads(found["data"][SPEC_KEY]) | {"moonlight": {"phase": "full"}})


def _lose_answer(failure: Failure | None) -> None:
    if failure is not None:
        raise HeadUnreachable("the answer was lost")
