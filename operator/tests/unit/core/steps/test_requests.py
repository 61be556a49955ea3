"""spec.stop.requested and the annotation rljob.dev/restart, decision by decision."""

from __future__ import annotations

import pytest
from builders import (
    CLUSTER_NAME,
    SUBMISSION_ID,
    Json,
    answer,
    at,
    cluster,
    decide,
    job,
    merged,
    reasons,
    running,
    saving,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_begun,
    status_finished,
    status_initialized,
    status_intended,
    status_submitted,
    wrote,
)

from rljob.api.status import AttemptOutcome, ConditionType, FailureCause, State
from rljob.core import status, times
from rljob.core.observed import Observed, RayJob, RayJobState
from rljob.core.plan import DeleteObject, EventType, Plan, StopRun
from rljob.render.labels import PAUSED, RESTART
from rljob_runtime.contract import Outcome, Phase, StopMode

SAVING = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 100}}))
ENDED = merged(SAVING, {"stop": {"requested": True}})
AT_ONCE = merged(ENDED, {"stop": {"mode": "Immediate"}})
SUSPENDED = merged(SAVING, {"suspend": True})
EDITED: Json = {"generation": 2}
SAVED = answer(
    {
        "phase": Phase.ENDED,
        "outcome": Outcome(66, "Stopped", "saved step 3", last_step=3),
        "checkpoint_step": 3,
        "checkpoint_time": at(5).timestamp(),
    }
)
SINCE = times.to_text(at(0))
BROKEN = {"trainer": {"steps": "many"}}


def world(spec: Json, status: Json | None = None, **facts: object) -> Observed:
    known = {"snapshot": snapshot(SAVING), "progress": answer()} | facts
    return running(job=job(spec, status or status_submitted(), **EDITED), **known)


def stopping(spec: Json = ENDED) -> Json:
    return status_after(decide(world(spec)))


def gone(spec: Json, status: Json, **metadata: object) -> Observed:
    """Return the observation of a job of which no cluster and no pod is left."""
    return seen(job(spec, status, **EDITED | metadata), snapshot=snapshot(SAVING), pods=(), live_cluster=None)


def suspended() -> Json:
    """Return the status of a job that was suspended after step 3."""
    begun = status_after(decide(world(SUSPENDED)))
    closed = status_after(decide(world(SUSPENDED, begun, progress=SAVED)))
    return status_after(decide(gone(SUSPENDED, closed)))


def finished() -> Json:
    return status_after(decide(world(ENDED, stopping(), progress=SAVED), 10))


# spec.stop.requested.


def test_a_run_is_asked_to_save_before_its_job_ends() -> None:
    plan = decide(world(ENDED))
    told = wrote(plan).stop
    assert told is not None
    assert (told.reason, told.mode, told.deadline) == ("StopRequested", "AfterStep", times.to_text(at(100)))
    assert (wrote(plan).state, plan.events[0].type) == (State.STOPPING, EventType.NORMAL)
    (asked,) = decide(world(ENDED, status_after(plan)), 1).effects
    assert isinstance(asked, StopRun)
    assert asked.mode is StopMode.AFTER_STEP


def test_the_job_finishes_as_stopped_with_its_checkpoint_and_its_usage() -> None:
    plan = decide(world(ENDED, stopping(), progress=SAVED), 10)
    new = wrote(plan)
    assert (new.state, reasons(plan)["Finished"]) == (State.STOPPED, ("True", "Stopped"))
    assert "after step 3, with the checkpoint of step 3" in str(new.message)
    assert (new.attempts[-1].outcome, new.attempts[-1].cause) == (AttemptOutcome.STOPPED, None)
    assert (new.usage.attempt_seconds, new.restarts, new.counters.user_failures) == (10, 0, 0)
    assert new.checkpoint is not None
    assert plan.events[0].type is EventType.NORMAL


