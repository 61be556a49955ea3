"""One run: a control plane and the jobs of one side; measures their cost until ready, in steady state, and after.

The two sides differ in what is created and how far it can progress. An RLJob is submitted and trains, and its operator
polls its head. A RayJob in InteractiveMode stops at `Waiting`: its cluster is ready, and KubeRay only waits for a
user's submission and polls no head.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field

import aiohttp

from rljob.cluster.token import TokenKey
from tests.scale import objects
from tests.scale.client import Client, Manifest
from tests.scale.figures import Traffic, Usage, buckets, quantile, series, total, traffic, usage
from tests.scale.heads import Heads
from tests.scale.plane import KUBERAY, OPERATOR, Plane, control_plane, install
from tests.scale.settings import Settings

QUEUES = {
    OPERATOR: ("rljob_operator_queue_duration_seconds",),
    # A metric of client-go, with buckets of a factor of ten.
    KUBERAY: ("workqueue_queue_duration_seconds", 'name="rayjob"'),
}
"""Metric and label selection: how long any job waits for a worker of its own controller."""
BEGUN, NEW, TO_BEGIN = 'lane="begun"', 'lane="new"', 'lane="to_begin"'
LANES = (BEGUN, NEW), (BEGUN,), (NEW,), (TO_BEGIN,)
"""Our operator distinguishes the wait of started or new jobs for reconciliation from that of new ones to start."""
KUBERAY_DEPTH = "workqueue_depth"
"""A metric of controller-runtime, one queue per controller: objects that wait for a worker now."""
LOOK_SECONDS = 0.5
OURSELVES = "heads"
"""This process, which serves the virtual heads and observes the jobs."""
REPORT_SECONDS = 30.0
"""Interval of the progress output."""
SETTLE_SECONDS = 30.0
"""Time from the last ready job with KubeRay's queues idle to the steady state."""
QUIET_LOOKS = 5
QUIET_LOOK_SECONDS = 2.0
"""KubeRay's queues are idle when they were empty in this many consecutive checks. On a slow machine KubeRay processes
the backlog of the start for minutes after the last job is ready and uses a core for that."""
STATUS_LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of waiting times in seconds; None if nothing waited."""

    p50: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, first: str, last: str, *metric: str, some: tuple[str, ...] = ("",)) -> Quantiles:
        """Compute them from the difference of two metrics pages, over label sets that contain one of these texts."""
        later, earlier = buckets(last, *metric, some=some), buckets(first, *metric, some=some)
        return cls(quantile(0.5, later, earlier), quantile(0.99, later, earlier))


NOTHING = Quantiles()


@dataclass(frozen=True)
class Span:
    """Measurements between two times."""

    seconds: float
    cpu_seconds: dict[str, float]
    """By process."""
    traffic: Traffic
    queue: Quantiles = NOTHING
    """How long a job waited for a worker of its own controller; for ours, to start or to be reconciled."""
    looked_at: Quantiles = NOTHING
    """How long our jobs waited to be reconciled, when created and later."""
    begun: Quantiles = NOTHING
    """The same for started jobs."""
    came: Quantiles = NOTHING
    """The same for new jobs."""
    to_begin: Quantiles = NOTHING
    """How long new jobs waited for their turn to start."""

    def cores(self, process: str) -> float:
        """Return the mean CPU use."""
        return self.cpu_seconds[process] / self.seconds

    def queries_per_second(self, user: str) -> float:
        """Return the mean rate of requests."""
        return len(self.traffic.of(user)) / self.seconds


@dataclass(frozen=True)
class Restart:
    """Our operator was stopped and started again under running jobs."""

    exit_code: int
    ready_seconds: float
    polled_seconds: float
    """Time from the start until every head was polled again."""
    writes: dict[str, int]
    """Writes except those to its own Lease."""


@dataclass
class Outcome:
    """Results of one side."""

    settings: Settings
    controller: str
    """The process that controls this kind of job."""
    seconds_to_ready: list[float] = field(default_factory=list)
    """Since the first creation, in the order in which jobs became ready."""
    seconds_to_create: float = 0.0
    """Time until the last job was created."""
    seconds_to_word: list[float] = field(default_factory=list)
    """Time from a job's POST to its first status, in ascending order."""
    seconds_to_training: list[float] = field(default_factory=list)
    start: Span | None = None
    until_ready: Traffic = field(default_factory=lambda: Traffic(()))
    """Requests of each job's own controller about the job until it was ready."""
    steady: Span | None = None
    usage: dict[str, Usage] = field(default_factory=dict)
    series: int = 0
    """Number of series on the controller's metrics page, with all jobs present."""
    restart: Restart | None = None
    clusters: int = 0
    submissions: list[int] = field(default_factory=list)
    refused: int = 0


