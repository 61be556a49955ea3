"""Releasing unused port blocks, and the compare-and-swap of the ConfigMap."""

import pytest
from builders import Json, small_spec
from doubles.fake import FakeCluster, fail_calls
from machine import Machine

from rljob.cluster.errors import ClusterError, Conflict, Forbidden, Unavailable
from rljob.cluster.kinds import CONFIG_MAP, POD, RAY_CLUSTER, RLJOB, Kind
from rljob.control.execute import StaleError
from rljob.control.port_sweep import sweep
from rljob.control.store import Store
from rljob.core.observed import Observed
from rljob.core.plan import Plan, WriteAllocations
from rljob.core.scheduling.port_blocks import Allocations, Holder, PortPool, read_allocations
from rljob.render.labels import JOB_UID, PORT_BLOCK, RAY_NODE_TYPE

POOL = PortPool("rljob", "ports")
GONE = Holder("u1", "team", "gone")


def allocated(**holders: Holder) -> FakeCluster:
    cluster = FakeCluster()
    held = {int(first.removeprefix("p")): holder for first, holder in holders.items()}
    cluster.put(Allocations(POOL, held).manifest())
    return cluster


def held(cluster: FakeCluster) -> set[str]:
    found = read_allocations(POOL, cluster.find(CONFIG_MAP, POOL.namespace, POOL.name))
    return {holder.uid for holder in found.held.values()}


def rljob(uid: str, status: Json) -> Json:
    metadata = {"namespace": "team", "name": uid, "uid": uid, "resourceVersion": "1"}
    return {
        "apiVersion": RLJOB.api_version,
        "kind": "RLJob",
        "metadata": metadata,
        "spec": small_spec(),
        "status": status,
    }


FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}


def store(*jobs: Json) -> Store:
    made = Store(lambda _: None)
    for job in jobs:
        made.put(RLJOB, job)
    return made


@pytest.mark.parametrize(
    ("status", "kept"),
    [({}, True), (FINISHED, False), (FINISHED | {"network": {"portBlock": 20_000}}, True)],
    ids=["it runs", "it ended before it knew its ports", "it gives them back itself"],
)
async def test_a_jobs_ports_are_swept_only_when_it_can_have_no_use_for_them(status: Json, kept: bool) -> None:
    cluster = allocated(p20000=GONE)
    await sweep(cluster, store(rljob("u1", status)), POOL)
    assert held(cluster) == ({"u1"} if kept else set())


async def test_ports_on_which_a_pod_may_listen_are_left_alone() -> None:
    cluster = allocated(p20000=GONE, p20032=Holder("u2", "team", "b"))
    metadata = {"namespace": "team", "name": "p", "labels": {JOB_UID: "u1", RAY_NODE_TYPE: "worker"}}
    cluster.put({"apiVersion": "v1", "kind": POD.kind, "metadata": metadata})
    assert await sweep(cluster, store(), POOL) == 1
    assert held(cluster) == {"u1"}


async def test_nothing_to_sweep_is_no_write() -> None:
    assert await sweep(FakeCluster(), store(), POOL) == 0
    cluster = allocated(p20000=GONE)
    assert await sweep(cluster, store(rljob("u1", {})), POOL) == 0
    assert cluster.writes == 0


async def test_a_namespace_that_cannot_be_read_keeps_its_own_ports_only() -> None:
    cluster = allocated(p20000=GONE, p20032=Holder("u2", "elsewhere", "b"))
    cluster.faults.append(fail_calls("list", POD, Forbidden("no"), times=1))
    assert await sweep(cluster, store(), POOL) == 1
    assert len(held(cluster)) == 1


@pytest.mark.parametrize(
    ("verb", "kind", "error"), [("update", CONFIG_MAP, Conflict("x")), ("list", POD, Unavailable("down"))]
)
async def test_a_sweep_that_fails_leaves_it_to_the_next(verb: str, kind: Kind, error: ClusterError) -> None:
    cluster = allocated(p20000=GONE)
    cluster.faults.append(fail_calls(verb, kind, error, times=1))
    assert await sweep(cluster, store(), POOL) == 0
    assert await sweep(cluster, store(), POOL) == 1
    assert held(cluster) == set()


def test_the_store_knows_ports_from_statuses_and_from_clusters() -> None:
    made = store(rljob("u1", {"network": {"portBlock": 20_000}}), rljob("u2", {}))
    labels, marks = {JOB_UID: "u2", "rljob.dev/job": "u2"}, {PORT_BLOCK: "20032"}
    metadata = {"namespace": "team", "name": "c", "uid": "c", "resourceVersion": "1", "labels": labels}
    owned = {"ownerReferences": [{"kind": "RLJob", "name": "sums", "uid": "u2", "controller": True}]}
    made.put(RAY_CLUSTER, {"metadata": metadata | owned | {"annotations": marks}})
    for number, text in enumerate(("20064", "0", "65530", "9" * 5000)):
        strange = {"uid": f"s{number}", "name": f"s{number}", "annotations": {PORT_BLOCK: text}}
        # Neither a copied label nor a number that is not a port makes a holder.
        made.put(RAY_CLUSTER, {"metadata": metadata | (owned if number else {}) | strange})
    made.put(RAY_CLUSTER, {"metadata": metadata | {"uid": "d", "name": "d"}})
    assert sorted(first for first, _ in made.port_blocks()) == [20_000, 20_032]
    assert {holder.uid for _, holder in made.port_blocks()} == {"u1", "u2"}


async def write(machine: Machine, manifest: Json) -> None:
    job = await machine.start()
    await machine.reconciler.executor.execute(Observed(job), Plan(effects=(WriteAllocations(manifest),)))


async def test_who_writes_second_looks_again() -> None:
    machine = Machine()
    first = Allocations(POOL, {20_000: GONE}).manifest()
    await write(machine, first)
    with pytest.raises(StaleError, match="another process changed"):
        await write(machine, first)
    old = first | {"metadata": first["metadata"] | {"resourceVersion": "1"}}
    with pytest.raises(StaleError, match="another process changed"):
        await write(machine, old)
    assert machine.written == ["ports"]