def test_the_cluster_of_a_stopped_job_is_deleted_and_it_never_starts_again() -> None:
    deletion = DeleteObject("ray.io/v1", "RayCluster", "team", CLUSTER_NAME, "cluster-uid")
    assert decide(world(ENDED, finished()), 11).effects == (deletion,)
    assert decide(gone(ENDED, finished()), 12) == Plan()


@pytest.mark.parametrize(
    ("code", "state"), [(0, State.SUCCEEDED), (1, State.STOPPED), (65, State.STOPPED)], ids=["done", "failed", "lost"]
)
def test_a_run_that_ends_by_itself_meanwhile_is_not_restarted(code: int, state: State) -> None:
    restarting = merged(ENDED, {"restart": {"maxRestarts": 3, "maxInfrastructureRestarts": 3}})
    told = answer({"phase": Phase.ENDED, "outcome": Outcome(code, "Ended", "the end", last_step=3)})
    new = wrote(decide(world(restarting, stopping(), progress=told), 10))
    assert (new.state, new.next_attempt_time, new.stop) == (state, None, None)
    assert "the end" in str(new.message)


def test_a_run_that_does_not_save_in_time_ends_the_same_way() -> None:
    new = wrote(decide(world(ENDED, stopping()), 100))
    assert (new.state, new.reason) == (State.STOPPED, "StopRequested")
    assert "without a checkpoint" in str(new.message)


NOTHING_RUNS = {
    "queued, starting or initializing": seen(
        job(ENDED, status_begun(SAVING), **EDITED), snapshot=snapshot(SAVING), clusters=(cluster(),)
    ),
    "suspended": gone(merged(ENDED, {"suspend": True}), suspended()),
    "suspended, with an invalid spec": gone(merged(ENDED, BROKEN, {"suspend": True}), suspended()),
    "waiting for the next attempt": gone(ENDED, suspended() | {"nextAttemptTime": times.to_text(at(500))}),
    "being torn down": gone(
        ENDED,
        suspended()
        | {"stop": {"reason": "Restarting", "mode": "Immediate", "requestedTime": SINCE, "deadline": SINCE}},
    ),
    "not begun, for its spec is invalid": Observed(job(merged(ENDED, BROKEN), **EDITED), snapshot=None),
    "of a lost status": Observed(job(ENDED, **EDITED), snapshot=snapshot(SAVING)),
}


@pytest.mark.parametrize("observed", NOTHING_RUNS.values(), ids=NOTHING_RUNS)
def test_a_job_in_which_nothing_runs_ends_at_once(observed: Observed) -> None:
    plan = decide(observed, 20)
    assert (wrote(plan).state, reasons(plan)["Finished"]) == (State.STOPPED, ("True", "Stopped"))
    assert wrote(plan).stop is None


def test_an_attempt_that_was_perhaps_submitted_ends_with_its_cluster() -> None:
    plan = decide(running(job=job(ENDED, status_intended(), **EDITED), snapshot=snapshot(SAVING)))
    closed = decide(running(job=job(ENDED, status_after(plan), **EDITED), snapshot=snapshot(SAVING)))
    assert wrote(closed).attempts[-1].outcome is AttemptOutcome.STOPPED
    doomed = decide(running(job=job(ENDED, status_after(closed), **EDITED), snapshot=snapshot(SAVING)))
    assert isinstance(doomed.effects[0], DeleteObject)
    assert wrote(decide(gone(ENDED, status_after(closed)))).state is State.STOPPED


def test_after_a_lost_status_a_run_is_recorded_before_it_is_stopped() -> None:
    plan = decide(Observed(job(ENDED, **EDITED), snapshot=snapshot(SAVING), clusters=(cluster(ready=1),)))
    assert (wrote(plan).intent is not None, wrote(plan).stop) == (True, None)


def test_a_finished_job_keeps_its_end() -> None:
    assert decide(gone(ENDED, status_finished())) == Plan()


def test_the_request_is_final_before_it_is_carried_out() -> None:
    assert wrote(decide(world(SAVING, stopping(), progress=SAVED))).state is State.STOPPED


