"""From the submission to the end of the driver."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import (
    NOW,
    SUBMISSION_ID,
    Json,
    answer,
    at,
    decide,
    job,
    pod,
    reasons,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_intended,
    status_submitted,
    status_training,
    wrote,
)
from hypothesis import given
from hypothesis import strategies as st
from schema_check import violations

from rljob.api.crd import build_rljob_crd
from rljob.api.status import Condition, ConditionStatus, FailureCause, State
from rljob.core import times
from rljob.core.observed import UNSEEN, Observed, RayJob, RayJobState, Unseen
from rljob.core.plan import Plan
from rljob_runtime.contract import NOTE_LIMIT, ExitCode, Outcome, Phase, Progress

STATUS_SCHEMA = build_rljob_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]


def intended(ray_job: RayJob | Unseen | None, **facts: object) -> Observed:
    return running(job=job(status=status_intended()), ray_job=ray_job, **facts)


def training(step: int, observed: float = 0.0, **figures: object) -> Observed:
    told = answer({"step": step, "observed_time": at(observed).timestamp()} | figures)
    return running(job=job(status=status_training()), progress=told)


@pytest.mark.parametrize(("head", "word"), [(None, "is gone"), (pod(uid="another"), "was replaced")])
def test_a_lost_head_ends_the_attempt_as_lost(head: Json | None, word: str) -> None:
    status = wrote(decide(running(head_pod=head, pods=())))
    assert (status.attempts[0].outcome, status.attempts[0].reason) == ("Lost", "HeadLost")
    assert word in str(status.message)


def test_the_verl_that_runs_is_in_the_status_of_the_cluster() -> None:
    told = training(6, 100, verl_version="0.9.1")
    without = {name: value for name, value in status_training().items() if name != "rayCluster"}
    assert wrote(decide(replace(told, job=job(status=without)), seconds=101)).ray_cluster is None
    first = decide(told, seconds=101)
    silent = decide(replace(training(7, 200), job=job(status=status_after(first))), seconds=201)
    for plan in (first, silent):
        found = wrote(plan).ray_cluster
        assert found is not None
        assert found.verl_version == "0.9.1"


def killed(reason: str = "OOMKilled", **ended: object) -> Observed:
    """Return a head whose Ray was killed, while its exporter still reports that the driver is gone."""
    died = pod(containerStatuses=[{"name": "ray-head", "state": {"terminated": {"reason": reason, "exitCode": 137}}}])
    died["spec"] = {"nodeName": "node-1"}
    told = answer({"phase": Phase.ENDED, "outcome": None} | ended)
    return running(job=job(status=status_training()), head_pod=died, progress=told, ray_job=UNSEEN)


def head_that_goes(phase: str | None = None) -> Json:
    """Return the intended head on a node that is down, terminating until NOW or ended."""
    gone = pod(phase=phase or "Running")
    if phase is None:
        gone["metadata"]["deletionTimestamp"] = times.to_text(NOW)
    return gone


@pytest.mark.parametrize("status", [status_intended(), status_submitted()])
@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (None, "should have terminated by 2026-01-01T12:00:00Z"),
        ("Failed", "has ended (Failed)"),
        ("Succeeded", "has ended"),
    ],
)
def test_a_silent_head_that_must_be_dead_is_not_waited_for(phase: str | None, word: str, status: Json) -> None:
    world = running(job=job(status=status), head_pod=head_that_goes(phase), ray_job=UNSEEN)
    plan = decide(world, seconds=60)
    assert wrote(plan).attempts[0].reason == "HeadLost"
    assert word in str(wrote(plan).message)


def test_a_head_that_goes_may_still_save_or_be_heard() -> None:
    doomed = running(head_pod=head_that_goes(), ray_job=UNSEEN)
    assert "HeadLost" not in str(decide(doomed, seconds=59))
    assert "HeadLost" not in str(decide(replace(doomed, progress=answer()), seconds=600))
    assert "HeadLost" not in str(
        decide(replace(doomed, ray_job=RayJob(SUBMISSION_ID, RayJobState.RUNNING)), seconds=600)
    )


def test_what_ray_said_of_the_end_counts_for_more_than_how_its_pod_goes() -> None:
    done = RayJob(SUBMISSION_ID, RayJobState.SUCCEEDED)
    told = status_after(decide(running(job=job(status=status_training()), ray_job=done)))
    for gone in (head_that_goes("Failed"), killed().head_pod):
        seen = running(job=job(status=told), head_pod=gone, ray_job=UNSEEN)
        assert decide(seen, seconds=59).status is None
        assert wrote(decide(seen, seconds=60)).state is State.SUCCEEDED


@pytest.mark.parametrize("listed", [UNSEEN, ()])
def test_a_head_whose_ray_the_kernel_killed_is_the_runs_own_failure(listed: tuple[Json, ...] | Unseen) -> None:
    status = wrote(decide(replace(killed(), pods=listed)))
    attempt = status.attempts[0]
    assert (attempt.reason, attempt.cause, attempt.node) == ("OOMKilled", FailureCause.USER, "node-1")
    assert attempt.last_step == 3


FORGED = "{ExitCode:137,Signal:0,Reason:OOMKilled,"


def deletion(seconds: float, reason: str = "OOMKilled", message: str = "") -> Json:
    """Return KubeRay's event about a worker that it deleted (v1.6.2, as its API types format it)."""
    ran = "StartedAt:2026,FinishedAt:2026"
    ended = f"&ContainerStateTerminated{{ExitCode:137,Signal:0,Reason:{reason},Message:{message},{ran},}}"
    told = f"Deleted worker Pod team/sums-worker-x; Pod status: Failed; Pod restart policy: Never; {ended}"
    return {"metadata": {"name": "e"}, "note": told, "deprecatedLastTimestamp": times.to_text(at(seconds))}


