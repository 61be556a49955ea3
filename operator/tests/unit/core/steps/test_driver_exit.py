"""An end that Ray reports before the exporter does."""

from __future__ import annotations

from typing import Any

import pytest
from builders import (
    SUBMISSION_ID,
    Json,
    answer,
    at,
    decide,
    job,
    merged,
    pod,
    requests,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_submitted,
    status_training,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.observed import UNSEEN, Observed, RayJob, RayJobState, Unseen
from rljob.core.plan import Plan
from rljob.core.requirements import Pods
from rljob_runtime.contract import Outcome, Phase, Progress

DONE = RayJob(SUBMISSION_ID, RayJobState.SUCCEEDED)
FAILED = RayJob(SUBMISSION_ID, RayJobState.FAILED, driver_exit_code=9, log_tail="Boom\n")
SAVING = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 100}}))


def world(
    status: Json,
    ray_job: RayJob | Unseen | None = UNSEEN,
    progress: Progress | Unseen = UNSEEN,
    spec: Json = SAVING,
    **facts: object,
) -> Observed:
    known = {"snapshot": snapshot(SAVING), "ray_job": ray_job, "progress": progress} | facts
    return running(job=job(spec, status), **known)


def recorded_end(ray_job: RayJob = FAILED) -> Json:
    """Return the status in which Ray's report is recorded, at second 0."""
    return status_after(decide(world(status_training(), ray_job)))


def ended(outcome: Outcome | None) -> Progress:
    return answer({"phase": Phase.ENDED, "step": 9, "checkpoint_step": 8, "outcome": outcome})


@pytest.mark.parametrize("progress", [UNSEEN, answer()], ids=["silent", "behind"])
def test_rays_word_is_written_down_with_a_deadline_and_closes_nothing(progress: Progress | Unseen) -> None:
    plan = decide(world(status_training(), FAILED, progress))
    status = wrote(plan)
    assert status.attempts[0].end_time is None
    assert status.state is State.TRAINING
    assert status.ending is not None
    assert (status.ending.exit_code, status.ending.reason) == (9, "DriverFailed")
    assert (status.ending.message, status.ending.deadline) == ("exit code 9: Boom", "2026-01-01T12:01:00Z")
    assert decide(world(status_after(plan), FAILED, progress)) == Plan(requeue_after_seconds=2.0)


def test_the_exporters_word_counts_when_it_comes_in_time() -> None:
    outcome = Outcome(7, "NoMoreTokens", "the data ended", last_step=9)
    status = wrote(decide(world(recorded_end(), FAILED, ended(outcome)), seconds=10))
    assert (status.attempts[0].reason, status.attempts[0].last_step) == ("NoMoreTokens", 9)
    assert status.checkpoint is not None
    assert status.checkpoint.step == 8
    assert status.ending is None


def test_an_exporter_that_knows_no_outcome_gives_its_figures_and_ray_the_rest() -> None:
    status = wrote(decide(world(recorded_end(), UNSEEN, ended(None)), seconds=10))
    assert (status.attempts[0].reason, status.attempts[0].last_step) == ("DriverFailed", 9)


def test_a_driver_that_ended_before_the_launcher_began_has_no_better_word_to_wait_for() -> None:
    idle = answer({"phase": Phase.IDLE, "step": 0})
    assert wrote(decide(world(status_submitted(), FAILED, idle))).attempts[0].reason == "DriverFailed"


@pytest.mark.parametrize("ray_job", [FAILED, UNSEEN, None], ids=["again", "silent", "forgotten"])
def test_at_the_deadline_what_ray_said_counts(ray_job: RayJob | Unseen | None) -> None:
    assert decide(world(recorded_end(), ray_job), seconds=59).empty
    status = wrote(decide(world(recorded_end(), ray_job), seconds=60))
    assert status.state is State.FAILED
    assert (status.attempts[0].reason, status.attempts[0].last_step) == ("DriverFailed", 3)


