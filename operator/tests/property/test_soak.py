"""A soak test: after hundreds of jobs, the operator holds no more memory than before.

Every container that is reachable from the reconciler is counted, so that new ones are included. State that outlives a
job on purpose is bounded, and listed here.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from builders import small_spec
from doubles.clock import FrozenClock
from doubles.fake import Failure, FakeCluster
from doubles.fake_ray import FakeRay
from doubles.simulate import live, settle

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import RAY_CLUSTER, RLJOB, Kind
from rljob.cluster.token import TokenKey
from rljob.control.node_cache import NODES_LIMIT
from rljob.control.pure_core import Core
from rljob.control.reconciler import Reconciler
from rljob.control.resync import Resync
from rljob.control.store import TOMBSTONES
from rljob.core.scheduling.discovery import JUDGED_MAX
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.telemetry.events import REMEMBERED
from rljob.telemetry.metrics import PLACES_MAX

# The unit tests alone reach every branch; measuring coverage here would cost time.
pytestmark = pytest.mark.no_cover

JOBS, ROUNDS = 20, 5
POD_GROUP_FIELDS = 20
"""More fields than the spec of Volcano's PodGroup has, whose schema is kept once for all jobs."""
BOUNDED = {
    "observer.store._gone": TOMBSTONES,
    "executor.recorder._posted": REMEMBERED,
    "executor.recorder._of_job": REMEMBERED,
    "ledger._places": PLACES_MAX + 1,
    "ledger._queues": PLACES_MAX + 1,
    "observer.requests.nodes._nodes.items": NODES_LIMIT,
    "observer.requests.nodes._nodes._judged": JUDGED_MAX,
    "observer.requests.pod_groups._api.fields": POD_GROUP_FIELDS,
}
"""Containers with entries of deleted jobs, and their maximum sizes."""
OUTSIDE = ("cluster", "ray", "metrics", "clock", "loop", "key", "core")
"""Not per job: adapters are stateless, and labels of metrics come from closed sets."""


class Soak:
    """An operator in a world of many jobs."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.cluster = FakeCluster(self.clock.now)
        self.operator = Reconciler.build(
            self.cluster, FakeRay(), self.clock, TokenKey(b"k" * 32), core=Core(LAUNCHER, BUILT_IN)
        )
        self.resync = Resync(self.operator, 300, "me", settle_seconds=0)
        self.cluster.watch(self.feed)
        self.made = 0

    def feed(self, event: str, kind: Kind, manifest: Mapping[str, Any]) -> None:
        if kind in (RLJOB, RAY_CLUSTER):
            self.operator.feed(event, kind, manifest)

    async def round(self) -> None:
        """Create some jobs, make trouble, let them run for a while, and delete them."""
        names = [f"job-{self.made + number}" for number in range(JOBS)]
        self.made += JOBS
        for number, name in enumerate(names):
            spec = small_spec({"trainer": {"globalBatchSize": 33}} if number % 5 == 0 else None)
            head = {"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": {"namespace": "team", "name": name}}
            self.cluster.put({**head, "spec": spec})
        failing = iter(range(2 * JOBS))
        self.cluster.faults[:] = [lambda call: fails(call.is_write and next(failing, None) is not None)]
        await live(self.operator, self.clock, 60)
        for name in names:
            self.cluster.remove(RLJOB, "team", name)
        await settle(self.operator)
        # Old notes are dropped when a new one arrives, and deleted jobs at each resync.
        await live(self.operator, self.clock, 1300)
        await self.resync.once()
        await live(self.operator, self.clock, 60)


def fails(now: bool) -> Failure | None:
    return Failure(Unavailable("down")) if now else None


def sizes(value: object, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, int]]:
    """Return every container below an object with its length."""
    seen = set() if seen is None else seen
    if id(value) in seen or path.rpartition(".")[2] in OUTSIDE:
        return
    seen.add(id(value))
    if isinstance(value, (dict, list, set, frozenset, tuple)) or hasattr(value, "popleft"):
        yield path, len(value)  # type: ignore[arg-type]
        return
    members = vars(value) if hasattr(value, "__dict__") else {}
    if type(value).__module__.startswith("rljob.") or dataclasses.is_dataclass(value):
        for name, member in members.items():
            yield from sizes(member, f"{path}.{name}".lstrip("."), seen)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def test_an_operator_that_saw_many_jobs_holds_no_more_than_a_young_one(runner: asyncio.Runner) -> None:
    soak = Soak()
    runner.run(soak.resync.prime())
    young = {path: size for path, size in sizes(soak.operator) if path not in BOUNDED}
    held: dict[str, int] = {}
    for _ in range(ROUNDS):
        runner.run(soak.round())
        assert soak.cluster.objects(RLJOB) == soak.cluster.objects(RAY_CLUSTER) == ()
        held = dict(sizes(soak.operator))
    assert {path: size for path, size in held.items() if path not in BOUNDED} == young
    assert all(held[path] <= limit for path, limit in BOUNDED.items())


def test_the_count_sees_what_is_kept_for_jobs(runner: asyncio.Runner) -> None:
    soak = Soak()
    runner.run(soak.resync.prime())
    head = {"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": {"namespace": "team", "name": "one"}}
    before = dict(sizes(soak.operator))
    soak.cluster.put({**head, "spec": small_spec()})
    runner.run(live(soak.operator, soak.clock, 60))
    grown = {path for path, size in sizes(soak.operator) if size > before.get(path, 0)}
    assert {"observer.store._by_key", "observer.requests.memories.by_uid", "queue._due"} <= grown
