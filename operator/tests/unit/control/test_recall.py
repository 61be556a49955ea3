"""What an earlier life of a job left: only the job's own objects count, and too many decide nothing."""

from __future__ import annotations

import pytest
from doubles.fake import Call, fail_calls
from machine import Machine, cluster_of, left, observe

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import CONFIG_MAP, RAY_CLUSTER, Kind
from rljob.control import try_request
from rljob.core.observed import UNSEEN
from rljob.core.requirements import Requirements


async def test_what_a_job_left_is_found_with_a_cluster_that_no_watch_has_delivered(machine: Machine) -> None:
    job = await machine.start()
    machine.wanted = Requirements(recall=True)
    assert (await observe(machine)).snapshot is None
    made = machine.cluster.put(left(job, "s", "spec/1"))
    machine.cluster.put(left(job, "c", "cluster/2"))
    machine.cluster.hold_events()
    machine.cluster.put(cluster_of(job))
    seen = await observe(machine)
    assert (seen.snapshot, seen.last_generation) == (made, 2)
    assert [item["metadata"]["name"] for item in seen.clusters] == ["c1"]
    machine.cluster.unserved.add(RAY_CLUSTER)
    assert (await observe(machine)).last_generation == 2


@pytest.mark.parametrize("kind", [CONFIG_MAP, RAY_CLUSTER])
async def test_a_job_of_which_it_is_not_known_what_it_left_is_not_judged(machine: Machine, kind: Kind) -> None:
    job = await machine.start()
    machine.cluster.put(left(job, "c", "cluster/1"))
    machine.wanted = Requirements(recall=True)
    machine.cluster.faults.append(fail_calls("list", kind, Unavailable("down"), times=1))
    assert (await observe(machine)).snapshot is UNSEEN


async def test_of_config_maps_with_the_label_of_a_job_only_its_own_are_read(machine: Machine) -> None:
    job = await machine.start()
    mine = machine.cluster.put(left(job, "s", "spec/1"))
    for number in range(20):
        foreign = left(job, f"f-{number}", "spec/2") | {"data": {"x": "y" * 1000}}
        foreign["metadata"].pop("ownerReferences")
        machine.cluster.put(foreign)
    read: list[tuple[str, str]] = []

    async def gate(call: Call) -> None:
        if call.kind is CONFIG_MAP:
            read.append((call.verb, call.name))

    machine.cluster.gate = gate
    machine.wanted = Requirements(recall=True)
    assert (await observe(machine)).snapshot == mine
    assert read == [("list", ""), ("get", "s")]


async def test_more_config_maps_with_the_label_than_are_read_decide_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_request, "LABELLED_LIMIT", 3)
    job = await machine.start()
    for number in range(4):
        machine.cluster.put(left(job, f"c-{number}", f"spec/{number}"))
    machine.wanted = Requirements(recall=True)
    assert (await observe(machine)).snapshot is UNSEEN
    machine.cluster.remove(CONFIG_MAP, "team", "c-0")
    assert (await observe(machine)).snapshot == machine.cluster.find(CONFIG_MAP, "team", "c-3")
