"""The end of a job, and what remains to be done after it."""

import pytest
from builders import (
    NOW,
    SUBMISSION_ID,
    Json,
    answer,
    cluster,
    decide,
    job,
    reasons,
    requests,
    running,
    seen,
    small_spec,
    status_finished,
    status_initialized,
    wrote,
)

from rljob.core.observed import Observed, RayJob, RayJobState, Refusal, RefusalCause
from rljob.core.plan import DeleteObject, Plan
from rljob.core.requirements import Requirements
from rljob_runtime.contract import Outcome, Phase

DELETION = DeleteObject("ray.io/v1", "RayCluster", "team", "sums-0a1b2-1", "cluster-uid")
LINGER = small_spec({"cleanup": {"clusterAfterSeconds": 100}})


def finished(*clusters: Json, spec: Json | None = None, **status: object) -> Observed:
    return seen(job(spec, status_finished() | status), clusters=clusters)


def test_a_job_that_is_deleted_is_left_alone() -> None:
    deleted = job(deletionTimestamp="2026-01-01T00:00:00Z")
    assert decide(Observed(deleted, clusters=(cluster(),))) == Plan()


def test_a_job_of_another_operator_is_left_alone_and_costs_no_request() -> None:
    theirs = job(small_spec({"managedBy": "example.com/other"}))
    assert decide(Observed(theirs, clusters=(cluster(),), snapshot=None)) == Plan()
    assert requests(theirs, (cluster(),), None, NOW) == Requirements()


def test_the_cluster_of_a_finished_job_is_deleted_by_its_uid() -> None:
    assert decide(finished(cluster())) == Plan(effects=(DELETION,))


def test_a_cluster_may_linger_for_its_time() -> None:
    assert decide(finished(cluster(), spec=LINGER), seconds=40) == Plan(requeue_after_seconds=60)
    assert decide(finished(cluster(), spec=LINGER), seconds=100).effects == (DELETION,)


def test_a_cluster_that_was_refused_for_its_open_ray_does_not_linger() -> None:
    assert decide(finished(cluster(), spec=LINGER, reason="RayWithoutTokens")).effects == (DELETION,)


def test_an_end_without_time_counts_from_now() -> None:
    world = finished(cluster(), spec=LINGER, finishedTime=None)
    assert decide(world, seconds=40) == Plan(requeue_after_seconds=100)


@pytest.mark.parametrize("clusters", [(), (cluster(deletionTimestamp="2026-01-01T00:00:00Z"),)])
def test_a_finished_job_without_clusters_wants_nothing(clusters: tuple[Json, ...]) -> None:
    assert decide(finished(*clusters)) == Plan()


def test_a_finished_job_stays_finished_whatever_is_edited() -> None:
    assert decide(finished(spec={"nonsense": 1})) == Plan()


def test_no_cluster_is_deleted_before_it_is_known_how_long_it_may_linger() -> None:
    assert decide(Observed(job(LINGER, status_finished()), clusters=(cluster(),))) == Plan(requeue_after_seconds=5.0)


def test_a_refused_effect_ends_the_job() -> None:
    refusal = Refusal("RayCluster", "sums-0a1b2-1", "it was made for another intent")
    plan = decide(Observed(job(status=status_initialized()), refusals=(refusal,)))
    assert reasons(plan) == {
        "Validated": ("True", "Valid"),
        "Initialized": ("True", "InitializersComplete"),
        "ClusterReady": ("False", "NameTaken"),
        "Finished": ("True", "Failed"),
    }
    assert wrote(plan).reason == "NameTaken"


def test_a_ray_that_asks_for_no_token_ends_the_job_before_it_is_submitted() -> None:
    refusal = Refusal("RayCluster", "sums-0a1b2-1", "the job API answers without the token", RefusalCause.OPEN)
    status = wrote(decide(Observed(job(status=status_initialized()), refusals=(refusal,))))
    assert (status.state, status.reason, status.message) == ("Failed", "RayWithoutTokens", refusal.why)


def test_a_manifest_that_the_server_refuses_ends_the_job_with_its_words() -> None:
    refusal = Refusal("RayCluster", "sums-0a1b2-1", "422 spec.x: Invalid value", RefusalCause.INVALID)
    status = wrote(decide(Observed(job(status=status_initialized()), refusals=(refusal,))))
    assert status.reason == "InvalidManifest"
    assert "422 spec.x: Invalid value; correct the fields" in str(status.message)


@pytest.mark.parametrize(
    ("code", "reason", "word", "event"),
    [
        (0, "", "Succeeded", "the job succeeded"),
        (1, "", "DriverFailed", "the job failed"),
        (64, "BadPath", "BadPath", "the job failed"),
    ],
)
def test_an_end_without_words_gets_some(code: int, reason: str, word: str, event: str) -> None:
    outcome = Outcome(exit_code=code, reason=reason, message="")
    plan = decide(running(progress=answer({"phase": Phase.ENDED, "outcome": outcome})))
    assert wrote(plan).reason == word
    assert plan.events[0].message == event
    assert reasons(plan)["Progressing"] == ("False", word)


@pytest.mark.parametrize("reason", ["no word", "1st", "x" * 500, "Ünicode", "Line\n"])
def test_a_reason_that_is_no_word_is_replaced(reason: str) -> None:
    outcome = Outcome(exit_code=1, reason=reason, message="why", last_step=-5)
    status = wrote(decide(running(progress=answer({"phase": Phase.ENDED, "outcome": outcome}))))
    assert (status.reason, status.message) == ("DriverFailed", "why")


def test_the_last_step_is_the_highest_that_was_reported() -> None:
    told = answer({"step": 7, "phase": Phase.ENDED})
    ended = running(progress=told, ray_job=RayJob(SUBMISSION_ID, RayJobState.FAILED))
    assert wrote(decide(ended)).attempts[0].last_step == 7


@pytest.mark.parametrize(("code", "state", "begin"), [(0, "Succeeded", ""), (68, "Failed", "StopRuleMatched: ")])
def test_a_stop_rule_is_named_to_the_end(code: int, state: str, begin: str) -> None:
    message = "stop rule target: critic/score/mean 0.95 is above 0.9 at step 7; step 7 is saved"
    outcome = Outcome(code, "StopRuleMatched", message, rule="target", last_step=7)
    plan = decide(running(progress=answer({"phase": Phase.ENDED, "outcome": outcome, "step": 7})))
    status = wrote(plan)
    assert (status.state, status.reason, status.message) == (state, "StopRuleMatched", message)
    assert (status.attempts[0].reason, status.attempts[0].message) == ("StopRuleMatched", message)
    finished_condition = next(c for c in status.conditions if c.type == "Finished")
    assert (finished_condition.reason, finished_condition.message) == (state, begin + message)


def test_a_rule_that_the_message_leaves_out_is_put_before_it() -> None:
    outcome = Outcome(68, "RestartRuleMatched", "exit code 137", rule="memory")
    plan = decide(running(progress=answer({"phase": Phase.ENDED, "outcome": outcome})))
    assert wrote(plan).message == "rule memory: exit code 137"


def test_an_evaluation_shows_its_score_without_a_step() -> None:
    outcome = Outcome(0, "Evaluated", "evaluated the model on data.validation: mean score 0.62")
    told = answer({"phase": Phase.ENDED, "outcome": outcome, "step": 0, "total_steps": 0, "reward": 0.62})
    status = wrote(decide(running(progress=told)))
    assert (status.state, status.reason) == ("Succeeded", "Evaluated")
    assert status.progress is not None
    assert (status.progress.summary, status.progress.reward, status.progress.eta) == ("", "0.62", None)
