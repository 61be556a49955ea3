"""What follows an end that is no success: whose budget it draws on."""

from __future__ import annotations

import pytest
from builders import Json, answer, at, decide, job, running, saving, small_spec, snapshot, status_submitted, wrote

from rljob.api.status import FailureCause, State
from rljob.core import clock
from rljob_runtime.contract import Outcome, Phase

SAVED = {"step": 5, "path": "/data/saves", "savedTime": clock.to_text(at(0))}


def after_trained(restart: Json, budget: Json) -> tuple[State, FailureCause | None]:
    """Let an attempt end before its first step, without a word why, after one that had trained; say what follows."""
    spec = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "restart": restart}))
    status = status_submitted()
    ran = {
        "number": 1,
        "clusterName": "sums-00000-0",
        "submissionId": "sums-00000-0-1",
        "submittedTime": clock.to_text(at(-900)),
        "startTime": clock.to_text(at(-800)),
        "endTime": clock.to_text(at(-100)),
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
