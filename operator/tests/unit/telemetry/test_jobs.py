"""Changes of jobs are counted once, by namespace and queue; gauges describe the existing jobs."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json, at, job, merged, status_recorded, status_training

from rljob.api.lifecycle import Restart
from rljob.telemetry import ledger
from rljob.telemetry.ledger import Ledger
from rljob.telemetry.metrics import Metrics

PLACE = {"rljob_namespace": "team", "queue": "a"}
CONDITION = {"message": "", "lastTransitionTime": "2026-01-01T12:00:00Z", "status": "False"}


class Page:
    """A ledger for the statuses of one job, and what Prometheus would read."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.ledger = Ledger(self.metrics)
        self.versions = 0

    def see(self, seconds: float, status: Json, restart: Restart | None = None) -> None:
        self.versions += 1
        found = job(status=status, resourceVersion=str(self.versions))
        self.ledger.note(found, "a", at(seconds), restart)
        self.ledger.refresh([(found, "a")], at(seconds))

    def read(self, name: str, **labels: str) -> float | None:
        place = {} if name.startswith("state_duration") else PLACE
        return self.metrics.registry.get_sample_value(f"rljob_operator_{name}", place | labels)


@pytest.fixture
def page() -> Page:
    return Page()


def training(**change: Any) -> Json:  # noqa: ANN401 - JSON
    return merged(status_training(), change)


def ended(outcome: str, last_step: int, **change: Any) -> Json:  # noqa: ANN401 - JSON
    status = training(**change)
    attempt = status["attempts"][-1] | {"outcome": outcome, "endTime": "2026-01-01T12:10:00Z", "lastStep": last_step}
    return status | {"attempts": [attempt]}


def queued() -> Json:
    waiting = {"type": "ClusterReady", "reason": "WaitingForQueue"} | CONDITION
    return merged(status_recorded(), {"state": "Queued", "conditions": [waiting]})


def test_jobs_are_counted_by_state_and_states_without_jobs_are_zero(page: Page) -> None:
    page.see(0, training())
    assert page.read("jobs", state="Training") == 1
    assert page.read("jobs", state="Suspended") == 0


def test_a_place_without_jobs_has_no_gauges_and_keeps_its_counters(page: Page) -> None:
    page.see(0, training())
    page.ledger.refresh([], at(1))
    assert page.read("jobs", state="Training") is None
    assert page.read("restarts_total", cause="User") == 0


def test_what_befell_a_job_before_this_process_is_not_counted(page: Page) -> None:
    page.see(0, ended("Failed", 5, restarts=3, counters={"userFailures": 3}, state="Failed"))
    assert page.read("restarts_total", cause="User") == 0
    assert page.read("attempts_total", outcome="Failed", saved="false") == 0
    assert page.read("jobs_finished_total", state="Failed") == 0


def test_a_restart_is_counted_by_whose_failure_it_followed(page: Page) -> None:
    page.see(0, training())
    page.see(1, training(restarts=1, counters={"infrastructureFailures": 1}))
    page.see(2, training(restarts=2, counters={"infrastructureFailures": 1, "preemptions": 1}))
    assert page.read("restarts_total", cause="Infrastructure") == 1
    assert page.read("restarts_total", cause="Preemption") == 1
    assert page.read("restarts_total", cause="User") == 0


def test_a_failure_that_ends_the_job_is_no_restart(page: Page) -> None:
    page.see(0, training())
    page.see(1, training(counters={"userFailures": 1}, state="Failed"))
    assert page.read("restarts_total", cause="User") == 0
    assert page.read("jobs_finished_total", state="Failed") == 1


def test_a_lost_status_takes_nothing_back(page: Page) -> None:
    page.see(0, training())
    page.see(1, training(restarts=1, counters={"userFailures": 1}))
    page.see(2, {})
    page.see(3, training(restarts=1, counters={"userFailures": 1}))
    assert page.read("restarts_total", cause="User") == 2


def test_an_attempt_is_counted_when_it_ends_and_once(page: Page) -> None:
    saved = {"checkpoint": {"step": 7, "path": "/data", "savedTime": "2026-01-01T12:00:00Z"}}
    page.see(0, training())
    page.see(1, ended("Preempted", 7, **saved))
    page.see(2, ended("Preempted", 7, **saved))
    assert page.read("attempts_total", outcome="Preempted", saved="true") == 1
    assert page.read("attempts_total", outcome="Preempted", saved="false") == 0


def test_an_attempt_with_unsaved_steps_is_counted_as_unsaved(page: Page) -> None:
    page.see(0, training())
    page.see(1, ended("Lost", 7))
    assert page.read("attempts_total", outcome="Lost", saved="false") == 1