def test_a_request_that_is_taken_back_too_late_is_answered_once_per_edit() -> None:
    plan = decide(gone(SAVING, finished(), generation=3))
    (note,) = plan.events
    assert (note.type, note.reason) == (EventType.WARNING, "StopRequested")
    assert "has no effect" in note.message
    assert wrote(plan).model_copy(update={"observed_generation": 2}) == status.read_status({"status": finished()})
    assert decide(gone(SAVING, status_after(plan), generation=3)) == Plan()


def test_it_is_answered_whatever_the_words_of_the_end_are() -> None:
    """After a lost status, `finish_again` writes others."""
    lost = finished()
    for condition in lost["conditions"]:
        condition["message"] = condition["message"].removeprefix("StopRequested: ")
    (note,) = decide(gone(SAVING, lost, generation=3)).events
    assert note.reason == "StopRequested"


@pytest.mark.parametrize("other", [status_finished(), {**status_finished(), "reason": "Stopped"}])
def test_an_edit_of_a_job_that_ended_by_itself_is_not_answered(other: Json) -> None:
    assert decide(gone(SAVING, other, generation=3)) == Plan()


def test_a_job_is_not_created_to_be_stopped() -> None:
    plan = decide(Observed(job(ENDED), snapshot=None))
    assert (wrote(plan).state, wrote(plan).reason) == (State.INVALID, "InvalidSpec")
    assert "spec.stop.requested: is true in a job that is created" in str(wrote(plan).message)


def test_a_pause_comes_before_a_stop() -> None:
    paused = job(ENDED, status_submitted(), annotations={PAUSED: "true"}, **EDITED)
    assert wrote(decide(running(job=paused, snapshot=snapshot(SAVING)))).stop is None


def test_an_immediate_stop_ends_the_run_before_its_pods_may_save() -> None:
    plan = decide(world(AT_ONCE))
    told = wrote(plan).stop
    assert told is not None
    assert (told.mode, told.deadline) == ("Immediate", times.to_text(at(10)))
    (asked,) = decide(world(AT_ONCE, status_after(plan)), 1).effects
    assert isinstance(asked, StopRun)
    assert asked.mode is StopMode.IMMEDIATE


@pytest.mark.parametrize("before", [ENDED, SUSPENDED], ids=["stopping", "suspending"])
def test_a_stop_that_takes_too_long_becomes_immediate(before: Json) -> None:
    now = merged(AT_ONCE, {"suspend": True} if before is SUSPENDED else {})
    plan = decide(world(now, stopping(before)), 20)
    told = wrote(plan).stop
    assert told is not None
    assert (told.mode, told.deadline) == ("Immediate", times.to_text(at(30)))
    (asked,) = decide(world(now, status_after(plan), progress=answer({"phase": Phase.STOPPING})), 21).effects
    assert isinstance(asked, StopRun)
    assert asked.mode is StopMode.IMMEDIATE
    assert decide(world(now, status_after(plan)), 21).status is None, "the order is changed once"


# The annotation rljob.dev/restart.


def asked(spec: Json, status: Json, value: str = "1", **facts: object) -> Observed:
    subject = job(spec, status, annotations={RESTART: value}, **EDITED)
    return running(job=subject, **{"snapshot": snapshot(SAVING), "progress": answer()} | facts)


def restarting(spec: Json = SAVING) -> Json:
    return status_after(decide(asked(spec, status_submitted())))


def test_a_restart_saves_first_and_its_value_is_acted_on_once() -> None:
    plan = decide(asked(SAVING, status_submitted()))
    new = wrote(plan)
    assert new.stop is not None
    assert (new.stop.reason, new.stop.deadline) == ("RestartRequested", times.to_text(at(100)))
    assert (new.restart_request, plan.events[0].type) == ("1", EventType.NORMAL)
    (effect,) = decide(asked(SAVING, status_after(plan)), 1).effects
    assert isinstance(effect, StopRun)
    assert decide(asked(SAVING, status_submitted() | {"restartRequest": "1"})).effects == ()