@pytest.mark.parametrize("began", [status_submitted(), status_training()], ids=["before", "after the first step"])
def test_ray_alone_can_report_a_success(began: Json) -> None:
    waiting = status_after(decide(world(began, DONE)))
    assert wrote(decide(world(waiting, DONE), seconds=60)).state is State.SUCCEEDED


@pytest.mark.parametrize(("head", "clusters"), [(None, None), (pod(uid="another"), None), (None, ())])
def test_a_success_is_none_the_less_for_the_loss_of_its_pods(head: Json | None, clusters: tuple[()] | None) -> None:
    gone: Json = {"head_pod": head, "pods": ()} | ({} if clusters is None else {"clusters": clusters})
    assert wrote(decide(world(recorded_end(DONE), **gone), seconds=1)).state is State.SUCCEEDED


def test_while_the_last_word_is_waited_for_the_pods_are_looked_at() -> None:
    seen = world(recorded_end())
    asked = requests(seen.job, seen.clusters, seen.head_pod, at(1))
    assert (asked.progress, asked.pods) == (True, Pods("ray.io/cluster=sums-0a1b2-1", urgent=True))


def test_a_stop_waits_for_the_last_word_too() -> None:
    held = merged(SAVING, {"suspend": True})
    stopping = status_after(decide(world(status_training(), progress=answer(), spec=held)))
    waiting = decide(world(stopping, FAILED, spec=held), seconds=5)
    assert wrote(waiting).ending is not None
    outcome = Outcome(66, "Stopped", "saved step 9", last_step=9)
    status = wrote(decide(world(status_after(waiting), FAILED, ended(outcome), spec=held), seconds=10))
    assert status.checkpoint is not None
    assert (status.attempts[0].outcome, status.checkpoint.step) == ("Stopped", 8)


def test_a_stop_whose_time_is_over_waits_for_nobody() -> None:
    held = merged(SAVING, {"suspend": True})
    stopping = status_after(decide(world(status_training(), progress=answer(), spec=held)))
    assert wrote(decide(world(stopping, FAILED, spec=held), seconds=100)).attempts[0].end_time is not None


def test_whatever_number_a_driver_ends_with_fits_the_status() -> None:
    strange = RayJob(SUBMISSION_ID, RayJobState.FAILED, driver_exit_code=-(10**12))
    ending = wrote(decide(world(status_training(), strange))).ending
    assert ending is not None
    assert ending.exit_code == -2_147_483_647


@pytest.mark.parametrize("named", [{"nodes": ("node-7",)}, {"suspect": "node-7"}])
def test_nodes_that_the_launcher_named_are_kept_while_a_better_word_is_waited_for(named: dict[str, Any]) -> None:
    word = Outcome(65, "DeviceUnhealthy", "NPU 3 of node-7", **named).to_json().decode()
    unfit = RayJob(SUBMISSION_ID, RayJobState.FAILED, driver_exit_code=1, log_tail=word)
    status = recorded_end(unfit)
    assert "node-7" in (status["ending"].get("suspect"), *status["ending"].get("nodes", ()))
    closed = wrote(decide(world(status, unfit), 61.0))
    assert closed.attempts[-1].node == "node-7"


@pytest.mark.parametrize(("failed_before", "same_cluster"), [(0, True), (1, False)])
def test_pods_that_stay_after_the_first_failure_wait_for_nothing(failed_before: int, *, same_cluster: bool) -> None:
    budget = {"budget": {"userFailures": failed_before, "sinceStep": 8}}
    spec = merged(SAVING, {"restart": {"maxRestarts": 3}})
    told = ended(Outcome(1, "RewardFailed", "the reward function raised", last_step=9))
    status = wrote(decide(world(status_training() | budget, FAILED, told, spec=spec), seconds=10))
    assert (status.stop is None, f"in {'the same' if same_cluster else 'a new'} cluster" in str(status.message)) == (
        same_cluster,
        True,
    )
    assert (status.next_attempt_time == times.to_text(at(10))) == same_cluster