@pytest.mark.parametrize(
    ("deletions", "reason", "cause"),
    [
        ((deletion(-3600, "Error"), deletion(5)), "OOMKilled", FailureCause.USER),
        ((deletion(5, "Error"), {"metadata": {"name": "e"}, "note": None}), "NodeLost", FailureCause.INFRASTRUCTURE),
        ((deletion(-3600),), "NodeLost", FailureCause.INFRASTRUCTURE),
        ((deletion(5) | {"deprecatedLastTimestamp": None},), "NodeLost", FailureCause.INFRASTRUCTURE),
        # What a container prints is not the kubelet's reason.
        ((deletion(5, "Error", "a rank was OOMKilled"),), "NodeLost", FailureCause.INFRASTRUCTURE),
        ((deletion(5, "Error", FORGED),), "NodeLost", FailureCause.INFRASTRUCTURE),
        ((deletion(5, "OOMKilled", "first\nlast"),), "OOMKilled", FailureCause.USER),
    ],
)
def test_a_worker_that_the_kernel_killed_is_not_the_nodes_fault(
    deletions: tuple[Json, ...], reason: str, cause: FailureCause
) -> None:
    lost = answer({"phase": Phase.ENDED, "outcome": Outcome(ExitCode.ENVIRONMENT, "NodeLost", "a node is gone")})
    seen = running(job=job(status=status_training()), progress=lost, pods=(pod(),), cluster_events=deletions)
    attempt = wrote(decide(seen, 60)).attempts[0]
    assert (attempt.reason, attempt.cause) == (reason, cause)


def test_a_head_whose_ray_ended_otherwise_may_still_say_why() -> None:
    assert decide(killed("Completed")).empty
    said = Outcome(ExitCode.FAILED, "ValueError", "no such column")
    assert wrote(decide(killed(outcome=said))).attempts[0].message == "pod head: OOMKilled; no such column"


@pytest.mark.parametrize("living", [UNSEEN, (pod(),)])
def test_a_head_that_only_the_watch_lacks_is_not_lost(living: tuple[Json, ...] | Unseen) -> None:
    plan = decide(running(head_pod=None, pods=living))
    assert plan.empty
    assert plan.requeue_after_seconds is not None


