"""Blocks of ports among several jobs: never shared on a node, whatever is lost or stopped, and finally released.

The whole operator runs on the cluster in memory; hypothesis acts as users, crashes, and losses of written objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import combinations

import pytest
from builders import Json, merged, saving, small_spec
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster, fail_calls
from doubles.fake_ray import FakeRay
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from property.chaos import FULL

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import CONFIG_MAP, POD, RAY_CLUSTER, RLJOB
from rljob.cluster.token import TokenKey
from rljob.control.execute import Hooks
from rljob.control.port_sweep import sweep
from rljob.control.pure_core import Core
from rljob.control.reconciler import Reconciler
from rljob.control.store import Key
from rljob.core import times
from rljob.core.scheduling.port_blocks import PortPool, read_allocations
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.labels import JOB_UID, PORT_BLOCK, RAY_NODE_TYPE
from rljob.render.ports import PortBlock

NAMESPACE = "team"
POOL = PortPool(namespace="rljob", name="ports", first=20_000, blocks=4)
JOBS = tuple("abc")
START_SECONDS = 1800
ROUNDS_MAX = 400
SPEC = small_spec({"network": {"mode": "Host"}, "deadlines": {"startSeconds": START_SECONDS}})


class CrashError(Exception):
    """The operator's process ends here."""


