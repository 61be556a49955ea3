"""What follows the end of an attempt that did not succeed: which budget it uses."""

from __future__ import annotations

import pytest
from builders import (
    SUBMISSION_ID,
    Json,
    answer,
    at,
    decide,
    job,
    running,
    saving,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_submitted,
    status_training,
    wrote,
)

from rljob.api.status import FailureCause, State
from rljob.core import times
from rljob.core.observed import UNSEEN
from rljob_runtime.contract import Outcome, Phase

SAVED = {"step": 5, "path": "/data/saves", "savedTime": times.to_text(at(0))}

AT_FIRST: Json = {"observed_time": at(0).timestamp()}


def after_trained(restart: Json, budget: Json) -> tuple[State, FailureCause | None]:
    """End an attempt without explanation before its first step, after one that had trained; return what follows."""
    spec = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "restart": restart}))
    status = status_submitted()
    ran = {
        "number": 1,
        "clusterName": "sums-00000-0",
        "submissionId": "sums-00000-0-1",
        "submittedTime": times.to_text(at(-900)),
        "startTime": times.to_text(at(-800)),
        "endTime": times.to_text(at(-100)),
        "outcome": "Failed",
        "cause": "User",
        "reason": "RunFailed",
        "lastStep": 8,
    }
    last = status["attempts"][0] | {"number": 2}
    status |= {"attempts": [ran, last], "budget": budget | {"sinceStep": 5}, "checkpoint": SAVED}
    end = Outcome(1, "RunFailed", "address already in use", last_step=0)
    told = answer({"phase": Phase.ENDED, "step": 0, "reward": None, "outcome": end, "observed_time": at(0).timestamp()})
    new = wrote(decide(running(job=job(spec, status), snapshot=snapshot(spec), progress=told), 100))
    return new.state, new.attempts[-1].cause


@pytest.mark.parametrize(
    ("restart", "budget", "state", "cause"),
    [
        ({}, {}, State.RESTARTING, FailureCause.INFRASTRUCTURE),
        ({"maxRestarts": 5}, {"userFailures": 1}, State.RESTARTING, FailureCause.INFRASTRUCTURE),
        ({"maxRestarts": 5, "maxInfrastructureRestarts": 0}, {"userFailures": 1}, State.RESTARTING, FailureCause.USER),
        (
            {"maxRestarts": 5},
            {"userFailures": 1, "infrastructureFailures": 3},
            State.RESTARTING,
            FailureCause.USER,
        ),
        ({"maxInfrastructureRestarts": 0}, {"userFailures": 1}, State.FAILED, FailureCause.USER),
    ],
    ids=["by default", "room in both", "none for the place", "used up for the place", "room in none"],
)
def test_the_benefit_of_the_doubt_takes_nothing_from_a_run(
    restart: Json, budget: Json, state: State, cause: FailureCause
) -> None:
    assert after_trained(restart, budget) == (state, cause)


def test_a_run_that_was_stopped_for_a_stall_gets_a_new_cluster_however_it_ended_meanwhile() -> None:
    changes = {"restart": {"maxRestarts": 3}, "deadlines": {"progressSeconds": 600}}
    spec = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}} | changes))
    late = decide(running(job=job(spec, status_training()), snapshot=snapshot(spec), progress=answer(AT_FIRST)), 700)
    assert wrote(late).stop is not None
    end = Outcome(1, "RunFailed", "a collective timed out", last_step=3)
    told = answer(AT_FIRST | {"phase": Phase.ENDED, "outcome": end})
    plan = decide(running(job=job(spec, status_after(late)), snapshot=snapshot(spec), progress=told), 720)
    new = wrote(plan)
    assert (new.state, new.attempts[-1].cause) == (State.RESTARTING, FailureCause.USER)
    assert (new.stop.reason if new.stop else None, new.intent.attempt if new.intent else 0) == ("Restarting", 1)
    gone = seen(job(spec, status_after(plan)), snapshot=snapshot(spec), live_cluster=None, pods=())
    assert wrote(decide(gone, 740)).state is State.RESTARTING, "not suspended, because suspend is not set"


@pytest.mark.parametrize("part", ["intent", "resolved"])
def test_the_run_whose_intent_is_lost_is_found_again_and_never_joined_by_another(part: str) -> None:
    status = status_training()
    del status[part]
    world = {"progress": UNSEEN, "ray_job": UNSEEN, "last_generation": 1}
    begun = status_after(decide(running(job=job(status=status), **world), 100))
    assert begun["attempts"] == []
    found = wrote(decide(running(job=job(status=begun), progress=answer(), ray_job=UNSEEN), 101))
    assert found.intent is not None
    assert (found.intent.attempt, found.intent.submission_id) == (1, SUBMISSION_ID)
