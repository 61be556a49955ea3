"""Steps about classes and nodes: what the cluster lacks is reported, and a removed row makes a job wait."""

from typing import Any

import pytest
from builders import (
    NOW,
    Json,
    cluster,
    config,
    decide,
    job,
    pod,
    reasons,
    requests,
    seen,
    small_spec,
    snapshot,
    status_begun,
    status_initialized,
    status_recorded,
    wrote,
)

from rljob.api.status import RLJobStatus
from rljob.core.observed import Observed, PodGroupApi
from rljob.core.scheduling.discovery import NodeFacts, Nodes
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import built_in_document

A2 = small_spec({"accelerator": {"class": "atlas-a2"}})
EMPTY = Nodes((NodeFacts({}, {}),))


ROW = {"description": "x", "platform": "cpu", "resource": "huawei.com/npu", "devicesPerNode": 4}
LAB = AcceleratorTable(read_table(built_in_document(), {"lab": ROW}))
"""The table with a class that an administrator removes while a job uses it."""
LAB_SPEC = small_spec({"accelerator": {"class": "lab"}})


def test_a_class_that_the_cluster_lacks_is_a_warning_when_the_job_begins() -> None:
    no_volcano = PodGroupApi(problem="the API server does not serve it")
    plan = decide(Observed(job(A2), snapshot=None, nodes=EMPTY, pod_group_api=no_volcano))
    assert reasons(plan)["Validated"] == ("True", "ValidWithWarnings")
    assert "no node of the cluster fits class atlas-a2" in (wrote(plan).message or "")


def test_nodes_that_were_not_seen_are_no_reason_to_say_anything() -> None:
    plan = decide(Observed(job(), snapshot=None))
    assert reasons(plan)["Validated"] == ("True", "Valid")


def test_an_unschedulable_pod_is_reported_with_what_the_nodes_offer() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    waiting = pod(ready=False, conditions=[scheduled])
    world = {"clusters": (cluster(),), "pods": (waiting,)}
    told = wrote(decide(seen(job(status=status_recorded()), nodes=EMPTY, **world))).message or ""
    assert "0/1 nodes" in told
    assert "no node offers any NPU" in told
    plain = wrote(decide(seen(job(status=status_recorded()), **world))).message or ""
    assert "no node offers" not in plain


def test_nodes_are_asked_for_when_a_generation_begins_and_while_pods_wait() -> None:
    assert requests(job(), (), None, NOW).nodes
    assert requests(job(status=status_recorded()), (cluster(),), None, NOW).nodes
    assert not requests(job(status=status_initialized()), (), None, NOW).nodes


def test_a_job_whose_class_was_taken_away_waits_for_it_before_it_begins() -> None:
    frozen = snapshot(LAB_SPEC, accelerators=LAB)
    plan = decide(Observed(job(LAB_SPEC), snapshot=frozen))
    assert reasons(plan)["Validated"] == ("False", "InvalidSpec")
    assert "class lab does not exist" in (wrote(plan).message or "")


def rested(spec: Json, status: Json, seconds: float = 0, **world: Any) -> RLJobStatus:  # noqa: ANN401 - of Observed
    """Return the status when nothing is left to write; the invalid spec is reported first."""
    for _ in range(5):
        plan = decide(Observed(job(spec, status), **world), seconds)
        if plan.status is None:
            break
        status = dict(plan.status)
    return RLJobStatus.model_validate(status)


@pytest.mark.parametrize(("seconds", "reason"), [(0, "InvalidSpec"), (1800, "StartDeadlineExceeded")])
def test_a_class_that_goes_between_intent_and_rendering_is_waited_for(seconds: int, reason: str) -> None:
    status, frozen = status_initialized(LAB_SPEC, LAB), snapshot(LAB_SPEC, accelerators=LAB)
    found = rested(LAB_SPEC, status, seconds, snapshot=frozen, config=None)
    assert found.reason == reason
    assert "class lab does not exist" in (found.message or "")


def test_a_class_that_goes_under_waiting_pods_leaves_the_diagnosis_alone() -> None:
    status, frozen = status_begun(LAB_SPEC, LAB), snapshot(LAB_SPEC, accelerators=LAB)
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    pods = (pod(ready=False, conditions=[scheduled]),)
    found = rested(LAB_SPEC, status, snapshot=frozen, config=config(), clusters=(cluster(),), pods=pods, nodes=EMPTY)
    assert found.reason == "PodUnschedulable"


def test_blocks_of_ports_that_were_not_seen_are_waited_for_until_the_start_deadline() -> None:
    spec = small_spec({"network": {"mode": "Host"}})
    world = Observed(job(spec, status_initialized(spec)), snapshot=snapshot(spec), config=None)
    late = wrote(decide(world, 1800))
    assert (late.reason, "role needs get and update" in (late.message or "")) == ("StartDeadlineExceeded", True)
    plan = decide(world)
    assert plan.status is None
    assert plan.effects == ()
    assert plan.requeue_after_seconds is not None


def test_a_job_that_an_operator_without_blocks_began_asks_for_one() -> None:
    spec = small_spec({"network": {"mode": "Host"}})
    status = status_initialized(spec)
    del status["resolved"]["hostNetwork"]
    plan = decide(Observed(job(spec, status), snapshot=snapshot(spec), config=None))
    assert plan.status is not None
    assert plan.status["resolved"]["hostNetwork"] is True
    assert requests(job(spec, dict(plan.status)), (), None, NOW).allocations