class Ports:
    """A cluster, an operator that may end at any write, and jobs on the nodes' network."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.cluster = FakeCluster(self.clock.now)
        self.loop = asyncio.Runner()
        self.crash_in: int | None = None
        self.made = 0
        self.spec = SPEC
        self.operator = self.start()

    def start(self) -> Reconciler:
        operator = Reconciler.build(
            self.cluster,
            FakeRay(),
            self.clock,
            TokenKey(b"k" * 32),
            core=Core(LAUNCHER, BUILT_IN),
            hooks=Hooks(after_write=self._wrote),
            port_pool=POOL,
        )
        self.loop.run(operator.prime())
        self.cluster.watch(operator.feed)
        return operator

    def _wrote(self, _: str) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                self.crash_in = None
                raise CrashError

    def restart(self) -> None:
        self.cluster.unwatch(self.operator.feed)
        self.operator = self.start()

    def settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            key = self.operator.queue.get_nowait()
            if key is None:
                return
            try:
                self.loop.run(self.operator.round(key))
            except CrashError:
                self.restart()
            else:
                self.operator.queue.done(key)
        raise AssertionError("does not rest")

    def look_at(self, name: str) -> None:
        """Run one round of one job only."""
        self.loop.run(self.operator.round(Key(NAMESPACE, name)))

    def create(self, name: str) -> None:
        if self.cluster.find(RLJOB, NAMESPACE, name) is None:
            self.made += 1
            uid = f"{self.made:08x}-0000-4000-8000-000000000000"
            metadata = {"namespace": NAMESPACE, "name": name}
            job = {"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": metadata, "spec": self.spec}
            self.cluster.put(job, uid=uid)

    def delete(self, name: str) -> None:
        if self.cluster.find(RLJOB, NAMESPACE, name) is not None:
            self.cluster.remove(RLJOB, NAMESPACE, name)

    def status(self, name: str) -> Json:
        job = self.cluster.find(RLJOB, NAMESPACE, name)
        return dict((job or {}).get("status") or {})

    def lose_status(self, name: str) -> None:
        if self.cluster.find(RLJOB, NAMESPACE, name) is not None:
            self.cluster.edit(RLJOB, NAMESPACE, name, lambda job: job.pop("status", None))

    def lose_allocations(self) -> None:
        if self.cluster.find(CONFIG_MAP, POOL.namespace, POOL.name) is not None:
            self.cluster.remove(CONFIG_MAP, POOL.namespace, POOL.name)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for key in self.operator.store.job_keys():
            self.operator.queue.add(key)

    def sweep(self) -> int:
        with suppress(CrashError):
            return self.loop.run(sweep(self.cluster, self.operator.store, POOL))
        return 0

    @property
    def blocks(self) -> dict[str, PortBlock]:
        """Return the ports of every RayCluster, by the UID of its job."""
        found = {}
        for cluster in self.cluster.objects(RAY_CLUSTER):
            metadata = cluster["metadata"]
            found[metadata["labels"][JOB_UID]] = PortBlock(int(metadata["annotations"][PORT_BLOCK]))
        return found

    @property
    def held(self) -> set[str]:
        found = read_allocations(POOL, self.cluster.find(CONFIG_MAP, POOL.namespace, POOL.name))
        return {holder.uid for holder in found.held.values()}

    def close(self) -> None:
        self.loop.close()


@pytest.fixture
def ports() -> Iterator[Ports]:
    made = Ports()
    yield made
    made.close()


def begin(ports: Ports, *names: str) -> None:
    for name in names:
        ports.create(name)
    ports.settle()


def test_each_job_has_ports_of_its_own(ports: Ports) -> None:
    begin(ports, *JOBS)
    assert [block.first for block in ports.blocks.values()] == [20_000, 20_032, 20_064]
    assert {ports.status(name)["network"]["portBlock"] for name in JOBS} == {20_000, 20_032, 20_064}


def test_a_finished_job_gives_its_ports_back_when_its_pods_are_gone(ports: Ports) -> None:
    begin(ports, "a")
    uid = next(iter(ports.blocks))
    pod = {"namespace": NAMESPACE, "name": "a-head", "labels": {JOB_UID: uid, RAY_NODE_TYPE: "head"}}
    ports.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": pod})
    (cluster,) = ports.cluster.objects(RAY_CLUSTER)
    looked = {"state": "", "observedGeneration": 1}
    ports.cluster.edit(RAY_CLUSTER, NAMESPACE, cluster["metadata"]["name"], lambda found: found.update(status=looked))
    ports.pass_time(START_SECONDS + 1)
    ports.settle()
    assert (ports.status("a")["state"], ports.blocks) == ("Failed", {})
    assert ports.held == {uid}
    made = {"namespace": NAMESPACE, "name": "a-prepare", "labels": {JOB_UID: uid}}
    ports.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": made})
    ports.cluster.remove(POD, NAMESPACE, "a-head")
    ports.pass_time(10)
    ports.settle()
    assert ports.held == set()
    assert "network" not in ports.status("a")


def test_a_deleted_job_is_swept_when_its_pods_are_gone(ports: Ports) -> None:
    begin(ports, "a")
    uid = next(iter(ports.blocks))
    ports.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": NAMESPACE, "name": "p", "labels": {JOB_UID: uid, RAY_NODE_TYPE: "head"}},
        }
    )
    ports.delete("a")
    ports.settle()
    assert (ports.sweep(), ports.held) == (0, {uid})
    ports.cluster.remove(POD, NAMESPACE, "p")
    assert (ports.sweep(), ports.held) == (1, set())


def test_a_lost_config_map_is_written_again_with_what_the_others_have(ports: Ports) -> None:
    begin(ports, "a", "b")
    before = ports.blocks
    ports.lose_allocations()
    begin(ports, "c")
    assert len(ports.held) == len(JOBS)
    assert before.items() <= ports.blocks.items()


def test_config_map_and_status_may_both_be_lost_while_the_cluster_stands(ports: Ports) -> None:
    begin(ports, "a")
    ports.lose_allocations()
    ports.lose_status("a")
    ports.create("b")
    ports.operator.queue.add(Key(NAMESPACE, "b"))
    ports.settle()
    assert sorted(block.first for block in ports.blocks.values()) == [20_000, 20_032]
    assert ports.status("a")["network"] == {"portBlock": 20_000}


def test_without_a_free_block_a_job_waits_and_says_so(ports: Ports) -> None:
    begin(ports, *JOBS, "d", "e")
    assert len(ports.blocks) == POOL.blocks
    waiting = [name for name in (*JOBS, "d", "e") if ports.status(name)["reason"] == "WaitingForPorts"]
    (name,) = waiting
    assert "all blocks of ports" in ports.status(name)["message"]
    ports.delete(next(other for other in JOBS if other != name))
    ports.settle()
    ports.sweep()
    ports.pass_time(60)
    ports.settle()
    assert len(ports.blocks) == POOL.blocks
    assert ports.status(name)["reason"] != "WaitingForPorts"


def test_who_waits_for_ports_waits_without_a_deadline_and_then_has_all_its_time(ports: Ports) -> None:
    begin(ports, *JOBS, "d", "e")
    (name,) = [name for name in (*JOBS, "d", "e") if ports.status(name)["reason"] == "WaitingForPorts"]
    writes = ports.cluster.writes
    for _ in range(3):
        ports.clock.advance(START_SECONDS)
        ports.look_at(name)
    assert (ports.status(name)["reason"], ports.cluster.writes) == ("WaitingForPorts", writes)
    ports.delete(next(other for other in JOBS if other != name))
    ports.sweep()
    for _ in range(6):
        ports.look_at(name)
    assert ports.status(name)["reason"] == "ClusterStarting"
    assert len(ports.blocks) == POOL.blocks
    deadline = times.to_text(ports.clock.now() + timedelta(seconds=START_SECONDS))
    assert ports.status(name)["intent"]["startDeadline"] == deadline


@pytest.mark.parametrize(("restarts", "state"), [(0, "Failed"), (1, "Restarting")])
def test_blocks_that_cannot_be_read_spend_a_restart(ports: Ports, restarts: int, state: str) -> None:
    ports.cluster.faults.append(fail_calls("get", CONFIG_MAP, Unavailable("down"), times=10_000))
    ports.spec = merged(SPEC, saving({"checkpoint": {"path": "/data/s", "everySteps": 1}}))
    ports.spec["restart"] = {"maxInfrastructureRestarts": restarts}
    begin(ports, "a")
    ports.clock.advance(START_SECONDS)
    ports.operator.queue.add(Key(NAMESPACE, "a"))
    ports.settle()
    assert (ports.status("a")["state"], ports.status("a")["reason"]) == (state, "StartDeadlineExceeded")


def test_blocks_that_cannot_be_read_for_a_moment_end_no_wait_for_one(ports: Ports) -> None:
    begin(ports, *JOBS, "d", "e")
    (name,) = [name for name in (*JOBS, "d", "e") if ports.status(name)["reason"] == "WaitingForPorts"]
    ports.clock.advance(START_SECONDS)
    ports.cluster.faults.append(fail_calls("get", CONFIG_MAP, Unavailable("down"), times=1))
    ports.look_at(name)
    assert ports.status(name)["reason"] == "WaitingForPorts"


@pytest.mark.parametrize("after", range(1, 16))
def test_an_operator_that_stops_after_any_write_comes_to_the_same(ports: Ports, after: int) -> None:
    ports.crash_in = after
    begin(ports, "a", "b")
    assert sorted(block.first for block in ports.blocks.values()) == [20_000, 20_032]
    assert {ports.status(name)["network"]["portBlock"] for name in "ab"} == {20_000, 20_032}
    assert len(ports.held) == len("ab")


class Sharing(RuleBasedStateMachine):
    """Any order of starts, ends, losses and stops."""

    def __init__(self) -> None:
        super().__init__()
        self.ports = Ports()

    @rule(name=st.sampled_from(JOBS))
    def create(self, name: str) -> None:
        self.ports.create(name)

    @rule(name=st.sampled_from(JOBS))
    def delete(self, name: str) -> None:
        self.ports.delete(name)

    @rule(name=st.sampled_from(JOBS))
    def lose_status(self, name: str) -> None:
        self.ports.lose_status(name)

    @rule()
    def lose_allocations(self) -> None:
        self.ports.lose_allocations()

    @rule(writes=st.integers(1, 12))
    def crash(self, writes: int) -> None:
        self.ports.crash_in = writes

    @rule()
    def settle(self) -> None:
        self.ports.settle()

    @rule(seconds=st.sampled_from([10.0, 60.0, START_SECONDS + 1.0]))
    def pass_time(self, seconds: float) -> None:
        self.ports.pass_time(seconds)
        self.ports.settle()

    @rule()
    def sweep(self) -> None:
        self.ports.sweep()

    @invariant()
    def no_port_is_shared(self) -> None:
        for one, other in combinations(self.ports.blocks.values(), 2):
            assert not one.all_ports & other.all_ports, "two jobs share a port"

    def teardown(self) -> None:
        """At the end all jobs have ended or are gone, and no ports are held."""
        ports = self.ports
        ports.crash_in = None
        for name in JOBS:
            ports.delete(name)
        ports.settle()
        ports.sweep()
        assert ports.held == set()
        ports.close()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(
    max_examples=200 if FULL else 40,
    stateful_step_count=20,
    deadline=timedelta(seconds=60),
    suppress_health_check=[HealthCheck.too_slow],
)