def test_the_first_step_changes_the_condition_without_an_event() -> None:
    plan = decide(running(progress=answer({"reward": math.nan, "step_seconds": 4.0})))
    status = wrote(plan)
    assert status.state is State.TRAINING
    assert status.progress is not None
    assert (status.progress.summary, status.progress.reward) == ("3/40", "NaN")
    assert status.progress.eta == "2026-01-01T12:02:28Z"
    assert status.attempts[0].start_time == "2026-01-01T11:59:00Z"
    assert plan.events == ()


def test_a_further_step_is_no_event_and_keeps_the_start() -> None:
    plan = decide(training(9, observed=30), seconds=31)
    assert plan.events == ()
    assert wrote(plan).attempts[0].start_time == "2026-01-01T11:59:00Z"


@pytest.mark.parametrize(
    ("step", "seconds", "written"),
    [(3, 1000, False), (4, 29, False), (4, 30, True), (40, 1, True)],
    ids=["no step", "too soon", "time", "the last step"],
)
def test_further_steps_are_written_now_and_then(step: int, seconds: float, *, written: bool) -> None:
    plan = decide(training(step, observed=min(seconds, 10)), seconds)
    assert plan.empty is not written
    assert plan.rests is written, "the head is not asked again immediately"
    assert plan.requeue_after_seconds == 10


def test_a_step_before_a_long_one_does_not_stay_unwritten() -> None:
    seen_too_soon = training(4, observed=10)
    assert decide(seen_too_soon, seconds=10).empty
    assert not decide(seen_too_soon, seconds=600).empty


def noted(*notes: str, step: int = 0, known: tuple[str, ...] = ()) -> Observed:
    told = answer({"step": step, "phase": Phase.STARTING, "notes": notes, "observed_time": at(0).timestamp()})
    return running(job=job(status=status_training() | {"notes": list(known)}), progress=told)


@pytest.mark.parametrize("step", [0, 3])
def test_what_a_run_reports_is_an_event_and_stays_in_the_status(step: int) -> None:
    plan = decide(noted("3 of 5 prompts were left out", step=step))
    assert wrote(plan).notes == ["3 of 5 prompts were left out"]
    assert [(event.type, event.reason, event.message) for event in plan.events] == [
        ("Warning", "RunWarning", "3 of 5 prompts were left out")
    ]
    assert decide(noted("3 of 5 prompts were left out", step=step, known=tuple(wrote(plan).notes))).empty


def test_a_run_that_always_reports_something_else_causes_a_bounded_number_of_events() -> None:
    plan = decide(noted("c", "b", "x" * 10_000, "d", "e", "f", known=("a", "b")))
    assert [event.message[:3] for event in plan.events] == ["c", "xxx"]
    assert all(len(note.encode()) <= NOTE_LIMIT for note in wrote(plan).notes)
    assert decide(noted("e", known=("a", "b", "c", "d"))).empty


def replicas(serving: int, known: bool | None = None) -> Observed:
    status = status_training()
    if known is not None:
        told = Condition(
            type="RolloutDegraded",
            status=ConditionStatus.TRUE if known else ConditionStatus.FALSE,
            reason="ReplicasLost" if known else "Healthy",
            message="1 of 2 replicas generate; new ones join when their pods are back" if known else "",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        status |= {"conditions": [*status.get("conditions", []), told.model_dump(by_alias=True, mode="json")]}
    seen = {"step": 3, "replicas_serving": serving, "replicas_wanted": 2, "observed_time": at(0).timestamp()}
    return running(job=job(status=status), progress=answer(seen))


@pytest.mark.parametrize(("serving", "known", "wanted"), [(1, None, "True"), (0, True, "True"), (2, True, "False")])
def test_lost_replicas_are_a_condition_until_they_are_back(serving: int, known: bool | None, wanted: str) -> None:
    new = wrote(decide(replicas(serving, known)))
    (found,) = [entry for entry in new.conditions if entry.type == "RolloutDegraded"]
    assert found.status == wanted
    lost = f"{serving} of 2 replicas generate; new ones join when their pods are back"
    assert (found.reason, found.message) == (("ReplicasLost", lost) if wanted == "True" else ("Healthy", ""))


def test_replicas_that_are_as_the_status_says_are_not_written() -> None:
    assert decide(replicas(2)).empty
    seen = replicas(1)
    told = wrote(decide(seen)).model_dump(by_alias=True, mode="json", exclude_none=True)
    assert decide(replace(seen, job=job(status=told))).empty


def test_no_step_is_no_progress() -> None:
    plan = decide(running(progress=answer({"step": 0, "phase": Phase.STARTING})))
    assert plan == Plan(requeue_after_seconds=10.0)


def test_ten_attempts_are_kept_and_the_words_of_earlier_ones_are_short() -> None:
    status = status_intended()
    old = {"clusterName": "c", "submissionId": "c", "submittedTime": "2026-01-01T00:00:00Z", "message": "w" * 2000}
    status["attempts"] = [old | {"number": number} for number in range(1, 11)]
    kept = wrote(decide(running(job=job(status=status)))).attempts
    assert [attempt.number for attempt in kept] == [*range(2, 11), 1]
    assert {len(str(attempt.message).encode()) for attempt in kept[:-1]} == {300}


SAVING = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 2}}))