@dataclass(frozen=True)
class Mark:
    """A time, and the resource use so far."""

    monotonic: float
    time: float
    usage: dict[str, Usage]
    page: str


class Side:
    """A control plane with KubeRay, and for our side with our operator."""

    def __init__(self, plane: Plane, client: Client, settings: Settings) -> None:
        self.plane, self.client, self.settings = plane, client, settings

    async def mark(self) -> Mark:
        """Return the measurements at this time."""
        page = await self.page(self.controller)
        return Mark(time.monotonic(), time.time(), self.usage(), page)

    def usage(self) -> dict[str, Usage]:
        """Return the resource use of every process so far, including this one with the virtual heads."""
        pids = {name: process.pid for name, process in self.plane.processes.items()} | {OURSELVES: os.getpid()}
        return {name: usage(pid) for name, pid in pids.items()}

    @property
    def controller(self) -> str:
        """The process that controls this side's kind of job."""
        return OPERATOR if OPERATOR in self.plane.processes else KUBERAY

    async def page(self, process: str) -> str:
        """Return an operator's metrics page."""
        url = f"http://127.0.0.1:{self.plane.metrics_ports[process]}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()

    async def traffic(self, start: float, end: float) -> Traffic:
        """Return the requests of both operators in a time span."""
        # In a thread, because reading a long log takes longer than a head may take to respond.
        return (await asyncio.to_thread(traffic, self.plane.audit_log)).between(start, end)

    async def span(self, first: Mark, last: Mark) -> Span:
        """Return the difference between two marks."""
        cpu = {name: last.usage[name].cpu_seconds - first.usage[name].cpu_seconds for name in last.usage}
        metric = QUEUES[self.controller]
        lanes = [Quantiles.of(first.page, last.page, *metric, some=some) for some in LANES]
        return Span(
            last.monotonic - first.monotonic,
            cpu,
            await self.traffic(first.time, last.time),
            Quantiles.of(first.page, last.page, *metric),
            *lanes,
        )

    async def steady(self, say: Callable[[str], None]) -> Span:
        """Measure the steady state."""
        say(f"KubeRay's queues at rest after {await self._rest():.0f} s more")
        await asyncio.sleep(min(SETTLE_SECONDS, self.settings.steady_seconds))
        first = await self.mark()
        await asyncio.sleep(self.settings.steady_seconds)
        return await self.span(first, await self.mark())

    async def _rest(self) -> float:
        """Wait until KubeRay's queues are idle; return the seconds."""
        began, quiet = time.monotonic(), 0
        async with asyncio.timeout(self.settings.patience_seconds):
            while quiet < QUIET_LOOKS:
                quiet = quiet + 1 if total(await self.page(KUBERAY), KUBERAY_DEPTH) == 0 else 0
                await asyncio.sleep(QUIET_LOOK_SECONDS)
        return time.monotonic() - began

    async def until(self, what: str, check: Callable[[], bool]) -> None:
        """Wait until the check passes, with a deadline."""
        deadline = time.monotonic() + self.settings.patience_seconds
        while not check():
            for name, process in self.plane.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode} while waiting: {what}"
            assert time.monotonic() < deadline, f"not within {self.settings.patience_seconds} s: {what}"
            await asyncio.sleep(LOOK_SECONDS)


