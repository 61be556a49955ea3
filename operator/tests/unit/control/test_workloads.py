"""Kueue's Workloads as input of the core: which job they belong to, and how often their messages are reported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from doubles.fake import fail_calls
from machine import KEY, Machine, cluster_of, observe

from rljob.cluster.errors import Forbidden
from rljob.cluster.kinds import RAY_CLUSTER, RLJOB, WORKLOAD
from rljob.control.store import Key, Store
from rljob.core.observed import PROGRESS_WRITE_SECONDS, UNSEEN, Manifest, Unseen


def workload(owner: Manifest, *, kind: str = "RayCluster", message: str = "16 more needed") -> dict[str, Any]:
    told = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    reference = {"kind": kind, "name": "c1", "uid": owner["metadata"]["uid"], "controller": True}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {"namespace": "team", "name": "w1", "ownerReferences": [reference]},
        "spec": {"queueName": "team", "podSets": [{"name": "head", "template": {}}]},
        "status": {"conditions": [told]},
    }


async def begin(machine: Machine) -> Manifest:
    """Return the cluster of a job that intends it."""
    job = await machine.start()
    machine.cluster.edit(RLJOB, *KEY, lambda item: item.update(status={"intent": {"clusterName": "c1"}}))
    return machine.cluster.put(cluster_of(job))


async def seen(machine: Machine) -> Manifest | Unseen | None:
    return (await observe(machine)).workload


def message_of(found: Manifest | Unseen | None) -> str:
    assert isinstance(found, dict)
    return str(found["status"]["conditions"][0]["message"])


async def say(machine: Machine, message: str, reason: str = "Pending") -> str:
    def change(item: dict[str, Any]) -> None:
        item["status"]["conditions"][0].update(message=message, reason=reason)

    machine.cluster.edit(WORKLOAD, "team", "w1", change)
    return message_of(await seen(machine))


async def test_the_workload_of_the_intended_cluster_is_seen_without_its_pods(machine: Machine) -> None:
    cluster = await begin(machine)
    assert await seen(machine) is None
    machine.cluster.put(workload(cluster))
    found = await seen(machine)
    assert isinstance(found, dict)
    assert found["spec"] == {"queueName": "team"}


async def test_a_job_without_cluster_has_no_workload(machine: Machine) -> None:
    await machine.start()
    assert await seen(machine) is UNSEEN


@pytest.mark.parametrize("forbidden", [True, False])
async def test_where_kueues_api_cannot_be_read_nothing_is_known(machine: Machine, *, forbidden: bool) -> None:
    if forbidden:
        machine.cluster.faults.append(fail_calls("list", WORKLOAD, Forbidden("no"), times=1))
    else:
        machine.cluster.unserved.add(WORKLOAD)
    await begin(machine)
    assert await seen(machine) is UNSEEN


async def test_what_changes_is_passed_on_at_once_and_mere_words_from_time_to_time(machine: Machine) -> None:
    machine.cluster.put(workload(await begin(machine)))
    assert message_of(await seen(machine)) == "16 more needed"
    assert await say(machine, "8 more needed") == "16 more needed"
    assert await say(machine, "4 more needed", "Inadmissible") == "4 more needed"
    assert await say(machine, "2 more needed", "Inadmissible") == "4 more needed"
    machine.clock.advance(timedelta(seconds=PROGRESS_WRITE_SECONDS).total_seconds())
    assert message_of(await seen(machine)) == "2 more needed"


def test_a_workload_queues_the_job_of_its_cluster_once_that_is_known() -> None:
    keys: list[Key] = []
    store = Store(keys.append)
    metadata = {"namespace": "team", "name": "c1", "uid": "u1", "resourceVersion": "1"}
    cluster = {"metadata": {**metadata, "labels": {"rljob.dev/job": "sums"}}}
    unlabelled = {"metadata": metadata | {"resourceVersion": "2"}}
    found = workload(cluster)
    found["metadata"] |= {"uid": "w", "resourceVersion": "5"}
    assert store.put(WORKLOAD, found)
    assert keys == []
    store.put(RAY_CLUSTER, cluster)
    assert store.workload(cluster) is not None
    keys.clear()
    later = {**found, "metadata": found["metadata"] | {"resourceVersion": "6"}}
    store.put(WORKLOAD, later)
    assert set(keys) == {Key("team", "sums")}
    store.put(RAY_CLUSTER, unlabelled)
    keys.clear()
    store.remove(WORKLOAD, {**found, "metadata": found["metadata"] | {"resourceVersion": "7"}})
    assert (keys, store.workload(cluster)) == ([], None)


def test_workloads_of_others_are_not_kept() -> None:
    store = Store(lambda _: None)
    found = workload({"metadata": {"uid": "u1"}}, kind="Job")
    found["metadata"] |= {"uid": "w", "resourceVersion": "5"}
    assert not store.put(WORKLOAD, found)
    assert store.count(WORKLOAD) == 0
