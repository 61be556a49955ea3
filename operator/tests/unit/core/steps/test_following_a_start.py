"""The status says what a start is doing, at a bounded rate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import Json, answer, at, decide, job, reasons, running, status_after, status_submitted, wrote

from rljob.api.status import ConditionType, State
from rljob.core.observed import PROGRESS_WRITE_SECONDS, UNSEEN, Observed, Silence
from rljob.core.plan import Plan
from rljob.core.status import condition
from rljob_runtime.contract import Phase, StartProgress, StartStage


def starting(status: Json | None, stage: StartStage, *numbers: int, begun: float = 0.0, **facts: object) -> Observed:
    done, total = numbers or (None, None)
    start = StartProgress(stage, at(begun).timestamp(), done, total)
    told = answer({"phase": Phase.STARTING, "step": 0, "start": start})
    return running(job=job(status=status or status_submitted()), progress=told, **facts)


def loading(seconds: float = 20.0) -> Plan:
    """Return the first report of a stage."""
    return decide(starting(None, StartStage.LOADING_MODEL, 0, 2), seconds)


def test_the_first_stage_is_written_at_once_to_status_and_condition() -> None:
    plan, text = loading(), "loading the model: 0 of 2 ranks are done (20 s at 2026-01-01T12:00:20Z)"
    assert (wrote(plan).state, wrote(plan).reason, wrote(plan).message) == (State.STARTING, "Submitted", text)
    told = condition(wrote(plan), ConditionType.PROGRESSING)
    assert told is not None
    assert (told.status, told.reason, told.message) == ("True", "Submitted", text)
    assert plan.events == ()
    assert plan.requeue_after_seconds == 10.0
    assert plan.rests


def test_a_stage_that_lasts_is_written_once() -> None:
    assert decide(starting(status_after(loading()), StartStage.LOADING_MODEL, 0, 2), 900).status is None


@pytest.mark.parametrize(
    ("shared", "seconds", "writes"),
    [
        (PROGRESS_WRITE_SECONDS, 29.0, False),
        (PROGRESS_WRITE_SECONDS, 30.0, True),
        (166.0, 30.0, False),
        (166.0, 185.0, False),
        (166.0, 186.0, True),
    ],
)
@pytest.mark.parametrize(
    ("stage", "numbers"), [(StartStage.LOADING_MODEL, (1, 2)), (StartStage.FIRST_ROLLOUT, ())], ids=str
)
def test_later_stages_are_written_at_the_interval_of_all_jobs(
    stage: StartStage, numbers: tuple[int, ...], shared: float, seconds: float, writes: bool
) -> None:
    world = replace(starting(status_after(loading()), stage, *numbers), progress_write_seconds=shared)
    assert (decide(world, seconds).status is not None) == writes


def test_a_start_of_many_stages_costs_one_write_per_interval() -> None:
    status, writes = status_submitted(), 0
    for second in range(600):
        stage = list(StartStage)[second % len(StartStage)]
        plan = decide(starting(status, stage, begun=second), second)
        if plan.status is not None:
            status, writes = status_after(plan), writes + 1
    assert writes == 60


def test_the_first_step_ends_it() -> None:
    plan = decide(running(job=job(status=status_after(loading())), progress=answer()), 40)
    told = condition(wrote(plan), ConditionType.PROGRESSING)
    assert told is not None
    assert (told.reason, told.message, wrote(plan).message) == ("Training", "", None)


def test_the_stage_is_written_when_the_head_answers_again() -> None:
    silence = Silence(at(20), at(20))
    silent = decide(running(job=job(status=status_after(loading())), progress=UNSEEN, silence=silence), 400)
    assert reasons(silent)["Progressing"] == ("Unknown", "HeadSilent")
    again = decide(starting(status_after(silent), StartStage.FIRST_ROLLOUT, begun=390), 401)
    assert wrote(again).message == "first rollout (11 s at 2026-01-01T12:06:41Z)"
    assert [note.reason for note in again.events] == ["Submitted"]


@pytest.mark.parametrize("start", [None, StartProgress("WarmingUp", 5.0)])
def test_an_image_without_known_stages_leaves_the_message_alone(start: StartProgress | None) -> None:
    told = answer({"phase": Phase.STARTING, "step": 0, "start": start})
    assert decide(running(progress=told), 600).status is None