async def run_rljobs(settings: Settings, say: Callable[[str], None]) -> Outcome:
    """Run our side."""
    async with opened(settings) as side:
        heads = Heads(TokenKey.from_file(side.plane.token_key), settings.step_seconds)
        async with background(heads.serve(side.client, objects.NAMESPACE)):
            await side.plane.start_operator()
            outcome = await _until_ready(side, objects.RLJOBS, list(objects.rljobs(settings)), _rljob_stage, say)
            outcome.steady = await side.steady(say)
            at_rest = await side.mark()
            outcome.usage, outcome.series = at_rest.usage, series(at_rest.page)
            say(f"steady for {settings.steady_seconds} s")
            outcome.restart = await _restart(side, heads)
            say(f"restarted, ready after {outcome.restart.ready_seconds:.1f} s")
            outcome.clusters = len((await side.client.list(objects.RAYCLUSTERS))[0])
            outcome.submissions, outcome.refused = heads.submissions(), heads.refused
            return outcome


async def run_rayjobs(settings: Settings, say: Callable[[str], None]) -> Outcome:
    """Run KubeRay's side."""
    async with opened(settings) as side:
        outcome = await _until_ready(side, objects.RAYJOBS, list(objects.rayjobs(settings)), _rayjob_stage, say)
        outcome.steady = await side.steady(say)
        at_rest = await side.mark()
        outcome.usage, outcome.series = at_rest.usage, series(at_rest.page)
        say(f"steady for {settings.steady_seconds} s")
        outcome.clusters = len((await side.client.list(objects.RAYCLUSTERS))[0])
        return outcome


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Side]:
    """Start a control plane with nodes and KubeRay."""
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        await client.create_all("/api/v1/nodes", objects.nodes(settings))
        await plane.start_kuberay()
        yield Side(plane, client, settings)


