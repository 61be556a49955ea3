"""The metrics of used devices come from the store."""

from __future__ import annotations

from typing import Any

import pytest
from builders import status_training
from machine import KEY, Machine, cluster_of

from rljob.cluster.kinds import RAY_CLUSTER, RLJOB
from rljob.core.observed import Observed
from rljob.core.plan import Plan
from rljob.render.labels import KUEUE_QUEUE, VOLCANO_QUEUE

SECONDS = "device_seconds_total"


def read(machine: Machine, name: str, queue: str) -> float | None:
    machine.reconciler.metrics.exposition()
    labels = {"rljob_namespace": "team", "queue": queue}
    return machine.reconciler.metrics.registry.get_sample_value(f"rljob_operator_{name}", labels)


def submitted(machine: Machine) -> dict[str, Any]:
    """Return the status of a run that was submitted now."""
    status = status_training()
    status["attempts"][0]["submittedTime"] = machine.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    return status


@pytest.mark.parametrize("label", [KUEUE_QUEUE, VOLCANO_QUEUE])
async def test_a_scrape_counts_what_runs_hold_in_the_queue_of_their_cluster(machine: Machine, label: str) -> None:
    job = await machine.start()
    cluster = cluster_of(job)
    cluster["metadata"]["labels"][label] = "gold"
    machine.cluster.put(cluster)
    status = submitted(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda found: found.update(status=status))
    assert read(machine, "devices_held", "gold") == 2
    machine.clock.advance(30)
    assert read(machine, SECONDS, "gold") == 60
    machine.cluster.remove(RAY_CLUSTER, "team", "c1")
    machine.clock.advance(30)
    assert read(machine, SECONDS, "gold") == 120


async def test_the_queue_that_the_job_names_is_known_before_its_cluster_is(machine: Machine) -> None:
    await machine.start()
    status, queue = submitted(machine), {"queueName": "gold"}
    machine.cluster.edit(RLJOB, *KEY, lambda found: found["spec"].update(scheduling=queue))
    machine.cluster.edit(RLJOB, *KEY, lambda found: found.update(status=status))
    assert read(machine, "devices_held", "gold") == 2


async def test_a_job_that_ends_and_goes_between_two_scrapes_is_counted(machine: Machine) -> None:
    await machine.start()
    status = submitted(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda found: found.update(status=status))
    read(machine, SECONDS, "")
    machine.clock.advance(30)

    def ends(_: Observed) -> Plan:
        return Plan(status=status | {"attempts": [], "usage": {"deviceSeconds": 60, "productiveDeviceSeconds": 50}})

    machine.decide = ends
    await machine.reconciler.round(KEY)
    machine.cluster.remove(RLJOB, *KEY)
    assert read(machine, SECONDS, "") == 60
    assert read(machine, "productive_device_seconds_total", "") == 50


async def test_a_budget_is_known_to_be_spent_when_a_round_has_read_the_spec(machine: Machine) -> None:
    await machine.start()
    status, restart = submitted(machine) | {"budget": {"userFailures": 2}}, {"maxRestarts": 2}
    machine.cluster.edit(RLJOB, *KEY, lambda found: found["spec"].update(restart=restart))
    machine.cluster.edit(RLJOB, *KEY, lambda found: found.update(status=status))
    assert read(machine, "jobs_restart_budget_spent", "") == 0
    await machine.reconciler.round(KEY)
    assert read(machine, "jobs_restart_budget_spent", "") == 1


async def test_a_job_of_another_manager_is_not_counted(machine: Machine) -> None:
    await machine.start()
    machine.cluster.edit(RLJOB, *KEY, lambda found: found["spec"].update(managedBy="example.com/other"))
    await machine.reconciler.round(KEY)
    assert read(machine, "jobs_stalled", "") is None


async def test_what_befell_a_job_in_its_first_round_is_counted(machine: Machine) -> None:
    await machine.start()
    status = submitted(machine)

    def fails(_: Observed) -> Plan:
        ended = {"outcome": "Lost", "endTime": status["attempts"][0]["submittedTime"], "lastStep": 3}
        closed = [status["attempts"][0] | ended]
        return Plan(status=status | {"attempts": closed, "restarts": 1, "counters": {"infrastructureFailures": 1}})

    machine.decide = fails
    await machine.reconciler.round(KEY)
    machine.reconciler.metrics.exposition()
    text = machine.reconciler.metrics.exposition().decode()
    place = 'queue="",rljob_namespace="team"'
    assert f'rljob_operator_restarts_total{{cause="Infrastructure",{place}}} 1.0' in text
    assert f'rljob_operator_attempts_total{{outcome="Lost",{place},saved="false"}} 1.0' in text
