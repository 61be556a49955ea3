"""Messages from Kueue's Workload: texts as Kueue 0.16.2 wrote them on a real control plane."""

from __future__ import annotations

import pytest
from builders import Json, cluster, merged

from rljob.api.status import ConditionStatus, FailureCause
from rljob.core.observed import UNSEEN, Unseen
from rljob.core.scheduling.kueue import Admission, find_eviction, is_queued, judge_admission
from rljob.render.labels import KUEUE_PRIORITY, KUEUE_QUEUE

MISSING = (
    "couldn't assign flavors to pod set trainer: insufficient unused quota for huawei.com/Ascend910 in flavor a3, "
    "16 more needed"
)
GONE = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"


def queued(*, suspend: bool = True, labels: Json | None = None) -> Json:
    made = cluster()
    change = {"metadata": {"labels": {KUEUE_QUEUE: "team"} | (labels or {})}, "spec": {"suspend": suspend}}
    return merged(made, change)


def workload(*conditions: tuple[str, str, str, str], active: bool = True, **status: object) -> Json:
    told = [dict(zip(("type", "status", "reason", "message"), row, strict=True)) for row in conditions]
    return {
        "metadata": {"name": "raycluster-sums-1", "namespace": "team", "uid": "workload-uid"},
        "spec": {"active": active, "queueName": "team"},
        "status": {"conditions": told, **status},
    }


def admission_of(found: Json | Unseen | None, *, patient: bool = False, labels: Json | None = None) -> Admission:
    return judge_admission(queued(labels=labels), found, patient=patient)


def test_only_a_cluster_with_a_queue_is_kueues() -> None:
    assert is_queued(queued())
    assert not is_queued(cluster())
    assert not is_queued({"metadata": {}})


@pytest.mark.parametrize("found", [UNSEEN, None, workload(), {"metadata": {}, "spec": {}}])
def test_a_cluster_that_may_run_is_admitted_whatever_its_workload_says(found: Json | Unseen | None) -> None:
    assert judge_admission(queued(suspend=False), found, patient=False) == Admission(
        ConditionStatus.TRUE, "Admitted", ""
    )


def test_the_quota_that_is_used_is_named() -> None:
    found = workload(admission={"clusterQueue": "team-a"})
    assert judge_admission(queued(suspend=False), found, patient=False).message == "ClusterQueue team-a"


def test_missing_quota_is_reported_with_its_numbers() -> None:
    seen = admission_of(
        workload(("QuotaReserved", "False", "Pending", MISSING), ("Admitted", "False", "NoReservation", "none"))
    )
    assert seen == Admission(ConditionStatus.FALSE, "Pending", MISSING)


def test_what_was_evicted_says_why_and_what_is_missing_now() -> None:
    seen = admission_of(
        workload(("Evicted", "True", "Preempted", GONE), ("QuotaReserved", "False", "Pending", MISSING))
    )
    assert (seen.reason, seen.message) == ("Pending", f"{MISSING}; {GONE}")
    soon = admission_of(workload(("Evicted", "True", "Preempted", GONE), ("QuotaReserved", "False", "Pending", GONE)))
    assert soon.message == GONE


def test_an_admission_check_is_reported_when_quota_is_reserved() -> None:
    seen = admission_of(
        workload(("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "False", "UnsatisfiedChecks", "x"))
    )
    assert (seen.reason, seen.message) == ("UnsatisfiedChecks", "x")


@pytest.mark.parametrize("reason", ["", "not a word", "x" * 200])
def test_a_word_that_no_condition_may_hold_is_replaced(reason: str) -> None:
    assert admission_of(workload(("QuotaReserved", "False", reason, "why"))).reason == "WaitingForQueue"


@pytest.mark.parametrize("found", [workload(), {"metadata": {}, "spec": {}}])
def test_a_workload_that_kueue_has_not_judged_waits(found: Json) -> None:
    assert admission_of(found) == Admission(
        ConditionStatus.FALSE, "WaitingForQueue", "LocalQueue team has not admitted the cluster"
    )


def test_a_deactivated_workload_says_how_to_go_on() -> None:
    by_hand = admission_of(workload(active=False))
    assert by_hand.reason == "Deactivated"
    assert by_hand.message == (
        "its spec.active was set to false; set spec.active of Workload raycluster-sums-1 to true to continue"
    )
    assert admission_of(
        workload(("Evicted", "True", "Deactivated", "tried too often"), active=False)
    ).message.startswith("tried")


def test_without_kueues_api_only_the_wait_is_known() -> None:
    seen = admission_of(UNSEEN)
    assert seen.reason == "WaitingForQueue"
    assert "cannot be read" in seen.message


def test_a_missing_workload_is_reported_after_a_while() -> None:
    assert admission_of(None, patient=True).reason == "WaitingForQueue"
    assert admission_of(None) == Admission(
        ConditionStatus.FALSE,
        "NoWorkload",
        "Kueue created no Workload for the RayCluster: is it running, and is ray.io/raycluster among its integrations?",
    )
    assert "WorkloadPriorityClass urgent" in admission_of(None, labels={KUEUE_PRIORITY: "urgent"}).message


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Preempted", FailureCause.PREEMPTION),
        ("Deactivated", FailureCause.PREEMPTION),
        ("ClusterQueueStopped", FailureCause.PREEMPTION),
        ("PodsReadyTimeout", FailureCause.INFRASTRUCTURE),
        ("NodeFailures", FailureCause.INFRASTRUCTURE),
    ],
)
def test_an_eviction_is_never_the_users_failure(reason: str, cause: FailureCause) -> None:
    found = find_eviction(workload(("Evicted", "True", reason, "why")))
    assert found is not None
    assert (found.reason, found.cause, found.message) == (reason, cause, f"Kueue evicted it: {reason}: why")


@pytest.mark.parametrize("found", [UNSEEN, None, workload(), workload(("Evicted", "False", "QuotaReserved", ""))])
def test_what_was_not_evicted_was_not(found: Json | Unseen | None) -> None:
    assert find_eviction(found) is None