def test_a_restart_goes_on_in_a_new_cluster_and_costs_nothing() -> None:
    closed = decide(asked(SAVING, restarting(), progress=SAVED), 10)
    assert (wrote(closed).attempts[-1].outcome, wrote(closed).attempts[-1].reason) == ("Stopped", "RestartRequested")
    free = decide(gone(SAVING, status_after(closed), annotations={RESTART: "1"}), 20)
    assert (free.events[0].reason, ConditionType.SUSPENDED in reasons(free)) == ("RestartRequested", False)
    new = wrote(decide(gone(SAVING, status_after(free), annotations={RESTART: "1"}), 21))
    assert new.intent is not None
    assert (new.intent.cluster_generation, new.restart_request) == (2, "1")
    assert (new.restarts, new.budget.user_failures, new.counters.infrastructure_failures) == (0, 0, 0)


def test_a_restart_takes_a_valid_edit_and_keeps_the_frozen_spec_beside_an_invalid_one() -> None:
    closed = status_after(decide(asked(SAVING, restarting(), progress=SAVED), 10))
    free = status_after(decide(gone(SAVING, closed, annotations={RESTART: "1"}), 20))
    edited = merged(SAVING, {"trainer": {"learningRate": "1e-5"}})
    for spec, name in ((edited, "sums-0a1b2-2"), (merged(SAVING, BROKEN), CLUSTER_NAME)):
        reported = status_after(decide(gone(spec, free, annotations={RESTART: "1"}), 21))
        new = wrote(decide(gone(spec, reported, annotations={RESTART: "1"}), 22))
        assert new.resolved is not None
        assert (new.state, new.resolved.snapshot_name) == (State.STARTING, name)


def test_a_restart_of_a_start_begins_anew() -> None:
    subject = job(SAVING, status_initialized(SAVING), annotations={RESTART: "1"}, **EDITED)
    plan = decide(seen(subject, snapshot=snapshot(SAVING), clusters=(cluster(),)))
    assert wrote(plan).stop is not None
    doomed = job(SAVING, status_after(plan), annotations={RESTART: "1"}, **EDITED)
    effects = decide(seen(doomed, snapshot=snapshot(SAVING), clusters=(cluster(),))).effects
    assert isinstance(effects[0], DeleteObject)


def test_a_job_that_waits_for_its_next_attempt_begins_it_now() -> None:
    waiting = suspended() | {"nextAttemptTime": times.to_text(at(500))}
    plan = decide(gone(SAVING, waiting, annotations={RESTART: "1"}), 20)
    assert (wrote(plan).next_attempt_time, wrote(plan).restart_request) == (times.to_text(at(20)), "1")
    begun = wrote(decide(gone(SAVING, status_after(plan), annotations={RESTART: "1"}), 20))
    assert begun.intent is not None
    assert not begun.intent.ended


def test_a_restart_of_a_suspended_job_is_used_up() -> None:
    plan = decide(gone(SUSPENDED, suspended(), annotations={RESTART: "1"}))
    assert (wrote(plan).restart_request, wrote(plan).stop, wrote(plan).next_attempt_time) == ("1", None, None)
    assert decide(gone(SUSPENDED, status_after(plan), annotations={RESTART: "1"})).status is None


def test_a_job_that_was_created_with_the_annotation_is_not_restarted() -> None:
    subject = job(SAVING, annotations={RESTART: "1"})
    begun = wrote(decide(Observed(subject, snapshot=None)))
    assert (begun.restart_request, begun.stop) == ("1", None)


def test_a_lost_status_restarts_nothing() -> None:
    subject = job(SAVING, annotations={RESTART: "1"})
    found = wrote(decide(Observed(subject, snapshot=snapshot(SAVING), clusters=(cluster(ready=1),))))
    assert (found.restart_request, found.stop) == ("1", None)