def saved(step: int, checkpoint: int | None, status: Json, observed: float = 0.0) -> Observed:
    told = answer({"step": step, "checkpoint_step": checkpoint, "observed_time": at(observed).timestamp()})
    return running(job=job(SAVING, status), snapshot=snapshot(SAVING), progress=told)


def test_the_interval_that_the_trainer_has_decided_is_shown_with_the_step() -> None:
    told = answer({"step": 4, "save_every_steps": 35, "observed_time": at(40).timestamp()})
    status = wrote(decide(running(job=job(status=status_training()), progress=told), seconds=40))
    assert status.progress is not None
    assert status.progress.save_every_steps == 35


def test_the_first_checkpoint_is_a_transition() -> None:
    plan = decide(saved(4, 4, status_training(), 1), seconds=1)
    status = wrote(plan)
    assert reasons(plan)["Checkpointed"] == ("True", "CheckpointSaved")
    assert status.checkpoint is not None
    assert (status.checkpoint.step, status.checkpoint.path) == (4, "/data/saves")
    assert status.checkpoint.saved_time == "2026-01-01T12:00:01Z"
    assert decide(saved(4, 4, dict(plan.status or {}), 1), seconds=100).empty


def test_further_checkpoints_are_written_like_steps_but_on_their_own() -> None:
    told = status_after(decide(saved(4, 4, status_training(), 1), seconds=1))
    assert decide(saved(6, 6, told, 20), seconds=20).empty
    step = status_after(decide(saved(5, 4, told, 31), seconds=31))
    # The step that was reported a moment ago must not delay the save, which would be lost with the head.
    assert wrote(decide(saved(6, 6, step, 33), seconds=33)).checkpoint is not None
    assert decide(saved(6, 4, step, 33), seconds=33).empty
    later = wrote(decide(saved(6, 6, told, 40), seconds=40))
    assert later.checkpoint is not None
    assert later.checkpoint.step == 6
    after_its_step = wrote(decide(saved(4, 5, told, 40), seconds=40)).checkpoint
    assert after_its_step is not None


@pytest.mark.parametrize("step", [None, 0, -3])
def test_no_checkpoint_is_none(step: int | None) -> None:
    assert decide(saved(3, step, status_training(), 1), seconds=100).empty


def test_the_last_step_needs_no_estimate() -> None:
    progress = wrote(decide(training(40))).progress
    assert progress is not None
    assert progress.eta is None


def test_an_attempt_without_start_is_not_given_one() -> None:
    assert wrote(decide(running(progress=answer({"start_time": 0.0})))).attempts[0].start_time is None


@pytest.mark.parametrize(("step_seconds", "poll"), [(None, 10), (5.0, 10), (300.0, 30), (9000.0, 60), (math.nan, 10)])
def test_the_exporter_is_asked_ten_times_a_step_within_bounds(step_seconds: float | None, poll: float) -> None:
    plan = decide(training(3, step_seconds=step_seconds))
    assert plan == Plan(requeue_after_seconds=poll)


