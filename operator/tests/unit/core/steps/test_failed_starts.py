"""A start that failed before a submission is recorded like an attempt, with what it held."""

from __future__ import annotations

import pytest
from builders import (
    CLUSTER_NAME,
    NOW,
    Json,
    at,
    cluster,
    config,
    decide,
    job,
    merged,
    pod,
    seen,
    status_recorded,
    wrote,
)

from rljob.api.status import Attempt, AttemptOutcome
from rljob.core import times
from rljob.core.observed import UNSEEN, Observed

LATE = 1800.0


def worker(placed: float | None) -> Json:
    """Return a worker that was scheduled that many seconds after NOW."""
    told = {"type": "PodScheduled", "status": "False" if placed is None else "True"}
    told["lastTransitionTime"] = times.to_text(at(placed or 0))
    made = pod(f"w-{placed}", f"w-{placed}", ready=False, conditions=[told])
    labelled = {"metadata": {"labels": {"ray.io/node-type": "worker"}}}
    return merged(merged(made, labelled), {"spec": {} if placed is None else {"nodeName": "n1"}})


def late(*pods: Json, status: Json | None = None, unseen: bool = False) -> Observed:
    told = status or merged(status_recorded(), {"intent": {"startDeadline": times.to_text(at(LATE))}})
    return seen(job(status=told), clusters=(cluster(),), pods=UNSEEN if unseen else pods)


def recorded(observed: Observed, seconds: float = LATE) -> Attempt:
    return wrote(decide(observed, seconds)).attempts[-1]


def test_a_start_that_failed_is_recorded_with_its_cause() -> None:
    new = wrote(decide(late(worker(0)), LATE))
    (attempt,) = new.attempts
    assert (attempt.number, attempt.cluster_name, attempt.submission_id) == (1, CLUSTER_NAME, f"{CLUSTER_NAME}-1")
    assert (attempt.outcome, attempt.reason, attempt.cause) == (
        AttemptOutcome.LOST,
        "StartDeadlineExceeded",
        "Infrastructure",
    )
    assert attempt.message is not None
    assert attempt.message in str(new.message)
    assert (attempt.submitted_time, attempt.end_time) == ("2026-01-01T11:59:30Z", times.to_text(at(LATE)))
    assert attempt.start_time is None


@pytest.mark.parametrize(
    ("pods", "held"),
    [((), 0), ((worker(None),), 0), ((worker(1000),), 1600), ((worker(-500), pod(ready=False)), 3660)],
    ids=["none", "without a node", "late", "of before the cluster, and a head"],
)
def test_it_held_the_devices_of_workers_that_had_nodes(pods: tuple[Json, ...], held: int) -> None:
    new = wrote(decide(late(*pods), LATE))
    assert (new.attempts[0].device_seconds, new.attempts[0].productive_device_seconds) == (held, 0)
    assert (new.usage.device_seconds, new.usage.attempt_seconds) == (held, LATE + 30)


def test_what_could_not_be_looked_at_is_not_counted() -> None:
    assert recorded(late(unseen=True)).device_seconds == 0


def test_what_a_queue_held_back_began_when_it_was_let_go() -> None:
    admitted = {"type": "Admitted", "status": "True", "reason": "Admitted"}
    status = status_recorded()
    status["conditions"] = [*status["conditions"], {**admitted, "lastTransitionTime": times.to_text(at(600))}]
    assert recorded(late(status=status)).submitted_time == times.to_text(at(600))


@pytest.mark.parametrize("live", [None, cluster(uid="another")])
def test_a_cluster_that_is_lost_on_the_way_is_recorded_too(live: Json | None) -> None:
    found = () if live is None else (live,)
    attempt = recorded(seen(job(status=status_recorded()), clusters=found, live_cluster=live), 100.0)
    assert (attempt.reason, attempt.submitted_time) == ("ClusterLost", times.to_text(NOW))


def test_between_two_drivers_it_began_when_the_first_had_ended() -> None:
    ended = times.to_text(at(1000))
    first = {"number": 3, "clusterName": CLUSTER_NAME, "submissionId": f"{CLUSTER_NAME}-3", "endTime": ended}
    status = status_recorded() | {"attempts": [{**first, "submittedTime": times.to_text(NOW)}]}
    attempt = recorded(late(worker(0), status=status))
    assert (attempt.number, attempt.submitted_time, attempt.device_seconds) == (4, ended, 1600)


def queued(value: str, seconds: float) -> Json:
    return {"type": "Admitted", "status": value, "reason": "Any", "lastTransitionTime": times.to_text(at(seconds))}


def test_days_in_the_queue_after_a_preemption_are_no_part_of_the_next_start() -> None:
    ended, let_go = times.to_text(at(100)), at(3 * 86400)
    first = {"number": 1, "clusterName": CLUSTER_NAME, "submissionId": f"{CLUSTER_NAME}-1", "endTime": ended}
    status = status_recorded() | {"attempts": [{**first, "submittedTime": times.to_text(NOW)}]}
    status["conditions"] = [*status["conditions"], queued("True", 3 * 86400)]
    status = merged(status, {"intent": {"startDeadline": times.to_text(at(3 * 86400 + LATE))}})
    new = wrote(decide(late(status=status), 3 * 86400 + LATE))
    assert new.attempts[-1].submitted_time == times.to_text(let_go)
    assert new.usage.attempt_seconds == LATE


@pytest.mark.parametrize(("value", "lasted"), [("False", 0), ("True", 1000)], ids=["in the queue", "let go"])
def test_a_cluster_that_is_lost_after_days_in_the_queue_has_not_started_for_days(value: str, lasted: int) -> None:
    status = status_recorded()
    status["conditions"] = [*status["conditions"], queued(value, 5 * 86400)]
    new = wrote(decide(seen(job(status=status), live_cluster=None), 5 * 86400 + 1000))
    assert (new.attempts[-1].reason, new.usage.attempt_seconds) == ("ClusterLost", lasted)


def test_a_start_that_made_no_cluster_is_no_attempt() -> None:
    begun = merged(status_recorded(), {"intent": {"clusterUID": None}})
    assert wrote(decide(seen(job(status=begun), config=config()), LATE)).attempts == []
