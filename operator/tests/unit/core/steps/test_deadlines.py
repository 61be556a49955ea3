"""Deadlines of a run: of all its attempts, of its steps, and of the loading of its model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    NOW,
    answer,
    at,
    cluster,
    decide,
    job,
    merged,
    pod,
    reasons,
    running,
    seen,
    small_spec,
    snapshot,
    status_begun,
    status_recorded,
    status_submitted,
    status_training,
    wrote,
)

from rljob.core import times
from rljob_runtime.contract import Phase, Progress, StartProgress, StartStage


def test_the_active_deadline_counts_from_the_submission() -> None:
    spec = small_spec({"deadlines": {"activeSeconds": 100}})
    world = running(job=job(spec, status_submitted()))
    assert decide(world, seconds=99).empty
    assert wrote(decide(world, seconds=100)).reason == "ActiveDeadlineExceeded"


def test_the_active_deadline_bounds_all_attempts_together() -> None:
    spec = small_spec({"deadlines": {"activeSeconds": 100}})
    second = status_submitted() | {"usage": {"attemptSeconds": 30}}
    world = running(job=job(spec, second))
    assert decide(world, seconds=69).empty
    assert wrote(decide(world, seconds=70)).reason == "ActiveDeadlineExceeded"


@pytest.mark.parametrize("used", [99, 100])
def test_no_attempt_begins_for_which_the_active_deadline_leaves_no_time(used: int) -> None:
    spec = small_spec({"deadlines": {"activeSeconds": 100}})
    between = {"usage": {"attemptSeconds": used}, "nextAttemptTime": times.to_text(at(50))}
    ended = merged(status_begun(), between | {"intent": {"ended": True}})
    starting, driver = merged(status_begun(), between), merged(status_recorded(), between)
    for plan in (
        decide(seen(job(spec, ended))),
        decide(seen(job(spec, starting), config=None)),
        decide(seen(job(spec, driver), clusters=(cluster(ready=1),), head_pod=pod())),
    ):
        told = wrote(plan).message if plan.status is not None else ""
        assert (told == "deadlines.activeSeconds 100 passed: the attempts so far took 100 s") is (used == 100)


@pytest.mark.parametrize("progress", [answer({"observed_time": 0.0}), answer({"observed_time": math.nan})])
def test_without_steps_the_progress_deadline_ends_the_job(progress: Progress) -> None:
    world = running(job=job(status=status_training()), progress=progress)
    early = decide(world, seconds=14_399)
    assert early.status is None or "Finished" not in reasons(early)
    late = wrote(decide(world, seconds=14_400))
    assert late.reason == "ProgressDeadlineExceeded"
    assert str(late.message).endswith(
        "deadlines.progressSeconds 14400 passed; the stacks of its processes are saved, and it ends by "
        "2026-01-01T16:01:20Z"
    )


@pytest.mark.parametrize(
    ("told", "limit", "named"),
    [
        ({}, 600, "deadlines.progressSeconds 600"),
        ({"median_step_seconds": 300.0, "step_seconds": 9.0}, 900, "3 times the usual step, 900 s,"),
        (
            {"median_step_seconds": 30.0, "record_seconds": 300.0},
            900,
            "3 times the usual time between two reports, 900 s,",
        ),
        ({"step_seconds": 300.0}, 900, "3 times the usual step, 900 s,"),
        ({"phase": Phase.STARTING, "step": 0}, 1800, "deadlines.startSeconds 1800"),
    ],
)
def test_a_run_is_given_as_long_as_its_steps_take(told: dict[str, Any], limit: int, named: str) -> None:
    spec = small_spec({"deadlines": {"progressSeconds": 600}})
    world = running(job=job(spec, status_submitted()), snapshot=snapshot(spec), progress=answer(told))
    early = decide(world, seconds=limit - 1)
    assert early.status is None or wrote(early).stop is None
    stop = wrote(decide(world, seconds=limit)).stop
    assert stop is not None
    assert (stop.mode, stop.message) == ("Stalled", f"no step since 2026-01-01T12:00:00Z: {named} passed")


@pytest.mark.parametrize(
    ("stage", "deadlines", "limit"),
    [
        (StartStage.LOADING_MODEL, {}, 1800 + 79),
        (StartStage.STARTING_REPLICAS, {"startSeconds": 600}, 600 + 79),
        (StartStage.FIRST_ROLLOUT, {}, 14400),
        (StartStage.LOADING_MODEL, {"progressSeconds": 7200}, 7200),
    ],
)
def test_loading_a_model_of_known_size_may_not_take_as_long_as_a_step(
    stage: StartStage, deadlines: dict[str, int], limit: int
) -> None:
    spec = small_spec({"deadlines": deadlines, "model": {"architecture": "Qwen2.5-0.5B"}})
    start = StartProgress(stage, begun=at(0).timestamp())
    progress = answer({"phase": Phase.STARTING, "step": 0, "start": start})
    world = running(job=job(spec, status_submitted()), snapshot=snapshot(spec), progress=progress)
    early = decide(world, seconds=limit - 1)
    assert early.status is None or wrote(early).stop is None
    stop = wrote(decide(world, seconds=limit + 1)).stop
    assert stop is not None
    if limit < 7200:
        assert "deadlines.startSeconds and the time for 8 GB, passed" in stop.message
    else:
        assert "deadlines.progressSeconds" in stop.message


def test_a_clock_that_runs_ahead_puts_off_no_deadline() -> None:
    ahead = replace(answer(), observed_time=at(10_000).timestamp(), step=4)
    progress = wrote(decide(running(progress=ahead))).progress
    assert progress is not None
    assert progress.observed_time == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