def test_a_deadline_counts_once_from_the_stop_to_the_end(page: Page) -> None:
    word = "ProgressDeadlineExceeded"
    stop = {
        "reason": word,
        "mode": "Stalled",
        "requestedTime": "2026-01-01T12:00:00Z",
        "deadline": "2026-01-01T12:05:00Z",
    }
    page.see(0, training())
    page.see(1, training(stop=stop))
    page.see(2, training(stop=stop | {"reason": "Restarting"}, reason=word, state="Restarting"))
    page.see(2.5, training(reason=word, state="Restarting"))
    assert page.read("deadlines_exceeded_total", deadline="Progress") == 1
    page.see(3, training())
    page.see(4, training(stop=stop))
    assert page.read("deadlines_exceeded_total", deadline="Progress") == 2


def test_the_wait_in_the_queue_is_measured_when_it_ends(page: Page) -> None:
    page.see(50, queued())
    assert page.read("longest_queued_seconds") == 50
    page.see(90, status_recorded())
    assert page.read("longest_queued_seconds") == 0
    assert page.read("job_queue_wait_seconds_sum") == 90
    assert page.read("job_queue_wait_seconds_count") == 1


def test_a_job_that_leaves_the_queue_otherwise_was_not_admitted(page: Page) -> None:
    page.see(50, queued())
    page.see(90, merged(status_recorded(), {"state": "Stopping"}))
    assert page.read("job_queue_wait_seconds_count") == 0


def test_a_state_is_timed_when_its_begin_was_seen(page: Page) -> None:
    page.see(0, status_recorded())
    page.see(10, training())
    page.see(40, training(state="Stopping"))
    assert page.read("state_duration_seconds_count", state="Starting") is None
    assert page.read("state_duration_seconds_sum", state="Training") == 30


def test_ages_are_those_of_the_oldest(page: Page) -> None:
    suspended = {"type": "Suspended", "reason": "Suspended"} | CONDITION | {"status": "True"}
    held = job(status=merged(status_recorded(), {"state": "Suspended", "conditions": [suspended]}), uid="held")
    young = status_training()
    young["attempts"][0]["submittedTime"] = "2026-01-01T12:05:00Z"
    jobs = [job(status=status_training()), job(status=young, uid="young"), held]
    page.ledger.refresh([(found, "a") for found in jobs], at(700))
    assert page.read("oldest_step_seconds") == 700
    assert page.read("oldest_checkpoint_seconds") == 700
    assert page.read("longest_suspended_seconds") == 700
    assert page.read("jobs_stalled") == 1


def test_a_silent_head_is_counted(page: Page) -> None:
    page.see(
        0, training(conditions=[{"type": "Progressing", "reason": "HeadSilent"} | CONDITION | {"status": "Unknown"}])
    )
    assert page.read("jobs_silent") == 1


def test_a_spent_budget_is_counted_as_long_as_it_is_spent(page: Page) -> None:
    restart = Restart(max_restarts=1)
    page.see(0, training(budget={"userFailures": 1}))
    assert page.read("jobs_restart_budget_spent") == 0
    page.see(1, training(budget={"userFailures": 1}), restart)
    assert page.read("jobs_restart_budget_spent") == 1
    page.see(2, training(budget={"userFailures": 0}))
    assert page.read("jobs_restart_budget_spent") == 0


def series(metrics: Metrics) -> int:
    return sum(not line.startswith(b"#") for line in metrics.exposition().splitlines())


def many(jobs: int, namespaces: int, status: Json) -> list[tuple[Json, str]]:
    made = [job(status=status, uid=f"u{number}", namespace=f"team-{number % namespaces}") for number in range(jobs)]
    return [(found, "") for found in made]


def test_a_thousand_jobs_have_as_many_series_as_one_in_each_of_their_namespaces() -> None:
    used = training(usage={"deviceSeconds": 10})
    alone, crowd, metrics = Metrics(), Metrics(), Metrics()
    Ledger(alone).refresh(many(1, 1, used), at(0))
    Ledger(crowd).refresh(many(1000, 50, used), at(0))
    fixed = series(metrics)
    assert series(crowd) - fixed == 50 * (series(alone) - fixed)
    assert b"team-49" in crowd.exposition()


def test_beyond_the_limit_of_places_no_series_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PLACES_MAX", 10)
    used = training(usage={"deviceSeconds": 10})
    first, more, metrics = Metrics(), Metrics(), Metrics()
    Ledger(first).refresh(many(11, 11, used), at(0))
    Ledger(more).refresh(many(100, 100, used), at(0))
    assert series(more) == series(first) > series(metrics)


def test_no_series_names_a_job() -> None:
    metrics = Metrics()
    Ledger(metrics).refresh([(job(status=status_training(), name="secret-project"), "a")], at(0))
    assert b"secret-project" not in metrics.exposition()


def test_what_a_recovery_cost_is_counted_once_at_its_first_step(page: Page) -> None:
    status = training()
    again = status["attempts"][-1] | {"number": 2, "recovery": [{"cause": "Detection", "seconds": 4}]}
    page.see(0, ended("Lost", 3))
    for seconds in (600, 601):
        page.see(seconds, status | {"attempts": [status["attempts"][-1], again]})
    assert page.read("recovery_seconds_total", cause="Detection") == 4
    assert page.read("recovery_seconds_total", cause="Queue") == 0
