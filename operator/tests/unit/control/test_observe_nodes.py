"""Observing the nodes of a run: found once by its pods, read by name, and kept while pods terminate."""

from __future__ import annotations

from doubles.fake import Call, fail_calls
from machine import KEY, Machine, observe, owned, start_with_head

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import POD, RAY_CLUSTER, RLJOB
from rljob.control.node_looks import FRESH_SECONDS, KEEP_SECONDS
from rljob.core.observed import UNSEEN, Manifest
from rljob.core.requirements import Requirements

NPU = "huawei.com/Ascend910"


def npu_node(name: str, offered: int) -> Manifest:
    status = {"allocatable": {NPU: str(offered)}, "capacity": {NPU: "8"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}


def worker(cluster: Manifest, number: int, *sick: str) -> Manifest:
    metadata = owned(cluster, **{"ray.io/cluster": "c1", "ray.io/node-type": "worker"}) | {"name": f"w{number}"}
    health = [{"resourceID": device, "health": "Unhealthy"} for device in sick]
    told = [{"allocatedResourcesStatus": [{"name": NPU, "resources": health}]}]
    spec = {"nodeName": f"n{number}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"containerStatuses": told},
    }


async def start_on_nodes(machine: Machine, offered: int = 8) -> list[str]:
    """Start a job with two workers; return what is requested from then on."""
    await start_with_head(machine)
    asked: list[str] = []
    (cluster,) = machine.cluster.objects(RAY_CLUSTER)
    for number in (1, 2):
        machine.cluster.put(npu_node(f"n{number}", offered))
        machine.cluster.put(worker(cluster, number))

    async def note(call: Call) -> None:
        asked.append(f"{call.verb} {call.kind.plural}")

    machine.cluster.gate = note
    machine.wanted = Requirements(held=True)
    return asked


async def test_the_nodes_of_a_run_are_found_once_and_then_looked_at(machine: Machine) -> None:
    asked = await start_on_nodes(machine)
    seen = await observe(machine)
    assert isinstance(seen.held, tuple)
    assert {place.node for place in seen.held} == {"n1", "n2"} == set(seen.looks)
    for _ in range(3):
        machine.clock.advance(KEEP_SECONDS)
        await observe(machine)
    assert asked.count("list pods") == 1
    assert asked.count("get nodes") == 8


async def test_another_submission_may_be_elsewhere(machine: Machine) -> None:
    asked = await start_on_nodes(machine)
    await observe(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["status"]["intent"].update(submissionId="c1-2"))
    await observe(machine)
    assert asked.count("list pods") == 2


async def test_while_a_node_has_fewer_devices_the_pods_say_whose_they_are(machine: Machine) -> None:
    asked = await start_on_nodes(machine, offered=7)
    await observe(machine)
    (cluster,) = machine.cluster.objects(RAY_CLUSTER)
    machine.cluster.remove(POD, "team", "w1")
    machine.cluster.put(worker(cluster, 1, "Ascend910-3"))
    machine.clock.advance(KEEP_SECONDS)
    seen = await observe(machine)
    assert isinstance(seen.held, tuple)
    assert {device for place in seen.held for device in place.sick} == {"Ascend910-3"}
    await observe(machine)
    assert asked.count("list pods") == 2


async def test_pods_that_are_going_do_not_make_it_forget_where_they_were(machine: Machine) -> None:
    await start_on_nodes(machine, offered=7)
    await observe(machine)
    machine.cluster.remove(POD, "team", "w1")
    machine.clock.advance(KEEP_SECONDS)
    seen = await observe(machine)
    assert isinstance(seen.held, tuple)
    assert {place.node for place in seen.held} == {"n1", "n2"}


async def test_pods_that_cannot_be_listed_hide_the_nodes(machine: Machine) -> None:
    await start_on_nodes(machine)
    machine.cluster.faults.append(fail_calls("list", POD, Unavailable("down"), times=1))
    seen = await observe(machine)
    assert (seen.held, seen.looks) == (UNSEEN, {})


async def test_nodes_that_a_job_avoids_are_looked_at_by_name(machine: Machine) -> None:
    asked = await start_on_nodes(machine)
    machine.wanted = Requirements(look_at=("n2",))
    seen = await observe(machine)
    assert (seen.held, list(seen.looks)) == (UNSEEN, ["n2"])
    assert "list pods" not in asked


async def test_an_end_is_explained_by_what_the_nodes_are_now(machine: Machine) -> None:
    asked = await start_on_nodes(machine)
    await observe(machine)
    machine.clock.advance(FRESH_SECONDS)
    await observe(machine)
    assert asked.count("get nodes") == 4, "a lost head ends the attempt"