def test_a_finished_job_ignores_a_restart() -> None:
    assert decide(gone(SAVING, status_finished(), annotations={RESTART: "1"})) == Plan()


def test_a_run_that_completes_meanwhile_has_succeeded() -> None:
    done = answer({"phase": Phase.ENDED, "step": 40, "outcome": Outcome(0, "", "", last_step=40)})
    new = wrote(decide(asked(SAVING, restarting(), progress=done), 10))
    assert (new.state, new.stop) == (State.SUCCEEDED, None)


def test_a_failure_during_a_restart_is_recorded_and_not_counted() -> None:
    lost = RayJob(SUBMISSION_ID, RayJobState.FAILED)
    told = answer({"phase": Phase.ENDED, "outcome": Outcome(65, "NodeLost", "gone", last_step=3)})
    new = wrote(decide(asked(SAVING, restarting(), progress=told, ray_job=lost), 10))
    assert (new.state, new.attempts[-1].outcome) == (State.STOPPING, AttemptOutcome.FAILED)
    assert (new.counters.infrastructure_failures, new.attempts[-1].cause) == (0, None)
    assert FailureCause.INFRASTRUCTURE not in {entry.cause for entry in new.attempts}


def test_a_long_value_is_bounded_and_compared_by_what_is_kept() -> None:
    new = wrote(decide(asked(SAVING, status_submitted(), "x" * 1000)))
    assert new.restart_request is not None
    assert len(new.restart_request.encode()) <= 253
    again = asked(SAVING, status_submitted() | {"restartRequest": new.restart_request}, "x" * 1000)
    assert decide(again).status is None or wrote(decide(again)).stop is None


def begun_without_a_step(count: int) -> Json:
    """Return the status of a job whose cluster starts at 12:00, after `count` clusters that users gave up."""
    status = status_initialized(SAVING)
    return status | {"intent": status["intent"] | {"clustersWithoutStep": count}}


@pytest.mark.parametrize(("count", "wait"), [(1, 30), (2, 60), (5, 480), (8, 600)])
def test_a_restart_without_a_step_waits_twice_as_long_each_time(count: int, wait: int) -> None:
    subject = job(SAVING, begun_without_a_step(count), annotations={RESTART: "1"}, **EDITED)
    stopped = decide(seen(subject, snapshot=snapshot(SAVING), clusters=(cluster(),)), 5)
    free = decide(gone(SAVING, status_after(stopped), annotations={RESTART: "1"}), 10)
    assert (wrote(free).state, wrote(free).reason) == (State.RESTARTING, "Paced")
    assert times.to_text(at(wait)) in str(wrote(free).message)
    assert decide(gone(SAVING, status_after(free), annotations={RESTART: "1"}), 20).requeue_after_seconds == wait - 20
    new = wrote(decide(gone(SAVING, status_after(free), annotations={RESTART: "1"}), wait)).intent
    assert new is not None
    assert (new.cluster_generation, new.clusters_without_step) == (2, min(count + 1, 8))


def test_a_resumed_job_without_a_step_waits_as_well() -> None:
    ended = begun_without_a_step(1)
    resumed = gone(SAVING, ended | {"intent": ended["intent"] | {"ended": True}})
    plan = decide(resumed, 10)
    assert (wrote(plan).state, wrote(plan).reason, plan.requeue_after_seconds) == (State.PENDING, "Paced", 20)
    new = wrote(decide(resumed, 30)).intent
    assert new is not None
    assert (new.cluster_generation, new.clusters_without_step) == (2, 2)


def test_the_first_of_them_is_free() -> None:
    ended = begun_without_a_step(0)
    resumed = gone(SAVING, ended | {"intent": ended["intent"] | {"ended": True}})
    assert wrote(decide(resumed, 10)).state is State.STARTING


def test_a_step_ends_the_wait_of_the_clusters_before_it() -> None:
    resumed = wrote(decide(gone(SAVING, suspended()), 1)).intent
    assert resumed is not None
    assert resumed.clusters_without_step == 0
