"""The condition Admitted from the creation of the cluster to the pods, and back when Kueue preempts them."""

from __future__ import annotations

from builders import (
    IDLE,
    Json,
    cluster,
    decide,
    job,
    merged,
    pod,
    reasons,
    running,
    seen,
    status_after,
    status_recorded,
    status_submitted,
    wrote,
)

from rljob.api.status import ConditionType, FailureCause, State
from rljob.core.attempts.job_summary import standing
from rljob.core.observed import Observed
from rljob.core.plan import Plan
from rljob.core.status import condition
from rljob.render.labels import KUEUE_QUEUE

MORE = "insufficient unused quota for huawei.com/Ascend910 in flavor a3, 16 more needed"
LESS = MORE.replace("16", "8")


def queued(*, suspend: bool = True, ready: int = 0) -> Json:
    return merged(cluster(ready), {"metadata": {"labels": {KUEUE_QUEUE: "team"}}, "spec": {"suspend": suspend}})


def workload(kind: str, value: str, reason: str, message: str) -> Json:
    told = [{"type": kind, "status": value, "reason": reason, "message": message}]
    admission = {"clusterQueue": "team-a"}
    return {"metadata": {"name": "w", "uid": "w"}, "spec": {}, "status": {"conditions": told, "admission": admission}}


PENDING = workload("QuotaReserved", "False", "Pending", MORE)
ADMITTED = workload("Admitted", "True", "Admitted", "")
EVICTED = workload("Evicted", "True", "NodeFailures", "node-1 does not answer")


def waits(status: Json | None = None, found: Json | None = PENDING) -> Plan:
    return decide(seen(job(status=status or status_recorded()), clusters=(queued(),), pods=(), workload=found))


def preempted(status: Json, found: Json | None, **facts: object) -> Observed:
    live = queued(ready=1)
    return running(job=job(status=status), clusters=(live,), live_cluster=live, workload=found, **facts)


def test_a_waiting_job_says_what_is_missing() -> None:
    plan = waits()
    status = wrote(plan)
    assert reasons(plan)["Admitted"] == ("False", "Pending")
    assert reasons(plan)["ClusterReady"] == ("False", "WaitingForQueue")
    assert (status.state, status.reason, status.message) == (State.QUEUED, "WaitingForQueue", MORE)
    assert plan.events == ()
    assert standing(status).queued_since is not None, "for the metrics too"


def test_the_same_again_is_not_written_and_other_numbers_are() -> None:
    told = status_after(waits())
    assert waits(told).empty
    assert wrote(waits(told, workload("QuotaReserved", "False", "Pending", LESS))).message == LESS


def test_admission_is_reported_with_the_pods_and_stays() -> None:
    started = {"clusters": (queued(suspend=False),), "pods": (), "workload": ADMITTED}
    admitted = decide(seen(job(status=status_after(waits())), **started))
    found = condition(wrote(admitted), ConditionType.ADMITTED)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("True", "Admitted", "ClusterQueue team-a")
    ready = {"clusters": (queued(suspend=False, ready=1),), "head_pod": pod(), "progress": IDLE, "workload": None}
    intended = decide(seen(job(status=status_after(admitted)), **ready))
    assert condition(wrote(intended), ConditionType.ADMITTED) == found


def test_a_cluster_that_was_admitted_before_anybody_looked_is_admitted_all_the_same() -> None:
    ready = {"clusters": (queued(suspend=False, ready=1),), "head_pod": pod(), "progress": IDLE, "workload": ADMITTED}
    assert reasons(decide(seen(job(status=status_recorded()), **ready)))["Admitted"] == ("True", "Admitted")


def test_a_job_without_a_queue_has_no_such_condition() -> None:
    plan = decide(seen(job(status=status_recorded()), clusters=(cluster(ready=1),), head_pod=pod(), progress=IDLE))
    assert "Admitted" not in reasons(plan)


def test_a_run_that_kueue_evicts_stops_for_kueues_reason() -> None:
    stop = wrote(decide(preempted(status_submitted(), EVICTED))).stop
    assert stop is not None
    assert (stop.reason, stop.message) == ("Preempted", "Kueue evicted it: NodeFailures: node-1 does not answer")


def test_the_attempt_is_closed_for_it_and_costs_no_budget() -> None:
    stopping = status_after(decide(preempted(status_submitted(), None)))
    plan = decide(preempted(stopping, EVICTED, head_pod=None, pods=()), 1000)
    status = wrote(plan)
    attempt = status.attempts[-1]
    assert (attempt.reason, attempt.cause, attempt.outcome) == (
        "NodeFailures",
        FailureCause.INFRASTRUCTURE,
        "Preempted",
    )
    assert attempt.message is not None
    assert attempt.message.startswith("Kueue evicted it")
    assert (status.counters.infrastructure_failures, status.counters.preemptions) == (1, 0)
    assert status.budget.infrastructure_failures == 0
    assert (status.state, reasons(plan)["Admitted"][0]) == (State.QUEUED, "False")