def test_a_head_that_is_being_deleted_is_asked_often_enough_to_hear_its_end() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    plan = decide(replace(training(3, step_seconds=300.0), head_pod=leaving))
    assert plan == Plan(requeue_after_seconds=2.0)
    news = decide(replace(training(40), head_pod=leaving))
    assert news.status is not None
    assert not news.rests, "the 2 s do not start at the end of a slow write"


def test_among_many_jobs_a_head_is_not_asked_much_more_often_than_its_steps_are_written() -> None:
    world = running(job=job(status=status_training()), progress=answer({"step_seconds": 20.0}))
    assert decide(replace(world, progress_write_seconds=100.0)).requeue_after_seconds == pytest.approx(100 / 5)
    assert decide(replace(world, progress_write_seconds=30.0)).requeue_after_seconds == 10.0


@pytest.mark.parametrize("code", [0, 1, 64, 65, 66, 67, 68, 137])
def test_the_launchers_word_is_the_outcome(code: int) -> None:
    outcome = Outcome(exit_code=code, reason="Word", message="why", last_step=39)
    status = wrote(decide(running(progress=answer({"phase": Phase.ENDED, "outcome": outcome}))))
    # 66 without a stop of ours: a hook let the run save because its pod was terminating.
    assert status.state is {0: State.SUCCEEDED, 66: State.RESTARTING}.get(code, State.FAILED)
    assert (status.attempts[0].reason, status.attempts[0].last_step) == ("Word", 39)
    assert status.progress is not None, "the last observed step is kept"


def test_an_ended_driver_without_a_word_is_asked_about_at_ray() -> None:
    ended = answer({"phase": Phase.ENDED})
    assert wrote(decide(running(progress=ended, ray_job=UNSEEN))).state is State.TRAINING
    failed = RayJob(SUBMISSION_ID, RayJobState.FAILED, driver_exit_code=137)
    assert wrote(decide(running(progress=ended, ray_job=failed))).message == "exit code 137"


def test_a_submission_that_ray_forgot_is_lost() -> None:
    status = wrote(decide(running(ray_job=None)))
    assert (status.reason, status.attempts[0].outcome) == ("DriverLost", "Lost")


def test_silence_alone_ends_nothing() -> None:
    assert decide(running(ray_job=UNSEEN)) == Plan(requeue_after_seconds=10.0)


numbers = st.floats() | st.none()


@given(
    told=st.builds(
        Progress,
        pod_uid=st.just("head-uid"),
        phase=st.sampled_from(Phase),
        submission_id=st.just(SUBMISSION_ID),
        step=st.integers(),
        total_steps=st.integers(),
        observed_time=st.floats(),
        start_time=st.floats(),
        reward=numbers,
        response_tokens_mean=numbers,
        tokens_per_second_per_card=numbers,
        first_dp_idle_ratio=numbers,
        cluster_idle_ratio=numbers,
        step_seconds=numbers,
        notes=st.lists(st.text()).map(tuple),
        outcome=st.none()
        | st.builds(Outcome, exit_code=st.integers(), reason=st.text(), message=st.text(), last_step=st.integers()),
    ),
    began=st.booleans(),
)
def test_whatever_a_pod_says_the_status_stays_well_formed(told: Progress, *, began: bool) -> None:
    status = status_training() if began else status_submitted()
    plan = decide(running(job=job(status=status), progress=told))
    if plan.status is not None:
        assert list(violations(STATUS_SCHEMA, dict(plan.status))) == []
        wrote(plan)
    if plan.requeue_after_seconds is not None:
        assert 0 < plan.requeue_after_seconds <= 60


def test_an_impossible_remaining_time_gives_no_estimate() -> None:
    """Two thousand million steps of eleven days end in a year that no date can express."""
    endless = replace(answer(), step=1, total_steps=2**31 - 1, step_seconds=1e6)
    progress = wrote(decide(running(progress=endless))).progress
    assert progress is not None
    assert progress.eta is None
