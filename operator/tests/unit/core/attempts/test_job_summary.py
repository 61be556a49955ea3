"""The summary of a job from its status: what it waits for, since when, and its failure history."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json, at, merged, status_begun, status_recorded, status_training

from rljob.api.lifecycle import Restart
from rljob.api.status import AttemptOutcome, FailureCause, RLJobStatus, State
from rljob.core.attempts.job_summary import Deadline, EndedAttempt, Standing, standing


def of(status: Json, **change: Any) -> Standing:  # noqa: ANN401 - JSON
    return standing(RLJobStatus.model_validate(merged(status, change)))


def with_attempt(**change: Any) -> Json:  # noqa: ANN401 - JSON
    status = status_training()
    return status | {"attempts": [status["attempts"][-1] | change]}


def ended(outcome: str, **change: Any) -> Json:  # noqa: ANN401 - JSON
    return with_attempt(**{"outcome": outcome, "endTime": "2026-01-01T12:10:00Z", "lastStep": 7} | change)


def saved(step: int) -> Json:
    return {"step": step, "path": "/data", "savedTime": "2026-01-01T12:00:40Z"}


def with_condition(before: Json, kind: str, **change: str) -> Json:
    others = [entry for entry in before["conditions"] if entry["type"] != kind]
    told = {
        "type": kind,
        "status": "False",
        "reason": "Any",
        "message": "",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    return before | {"conditions": [*others, told | change]}


def test_a_job_without_a_status_has_not_begun() -> None:
    found = standing(RLJobStatus())
    assert (found.state, found.run, found.queued_since, found.deadline) == (State.PENDING, None, None, None)


def test_steps_are_missing_after_three_usual_ones_and_ten_minutes() -> None:
    short = of(status_training(), progress={"medianStepSeconds": "10"})
    assert [short.stalled(at(seconds)) for seconds in (599, 601)] == [False, True]
    long = of(status_training(), progress={"medianStepSeconds": "1000"})
    assert [long.stalled(at(seconds)) for seconds in (2999, 3001)] == [False, True]
    seldom = of(status_training(), progress={"medianStepSeconds": "10", "recordSeconds": "1000"})
    assert [seldom.stalled(at(seconds)) for seconds in (2999, 3001)] == [False, True]


@pytest.mark.parametrize("told", ["NaN", "Inf"])
def test_a_step_that_lasts_nobody_knows_how_long_is_never_missing(told: str) -> None:
    assert not of(status_training(), progress={"medianStepSeconds": told}).stalled(at(1e9))


def test_where_no_step_was_timed_ten_minutes_are_the_measure() -> None:
    assert of(status_training(), progress={"medianStepSeconds": None, "stepSeconds": None}).stalled(at(601))


def test_a_run_that_loads_its_model_has_no_steps_to_miss() -> None:
    assert not of(status_training(), state="Starting").stalled(at(1e9))


def test_what_a_loss_would_cost_is_counted_from_the_last_checkpoint_or_the_submission() -> None:
    later = with_attempt(submittedTime="2026-01-01T12:00:30Z")
    unsaved, fresh, old = of(later), of(later, checkpoint=saved(3)), of(with_attempt(), checkpoint=saved(3))
    assert unsaved.run is not None
    assert unsaved.run.saved_time == at(30)
    assert fresh.run is not None
    assert fresh.run.saved_time == at(40)
    assert old.run is not None
    assert old.run.saved_time == at(40)


def test_steps_of_an_earlier_attempt_do_not_age_this_one() -> None:
    found = of(with_attempt(submittedTime="2026-01-01T13:00:00Z")).run
    assert found is not None
    assert found.step_time == at(3600)


def test_an_attempt_that_was_only_submitted_is_as_old_as_its_submission() -> None:
    found = of(with_attempt(submittedTime="2026-01-01T12:00:05Z") | {"progress": None}).run
    assert found is not None
    assert found.step_time == at(5)


def test_a_run_that_ended_or_is_being_stopped_is_not_under_way() -> None:
    stop = {"reason": "Suspended", "mode": "AfterStep", "requestedTime": "2026-01-01T12:00:00Z"}
    assert of(ended("Failed")).run is None
    assert of(status_training(), stop=stop | {"deadline": "2026-01-01T12:05:00Z"}).run is None


@pytest.mark.parametrize(
    ("attempt", "checkpoint", "kept"),
    [
        (ended("Preempted"), 7, True),
        (ended("Preempted"), 6, False),
        (ended("Lost"), None, False),
        (ended("Stopped", resumedFromStep=7), None, True),
        (ended("Succeeded"), None, True),
        (ended("Failed", startTime=None), None, True),
    ],
)
def test_steps_are_lost_where_no_checkpoint_holds_them(attempt: Json, checkpoint: int | None, kept: bool) -> None:
    change = {"checkpoint": saved(checkpoint)} if checkpoint is not None else {}
    (found,) = of(attempt, **change).ended
    assert found == EndedAttempt(1, AttemptOutcome(attempt["attempts"][0]["outcome"]), kept)


def test_a_job_waits_for_its_queue_since_its_intent_or_since_its_pods_were_taken() -> None:
    first = with_condition(status_recorded() | {"state": "Queued"}, "ClusterReady", reason="WaitingForQueue")
    taken = with_condition(first, "ClusterReady", reason="WaitingForQueue", lastTransitionTime="2026-01-01T12:30:00Z")
    assert of(first, intent={"time": "2026-01-01T12:00:07Z"}).queued_since == at(7)
    assert of(taken, intent={"time": "2026-01-01T12:00:07Z"}).queued_since == at(1800)


def test_a_job_that_waits_for_pods_or_for_nothing_is_in_no_queue() -> None:
    queued = status_recorded() | {"state": "Queued"}
    waiting = with_condition(queued, "ClusterReady", reason="WaitingForQueue")
    assert of(with_condition(queued, "ClusterReady", reason="PodUnschedulable")).queued_since is None
    assert of(waiting, state="Suspended").queued_since is None
    assert of(status_begun(), conditions=[]).queued_since is None
    assert of(waiting, intent=None).queued_since is None


def test_a_suspended_job_says_since_when() -> None:
    told = with_condition(status_training(), "Suspended", status="True", lastTransitionTime="2026-01-01T12:00:09Z")
    assert of(told, state="Suspended").suspended_since == at(9)
    assert of(told).suspended_since is None
    assert of(status_begun(), state="Suspended", conditions=[]).suspended_since is None


def test_a_head_that_does_not_answer_is_silent_and_one_that_may_not_is_not() -> None:
    assert of(with_condition(status_training(), "Progressing", status="Unknown", reason="HeadSilent")).silent
    assert not of(with_condition(status_training(), "Progressing", status="Unknown", reason="Other")).silent
    assert not of(with_condition(status_training(), "Progressing", status="False", reason="HeadSilent")).silent
    assert not of(status_begun()).silent


def test_a_deadline_shows_in_the_stop_and_in_the_end() -> None:
    stop = {"mode": "Immediate", "requestedTime": "2026-01-01T12:00:00Z", "deadline": "2026-01-01T12:05:00Z"}
    assert of(status_training(), stop=stop | {"reason": "ProgressDeadlineExceeded"}).deadline is Deadline.PROGRESS
    assert of(status_training(), reason="ActiveDeadlineExceeded").deadline is Deadline.ACTIVE
    assert of(status_training(), reason="StartDeadlineExceeded").deadline is Deadline.START
    assert of(status_training(), reason=None).deadline is None


def test_a_budget_is_spent_when_the_next_failure_of_a_kind_ends_the_job() -> None:
    restart = Restart(max_restarts=2, max_infrastructure_restarts=5)
    assert of(status_training(), budget={"userFailures": 2}).spent(restart)
    assert of(status_training(), budget={"infrastructureFailures": 5}).spent(restart)
    assert not of(status_training(), budget={"userFailures": 1, "infrastructureFailures": 4}).spent(restart)
    assert not of(status_training(), budget={"userFailures": 3}, state="Failed").spent(restart)


def test_a_budget_that_a_newer_checkpoint_renews_is_not_spent() -> None:
    restart, budget = Restart(max_restarts=2), {"userFailures": 2, "sinceStep": 5}
    assert of(status_training(), budget=budget, checkpoint=saved(5)).spent(restart)
    assert not of(status_training(), budget=budget, checkpoint=saved(6)).spent(restart)


def test_a_job_that_wanted_no_restarts_has_spent_none() -> None:
    assert not of(status_training(), budget={"userFailures": 1}).spent(Restart())


def test_failures_are_counted_by_cause() -> None:
    counters = {"userFailures": 1, "infrastructureFailures": 2, "preemptions": 3}
    assert of(status_training(), counters=counters).failures == {
        FailureCause.USER: 1,
        FailureCause.INFRASTRUCTURE: 2,
        FailureCause.PREEMPTION: 3,
    }
