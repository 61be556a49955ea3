"""Submit once, and record that Ray has it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    CLUSTER_NAME,
    IDLE,
    SUBMISSION_ID,
    UID,
    Json,
    answer,
    at,
    decide,
    job,
    pod,
    reasons,
    requests,
    running,
    saving,
    small_spec,
    snapshot,
    status_intended,
    wrote,
)

from rljob.core import times
from rljob.core.observed import UNSEEN, Observed, RayJob, RayJobState, Unseen
from rljob.core.plan import Plan, SubmitJob
from rljob_runtime.contract import Phase


def intended(ray_job: RayJob | Unseen | None, **facts: object) -> Observed:
    return running(job=job(status=status_intended()), ray_job=ray_job, **facts)


def test_the_submission_goes_to_the_intended_head_with_the_data_of_the_attempt() -> None:
    plan = decide(intended(None))
    (effect,) = plan.effects
    assert isinstance(effect, SubmitJob)
    assert (effect.pod_ip, effect.pod_uid, effect.submission_id) == ("10.0.0.9", "head-uid", SUBMISSION_ID)
    assert (effect.job_uid, effect.cluster_name) == (UID, CLUSTER_NAME)
    environment = dict(effect.environment)
    assert environment.pop("RLJOB_JOB_DIGEST")
    assert environment == {
        "RLJOB_ATTEMPT": "1",
        "RLJOB_SUBMISSION_ID": SUBMISSION_ID,
        "RLJOB_HEAD_POD_UID": "head-uid",
    }
    assert plan.requeue_after_seconds == 2.0


def test_without_tokens_the_exporter_takes_the_submission_and_answers_about_it() -> None:
    head = pod()
    head["metadata"]["labels"] = {"rljob.dev/unauthenticated-ray": "true"}
    world = intended(None, head_pod=head)
    (effect,) = decide(world).effects
    assert isinstance(effect, SubmitJob)
    asked = requests(world.job, world.clusters, world.head_pod, at(0)).head
    assert asked is not None
    assert effect.port == asked.dashboard_port == asked.api_port == 8091


def test_nothing_is_submitted_before_ray_was_asked() -> None:
    assert decide(intended(UNSEEN)) == Plan(requeue_after_seconds=2.0)


def test_a_submission_that_ray_has_is_recorded_even_after_the_deadline() -> None:
    status = wrote(decide(intended(RayJob(SUBMISSION_ID, RayJobState.PENDING)), seconds=99_999))
    assert [attempt.submission_id for attempt in status.attempts] == [SUBMISSION_ID]


@pytest.mark.parametrize(("ray_job", "seconds"), [(None, 1800), (UNSEEN, 1800 + 14_400)])
def test_a_submission_that_ray_never_takes_ends_at_the_start_deadline(ray_job: Unseen | None, seconds: int) -> None:
    assert "StartDeadlineExceeded" not in str(decide(intended(ray_job), seconds=seconds - 1))
    assert wrote(decide(intended(ray_job), seconds=seconds)).reason == "StartDeadlineExceeded"


def test_a_job_api_that_stays_silent_is_reported_once() -> None:
    assert decide(intended(UNSEEN), seconds=299) == Plan(requeue_after_seconds=2.0)
    told = decide(intended(UNSEEN), seconds=300)
    assert reasons(told)["Progressing"] == ("Unknown", "HeadSilent")
    assert [note.reason for note in told.events] == ["HeadSilent"]
    assert decide(running(job=job(status=told.status), ray_job=UNSEEN), 600) == Plan(requeue_after_seconds=10.0)


def test_an_exporter_that_answers_for_a_silent_job_api_decides() -> None:
    silent = running(job=job(status=decide(intended(UNSEEN), seconds=300).status), ray_job=UNSEEN)
    begun = decide(replace(silent, progress=answer({"phase": Phase.STARTING, "step": 0})), seconds=310)
    assert [attempt.submission_id for attempt in wrote(begun).attempts] == [SUBMISSION_ID]
    assert wrote(begun).reason == "Submitted"
    # A head without a driver holds its NPUs no longer than any other start.
    assert wrote(decide(replace(silent, progress=IDLE), seconds=1800)).reason == "StartDeadlineExceeded"


def test_a_cluster_that_gets_ready_at_the_start_deadline_is_asked_for_a_minute() -> None:
    status = status_intended()
    late = running(job=job(status=status | {"intent": status["intent"] | {"time": times.to_text(at(1801))}}))
    assert [type(effect) for effect in decide(replace(late, ray_job=None), seconds=1860).effects] == [SubmitJob]
    assert wrote(decide(replace(late, ray_job=None), seconds=1861)).reason == "StartDeadlineExceeded"


SAVING = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 2}}))


def test_the_submission_of_a_job_that_decides_when_it_saves_contains_what_it_has_lost() -> None:
    kept = {"counters": {"userFailures": 1, "infrastructureFailures": 2, "preemptions": 4}}
    kept |= {"usage": {"deviceSeconds": 7200}}
    for spec, told in (
        (SAVING, (None, None)),
        (small_spec(saving({"checkpoint": {"path": "/data/saves"}})), ("3", "7200")),
    ):
        world = running(job=job(spec, status_intended() | kept), snapshot=snapshot(spec), ray_job=None)
        (effect,) = decide(world).effects
        assert isinstance(effect, SubmitJob)
        environment = dict(effect.environment)
        assert (environment.get("RLJOB_LOSSES"), environment.get("RLJOB_HELD_DEVICE_SECONDS")) == told


@pytest.mark.parametrize(
    ("spec", "path", "told"),
    [(SAVING, "/data/saves", "4"), (SAVING, "/data/earlier", None), (small_spec(), "/data/saves", None)],
)
def test_the_submission_contains_the_step_that_is_saved_in_its_folder(spec: Json, path: str, told: str | None) -> None:
    kept = {"step": 4, "path": path, "savedTime": "2026-01-01T12:00:01Z"}
    status = status_intended() | {"checkpoint": kept}
    (effect,) = decide(running(job=job(spec, status), snapshot=snapshot(spec), ray_job=None)).effects
    assert isinstance(effect, SubmitJob)
    assert dict(effect.environment).get("RLJOB_CHECKPOINT_STEP") == told
