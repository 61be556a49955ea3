"""Clusters that KubeRay has not reconciled."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json, at, cluster, decide, job, merged, pod, reasons, requests, seen, status_initialized, wrote

from rljob.api.status import State
from rljob.core.observed import UNSEEN, Unseen
from rljob.core.plan import Plan
from rljob.core.steps.kuberay import AWAY

LATE = 1800
HOURS = 10_800


def untouched() -> Json:
    """Return the RayCluster as it was created."""
    made = cluster()
    del made["status"]
    return made


def waiting(seconds: float, status: Json | None = None, **facts: Any) -> Plan:  # noqa: ANN401 - fields of Observed
    world: Json = {"clusters": (untouched(),), "pods": ()} | facts
    return decide(seen(job(status=status or status_initialized()), **world), seconds)


def status_away() -> Json:
    """Return the status of a job that waits for KubeRay."""
    return dict(waiting(LATE).status or {})


def test_at_the_start_deadline_the_job_waits_on_and_says_for_whom() -> None:
    plan = waiting(LATE)
    assert (wrote(plan).state, wrote(plan).reason, wrote(plan).message) == (State.STARTING, "WaitingForKubeRay", AWAY)
    assert reasons(plan)["ClusterReady"] == ("False", "WaitingForKubeRay")
    assert plan.events == ()


@pytest.mark.parametrize("pods", [(), UNSEEN], ids=["looked at", "not looked at"])
def test_it_is_reported_once_and_then_only_its_events_are_requested(pods: tuple[Json, ...] | Unseen) -> None:
    assert waiting(HOURS, status_away(), pods=pods) == Plan(requeue_after_seconds=300.0)
    asked = requests(job(status=status_away()), (untouched(),), None, at(HOURS))
    assert (asked.pods, asked.cluster_events) == (None, True)


def test_before_the_deadline_nothing_changes() -> None:
    assert wrote(waiting(LATE - 1)).message == "no pod exists yet"


def test_pods_that_were_not_looked_at_may_be_there() -> None:
    assert waiting(LATE, pods=UNSEEN) == Plan(requeue_after_seconds=60.0)


def refusal(uid: str = "cluster-uid", reason: str = "InvalidRayClusterSpec") -> Json:
    """Return KubeRay's event about a cluster that it rejects."""
    note = "The RayCluster spec is invalid team/sums: minimum Ray version is 2.52.0, got 2.51.0"
    return {"reason": reason, "note": note, "regarding": {"kind": "RayCluster", "uid": uid}}


def test_a_cluster_that_kuberay_refuses_is_not_waited_for() -> None:
    """It has no status either: only an event tells."""
    assert not requests(job(status=status_initialized()), (untouched(),), None, at(869)).cluster_events
    assert requests(job(status=status_initialized()), (untouched(),), None, at(870)).cluster_events
    assert not requests(job(status=status_initialized()), (cluster(),), None, at(LATE)).cluster_events
    for status, seconds in ((status_initialized(), 900), (status_initialized(), LATE), (status_away(), HOURS)):
        told = wrote(waiting(seconds, status, cluster_events=(refusal(),)))
        assert (told.state, told.reason) == (State.FAILED, "InvalidManifest")
        assert "minimum Ray version is 2.52.0, got 2.51.0; correct" in str(told.message)


def test_words_about_another_cluster_or_of_another_kind_are_none() -> None:
    for other in (refusal("former"), refusal(reason="CreatedWorkload")):
        assert wrote(waiting(LATE, cluster_events=(other,))).message == AWAY


@pytest.mark.parametrize(
    "facts",
    [{"clusters": (cluster(),)}, {"head_pod": pod(ready=False)}, {"pods": (pod(ready=False),)}],
    ids=["status", "head", "pods"],
)
def test_what_kuberay_looked_at_ends_at_the_start_deadline(facts: Json) -> None:
    assert wrote(waiting(LATE, **facts)).reason == "StartDeadlineExceeded"


@pytest.mark.parametrize(
    "facts",
    [{"clusters": (cluster(),)}, {"head_pod": pod(ready=False)}, {"pods": (pod(ready=False),)}],
    ids=["status", "head", "pods"],
)
def test_the_clock_begins_when_kuberay_is_back(facts: Json) -> None:
    plan = waiting(HOURS, status_away(), **facts)
    intent = wrote(plan).intent
    assert (wrote(plan).state, wrote(plan).reason) == (State.STARTING, "ClusterStarting")
    assert intent is not None
    assert intent.start_deadline == "2026-01-01T15:30:00Z"
    begun = dict(plan.status or {})
    assert waiting(HOURS + LATE - 1, begun, **facts).status is not None
    assert wrote(waiting(HOURS + LATE, begun, **facts)).reason == "StartDeadlineExceeded"


def test_what_is_there_is_asked_for_when_kuberay_is_back() -> None:
    asked = requests(job(status=status_away()), (untouched(),), pod(ready=False), at(HOURS))
    assert asked.pods is not None


def test_a_queue_has_the_word_while_it_holds_the_cluster_back() -> None:
    held = untouched()
    held["spec"]["suspend"] = True
    held["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    queued = waiting(HOURS, clusters=(held,))
    assert wrote(queued).state is State.QUEUED
    let_go = merged(held, {"spec": {"suspend": False}})
    admitted = waiting(HOURS, dict(queued.status or {}), clusters=(let_go,))
    assert (wrote(admitted).reason, wrote(admitted).message) == ("NoPods", "no pod exists yet")
    assert wrote(waiting(HOURS + LATE, dict(admitted.status or {}), clusters=(let_go,))).message == AWAY


@pytest.mark.parametrize(("seen", "message"), [(1, AWAY), (2, "NoPods: no pod exists yet")])
def test_what_kuberay_says_of_a_suspended_cluster_is_nothing_once_its_queue_let_it_go(seen: int, message: str) -> None:
    held = untouched()
    held["spec"]["suspend"] = True
    held["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": "team"}, "generation": 1}
    held["status"] = {"state": "suspended", "observedGeneration": 1}
    queued = waiting(HOURS, clusters=(held,))
    spec = {"spec": {"suspend": False}, "metadata": {"generation": 2}, "status": {"observedGeneration": seen}}
    let_go = merged(held, spec)
    admitted = waiting(HOURS, dict(queued.status or {}), clusters=(let_go,))
    assert message in str(wrote(waiting(HOURS + LATE, dict(admitted.status or {}), clusters=(let_go,))).message)
