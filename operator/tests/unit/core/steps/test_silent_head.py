"""A head that does not answer: reported, tolerated, and given up only if neither exporter nor Ray answers for long."""

from __future__ import annotations

import pytest
from builders import SUBMISSION_ID, answer, at, decide, job, reasons, running, status_training, wrote

from rljob.api.status import State
from rljob.core import times
from rljob.core.observed import UNSEEN, Manifest, RayJob, RayJobState, Silence, Unseen
from rljob.core.plan import Plan
from rljob.core.transitions.conclusions import NO_RESTART

RUNNING = RayJob(SUBMISSION_ID, RayJobState.RUNNING)


def silent(
    seconds: float,
    ray_job: RayJob | Unseen = UNSEEN,
    status: Manifest | None = None,
    since: float = 0.0,
    mute_since: float | None = None,
) -> Plan:
    training = job(status=dict(status or status_training()))
    mute = None if isinstance(ray_job, RayJob) else at(since if mute_since is None else mute_since)
    silence = Silence(at(since), mute)
    return decide(running(job=training, progress=UNSEEN, ray_job=ray_job, silence=silence), seconds=seconds)


def test_a_silence_of_five_minutes_is_reported_and_ends_no_run() -> None:
    plan = silent(301)
    assert reasons(plan)["Progressing"] == ("Unknown", "HeadSilent")
    assert wrote(plan).state is State.TRAINING


def test_one_question_in_vain_is_no_news_however_long_the_step_takes() -> None:
    assert silent(100_000, since=100_000) == Plan(requeue_after_seconds=10.0)


def test_a_short_silence_is_no_news() -> None:
    assert silent(299).empty
    assert not silent(300).empty


def test_a_head_of_which_nothing_answers_is_given_up_in_the_end() -> None:
    told = silent(301).status
    assert silent(301 + 14_399, status=told).empty
    assert wrote(silent(301 + 14_400, status=told)).reason == "HeadSilent"


def test_an_operator_that_was_away_asks_anew_before_it_gives_a_silent_head_up() -> None:
    told = silent(301).status
    assert silent(100_000, status=told, since=100_000).empty
    assert wrote(silent(100_300, status=told, since=100_000)).reason == "HeadSilent"


def test_a_run_that_ray_vouches_for_is_never_given_up_for_silence() -> None:
    told = silent(301, RUNNING).status
    assert silent(1_000_000, RUNNING, told).empty
    # One request without an answer, or some minutes of them, after days of answers.
    for seconds in (0, 301, 14_399):
        assert silent(1_000_000 + seconds, status=told, mute_since=1_000_000).empty
    given_up = silent(1_014_400, status=told, mute_since=1_000_000)
    assert (wrote(given_up).reason, wrote(given_up).attempts[0].message) == (
        "HeadSilent",
        f"the head pod has not answered since {times.to_text(at(1_000_000))} ({NO_RESTART})",
    )


@pytest.mark.parametrize(("step", "reason"), [(0, "Submitted"), (3, "Training")])
def test_an_answer_after_silence_is_a_transition(step: int, reason: str) -> None:
    told = silent(301).status
    plan = decide(running(job=job(status=dict(told or {})), progress=answer({"step": step})), seconds=302)
    assert reasons(plan)["Progressing"] == ("True", reason)
    assert [note.message for note in plan.events] == [f"the head answers again: step {step}/40"]
