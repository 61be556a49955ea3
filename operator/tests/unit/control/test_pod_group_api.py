"""Volcano's PodGroups as input of the core.

What is served, which job they belong to, and how often they are reported.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from builders import IDENTITY
from doubles.fake import fail_calls
from machine import KEY, Machine, observe

from rljob.cluster.errors import Forbidden, Unavailable
from rljob.cluster.kinds import POD_GROUP, RLJOB
from rljob.control.pod_group_api import KEEP_SECONDS
from rljob.control.store import Key, Store
from rljob.core.observed import PROGRESS_WRITE_SECONDS, UNSEEN, Manifest, PodGroupApi, Unseen
from rljob.core.requirements import Requirements
from rljob.render.labels import JOB, JOB_UID
from rljob.render.metadata import child_metadata

FIELDS = frozenset({"minMember", "networkTopology"})


def group(job: Manifest, name: str = "c1", *, owner: str | None = None) -> dict[str, Any]:
    metadata = child_metadata(IDENTITY, name, "cluster/1")
    metadata["labels"] = {JOB: KEY.name, JOB_UID: job["metadata"]["uid"]}
    metadata["ownerReferences"][0]["uid"] = owner or job["metadata"]["uid"]
    status = {"phase": "Pending", "conditions": [{"type": "Unschedulable", "status": "True", "message": "16 short"}]}
    kind = {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup"}
    return {**kind, "metadata": metadata, "spec": {}, "status": status}


async def api(machine: Machine) -> PodGroupApi | Unseen:
    machine.wanted = Requirements(pod_groups=True)
    return (await observe(machine)).pod_group_api


async def begin(machine: Machine) -> Manifest:
    job = await machine.start()
    machine.cluster.edit(RLJOB, *KEY, lambda item: item.update(status={"intent": {"clusterName": "c1"}}))
    return job


async def test_what_is_served_is_read_once_a_minute_and_only_for_jobs_that_ask(machine: Machine) -> None:
    await machine.start()
    machine.cluster.fields[POD_GROUP] = FIELDS
    assert (await observe(machine)).pod_group_api is UNSEEN
    assert await api(machine) == PodGroupApi(FIELDS)
    machine.cluster.fields[POD_GROUP] = frozenset()
    assert await api(machine) == PodGroupApi(FIELDS)
    machine.clock.advance(KEEP_SECONDS)
    assert await api(machine) == PodGroupApi()


async def test_without_volcano_the_answer_says_so(machine: Machine) -> None:
    machine.cluster.unserved.add(POD_GROUP)
    await machine.start()
    found = await api(machine)
    assert found == PodGroupApi(problem="the API server does not serve podgroups.scheduling.volcano.sh")


async def test_a_server_that_does_not_publish_what_it_serves_is_asked_again(machine: Machine) -> None:
    await machine.start()
    machine.cluster.fields[POD_GROUP] = FIELDS
    machine.cluster.unserved.add(POD_GROUP)
    assert await api(machine) is UNSEEN
    machine.cluster.unserved.clear()
    assert await api(machine) == PodGroupApi(FIELDS)


async def test_of_a_group_that_nobody_watches_yet_nothing_is_said(machine: Machine) -> None:
    job = await begin(machine)
    machine.cluster.put(group(job))
    machine.cluster.put(group(job, "c0"))
    machine.reconciler.store.served = frozenset()
    found = (await observe(machine)).pod_groups
    assert [item["metadata"]["name"] for item in found] == ["c0"]


async def test_a_server_that_does_not_answer_is_asked_again(machine: Machine) -> None:
    await machine.start()
    machine.cluster.faults.append(fail_calls("list", POD_GROUP, Unavailable("starting"), times=1))
    assert await api(machine) is UNSEEN
    assert await api(machine) == PodGroupApi()


async def test_missing_rights_are_a_reason_not_to_make_any(machine: Machine) -> None:
    machine.cluster.faults.append(fail_calls("list", POD_GROUP, Forbidden("no"), times=1))
    await machine.start()
    assert await api(machine) == PodGroupApi(problem="the operator may not list podgroups.scheduling.volcano.sh")


async def test_a_schema_that_may_not_be_read_is_one_too(machine: Machine) -> None:
    await machine.start()
    machine.cluster.faults.append(fail_calls("list", POD_GROUP, Forbidden("no"), times=1))
    assert await api(machine) == PodGroupApi(problem="the operator may not read /openapi/v3: no")


async def test_only_groups_that_the_job_controls_are_seen(machine: Machine) -> None:
    job = await begin(machine)
    machine.cluster.put(group(job))
    machine.cluster.put(group(job, "c0"))
    machine.cluster.put(group(job, "copied", owner="somebody"))
    found = (await observe(machine)).pod_groups
    assert [item["metadata"]["name"] for item in found] == ["c0", "c1"]


def test_a_group_that_changes_brings_its_job_to_a_look() -> None:
    keys: list[Key] = []
    made = group({"metadata": {"uid": "u1"}})
    made["metadata"] |= {"uid": "g", "resourceVersion": "5"}
    assert Store(keys.append).put(POD_GROUP, made)
    assert keys == [KEY]


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Running"},
        {"running": 2},
        {"conditions": [{"type": "Unschedulable", "status": "True", "reason": "JobEnqueueFailed"}]},
    ],
)
async def test_mere_words_are_passed_on_from_time_to_time_and_all_else_at_once(
    machine: Machine, change: dict[str, Any]
) -> None:
    job = await begin(machine)
    machine.cluster.put(group(job))

    async def after(told: dict[str, Any]) -> Manifest:
        machine.cluster.edit(POD_GROUP, "team", "c1", lambda item: item["status"].update(told))
        (found,) = (await observe(machine)).pod_groups
        return dict(found["status"])

    (first,) = (await observe(machine)).pod_groups
    words = {"conditions": [{"type": "Unschedulable", "status": "True", "message": "8 short"}]}
    assert await after(words) == first["status"]
    assert await after(change) == first["status"] | words | change
    machine.clock.advance(timedelta(seconds=PROGRESS_WRITE_SECONDS).total_seconds())
    assert (await after(words))["conditions"] == words["conditions"]