@contextlib.asynccontextmanager
async def background(work: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """Run a coroutine concurrently with the block."""
    task = asyncio.create_task(work)
    try:
        yield
        # Its failure would have appeared as a head that does not respond.
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


Stage = tuple[bool, bool, bool]
"""Whether a job has a status, whether its cluster is ready, and whether it runs."""


async def _until_ready(
    side: Side, path: str, jobs: list[Manifest], stage: Callable[[Manifest], Stage], say: Callable[[str], None]
) -> Outcome:
    """Create the jobs and wait until each has progressed as far as it can."""
    outcome = Outcome(side.settings, side.controller)
    ready: dict[str, float] = {}
    ready_times: dict[str, float] = {}
    running: dict[str, float] = {}
    made: dict[str, float] = {}
    words: dict[str, float] = {}
    failed: list[str] = []

    async def follow() -> None:
        async for _, job in side.client.watch(path):
            name = job["metadata"]["name"]
            has_word, is_ready, runs = stage(job)
            if has_word:
                words.setdefault(name, time.monotonic() - made[name])
            if (job.get("status") or {}).get("state") == "Failed":
                failed.append(f"{name}: {job['status'].get('message')}")
            if is_ready:
                ready.setdefault(name, time.monotonic())
                ready_times.setdefault(name, time.time())
            if runs:
                running.setdefault(name, time.monotonic())

    def are_all(found: dict[str, float]) -> bool:
        # A failed job makes no further progress, and the wait would be long.
        assert not failed, f"{len(failed)} failed, first {failed[0]}"
        return len(found) == len(jobs)

    async def report_progress() -> None:
        before = side.usage()
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            now = side.usage()
            cores = {name: (now[name].cpu_seconds - before[name].cpu_seconds) / REPORT_SECONDS for name in now}
            before = now
            busy = ", ".join(f"{name} {used:.2f}" for name, used in sorted(cores.items(), key=lambda item: -item[1]))
            say(f"{len(ready)} of {len(jobs)} ready, {len(running)} as far as they can come; cores: {busy}")

    async with background(follow()), background(report_progress()):
        first = await side.mark()
        await _create(side, path, _noting(jobs, made))
        outcome.seconds_to_create = time.monotonic() - first.monotonic
        say(f"{len(jobs)} created in {outcome.seconds_to_create:.1f} s")
        await side.until(f"{path} ready", lambda: are_all(ready))
        say(f"all ready after {max(ready.values()) - first.monotonic:.1f} s")
        await side.until(f"{path} running", lambda: are_all(running))
        last = await side.mark()
        say(f"all as far as they can come after {last.monotonic - first.monotonic:.1f} s")
    outcome.seconds_to_ready = sorted(moment - first.monotonic for moment in ready.values())
    outcome.seconds_to_word = sorted(words.values())
    outcome.seconds_to_training = sorted(moment - first.monotonic for moment in running.values())
    outcome.start = await side.span(first, last)
    outcome.until_ready = outcome.start.traffic.of(side.controller).of_job_controller().until(ready_times)
    return outcome


def _noting(jobs: list[Manifest], made: dict[str, float]) -> Iterator[Manifest]:
    """Yield the jobs and record when each is sent."""
    for job in jobs:
        made[job["metadata"]["name"]] = time.monotonic()
        yield job


async def _create(side: Side, path: str, jobs: Iterator[Manifest]) -> None:
    """Create the jobs, at their rate or all at once."""
    rate, began = side.settings.jobs_per_second, time.monotonic()
    if rate is None:
        await side.client.create_all(path, jobs)
        return
    for number in itertools.count():
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        if (job := next(jobs, None)) is None:
            return
        await side.client.ask("POST", path, job)


def _rljob_stage(job: Manifest) -> Stage:
    status = job.get("status") or {}
    ready = any(c["type"] == "ClusterReady" and c["status"] == "True" for c in status.get("conditions", ()))
    return "state" in status, ready, status.get("state") == "Training"


def _rayjob_stage(job: Manifest) -> Stage:
    stage = (job.get("status") or {}).get("jobDeploymentStatus")
    return bool(stage), stage == "Waiting", stage == "Waiting"


async def _restart(side: Side, heads: Heads) -> Restart:
    """Restart our operator while no run makes a step: every write that it sends then is unnecessary."""
    heads.freeze()
    await _until_recorded(side, heads)
    exit_code = await side.plane.stop(OPERATOR)
    before, stopped = heads.polls(), time.time()
    began = time.monotonic()
    ready = await side.plane.start_operator()
    await side.until("every head is asked again", lambda: all(now > before[uid] for uid, now in heads.polls().items()))
    polled = time.monotonic() - began
    await asyncio.sleep(max(0.0, side.settings.restart_seconds - polled))
    seen = (await side.traffic(stopped, time.time())).of(OPERATOR).of_job_controller()
    heads.thaw()
    return Restart(exit_code, ready, polled, dict(seen.writes()))


async def _until_recorded(side: Side, heads: Heads) -> None:
    """Wait until the status of every job contains the last step of its run."""
    steps = heads.steps()
    async with asyncio.timeout(side.settings.patience_seconds):
        jobs, _ = await side.client.list(objects.RLJOBS)
        while any(_recorded_step(job) != steps.get(_head(job)) for job in jobs):
            await asyncio.sleep(STATUS_LOOK_SECONDS)
            jobs, _ = await side.client.list(objects.RLJOBS)
    # A round may have started writing.
    await asyncio.sleep(STATUS_LOOK_SECONDS)


def _recorded_step(job: Manifest) -> int:
    return int((job["status"].get("progress") or {}).get("step", 0))


def _head(job: Manifest) -> str:
    return str(job["status"]["intent"]["headPodUID"])
