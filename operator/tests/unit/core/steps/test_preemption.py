"""A cluster that was suspended from outside: only a live read confirms it."""

from __future__ import annotations

from builders import NOW, Json, cluster, decide, job, requests, running, status_submitted, wrote

from rljob.core.observed import UNSEEN, Observed, Unseen


def suspended() -> Json:
    made = cluster(ready=1)
    return {**made, "spec": {**made["spec"], "suspend": True}}


def world(live: Json | Unseen | None) -> Observed:
    return running(job=job(status=status_submitted()), clusters=(suspended(),), live_cluster=live)


def test_the_live_cluster_is_asked_for() -> None:
    asked = requests(job(status=status_submitted()), (suspended(),), None, NOW)
    assert asked.cluster_name == suspended()["metadata"]["name"]
    assert requests(job(status=status_submitted()), (cluster(ready=1),), None, NOW).cluster_name is None


def test_a_preemption_stops_the_run() -> None:
    stop = wrote(decide(world(suspended()))).stop
    assert stop is not None
    assert stop.reason == "Preempted"


def test_what_could_not_be_read_is_looked_at_again() -> None:
    plan = decide(world(UNSEEN))
    assert plan.empty
    assert plan.requeue_after_seconds is not None


def test_a_store_that_is_behind_stops_nothing() -> None:
    for live in (cluster(ready=1), None):
        plan = decide(world(live))
        assert plan.status is None or "stop" not in plan.status
