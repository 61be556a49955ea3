"""The meaning of a Ray job's end without the exporter's report."""

import math
from dataclasses import replace

import pytest
from builders import NOW, answer

from rljob.core.attempts.outcome import EXIT_CODE_MAX, RULE_LIMIT, TAIL_LIMIT, outcome_of, plausible_outcome
from rljob.core.attempts.sanitize import plausible
from rljob.core.observed import RayJob, RayJobState
from rljob_runtime.contract import Outcome

STOPPED = Outcome(exit_code=66, reason="StoppedOnRequest", message="saved", last_step=9)
DONE = Outcome(exit_code=0, reason="Succeeded", message="", last_step=40)


def ended(state: RayJobState, log: str = "", code: int | None = None, message: str = "") -> RayJob:
    return RayJob("s", state, message=message, driver_exit_code=code, log_tail=log)


def test_the_last_line_of_the_log_is_the_launchers_word() -> None:
    log = "noise\n" + STOPPED.to_json().decode() + "\n{broken\nafterwards\n"
    assert outcome_of(ended(RayJobState.FAILED, log), last_step=3) == STOPPED


def test_a_word_far_above_the_end_is_not_the_last() -> None:
    log = STOPPED.to_json().decode() + "\nline" * 20
    assert outcome_of(ended(RayJobState.FAILED, log, 7), last_step=3).exit_code == 7


@pytest.mark.parametrize(
    ("state", "told", "code"), [(RayJobState.FAILED, DONE, 137), (RayJobState.SUCCEEDED, STOPPED, 0)]
)
def test_a_word_that_contradicts_ray_is_not_the_launchers(state: RayJobState, told: Outcome, code: int) -> None:
    assert outcome_of(ended(state, told.to_json().decode(), code), last_step=3).exit_code == code


@pytest.mark.parametrize(
    ("ray_job", "code", "reason", "message"),
    [
        (ended(RayJobState.SUCCEEDED), 0, "Succeeded", ""),
        (ended(RayJobState.STOPPED), 1, "DriverStopped", "exit code 1"),
        (ended(RayJobState.FAILED, "Traceback\nBoom\n", 3), 3, "DriverFailed", "exit code 3: Traceback\nBoom"),
        (ended(RayJobState.FAILED, message="killed"), 1, "DriverFailed", "exit code 1: killed"),
    ],
)
def test_without_a_word_state_and_code_decide(ray_job: RayJob, code: int, reason: str, message: str) -> None:
    assert outcome_of(ray_job, last_step=3) == Outcome(code, reason, message, last_step=3)


def test_of_a_long_log_the_end_is_kept() -> None:
    message = outcome_of(ended(RayJobState.FAILED, "x" * 5000 + "the cause"), last_step=0).message
    assert message.endswith("the cause")
    assert len(message) <= TAIL_LIMIT + 20


def test_a_plausible_answer_stays_as_it_is() -> None:
    saved = {"checkpoint_step": 5, "checkpoint_time": NOW.timestamp(), "checkpoint_seconds": 0.0, "checkpoint_bytes": 9}
    saved |= {"save_every_steps": 7}
    told = answer(
        {
            "step_seconds": 4.0,
            "median_step_seconds": 4.5,
            "median_rollout_seconds": 3.5,
            "record_seconds": 45.0,
            "verl_version": "0.9.1 (injected)",
        }
        | saved
    )
    assert plausible(told, NOW) == told
    assert plausible(answer(), NOW) == answer()


@pytest.mark.parametrize(
    "lie",
    [
        {"median_step_seconds": -1.0},
        {"median_step_seconds": math.nan},
        {"median_rollout_seconds": math.inf},
        {"median_rollout_seconds": 0.0},
        {"record_seconds": 1e9},
        {"checkpoint_seconds": math.inf},
        {"checkpoint_seconds": -1.0},
        {"checkpoint_bytes": -1},
        {"checkpoint_bytes": 2**63},
        {"save_every_steps": 0},
        {"verl_version": "0.9.1\n"},
        {"verl_version": "1" * 65},
    ],
)
def test_a_figure_that_cannot_be_true_is_as_if_not_said(lie: dict[str, float | str]) -> None:
    assert plausible(answer(lie), NOW) == answer()
    assert plausible(answer({"resumed_from_step": -3}), NOW).resumed_from_step == 0


def test_what_a_pod_says_of_its_end_fits_into_the_status() -> None:
    nodes = ("node-1", "", "node-1", "Not A Node", "x" * 254, *(f"n{number}.example" for number in range(9)))
    wild = Outcome(1 << 40, "R", "m", rule="r" * 2000, last_step=-1, unruled_exit_code=-(1 << 40), nodes=nodes)
    wild = replace(wild, suspect="Not A Node")
    found = plausible_outcome(wild)
    assert found.suspect is None
    assert plausible_outcome(replace(wild, suspect="node-1")).suspect == "node-1"
    assert found.nodes == ("node-1", *(f"n{number}.example" for number in range(7)))
    assert (found.exit_code, found.unruled_exit_code, found.last_step) == (EXIT_CODE_MAX, -EXIT_CODE_MAX, 0)
    assert len(found.rule or "") == RULE_LIMIT
