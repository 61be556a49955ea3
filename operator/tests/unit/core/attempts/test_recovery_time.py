"""The seconds between two attempts by cause: they add up to the span from one step to the next."""

from __future__ import annotations

from typing import Any

import pytest
from builders import NOW, Json, answer, at
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.status import Attempt, RLJobStatus
from rljob.api.under_way import BegunStage
from rljob.core import times
from rljob.core.attempts.recovery_time import BEFORE_THE_RUN, CAUSES, pod_stages, recovery_of
from rljob.core.transitions.progress import with_first_step
from rljob.core.transitions.start_stages import with_stage
from rljob_runtime.contract import StartStage


def moment(seconds: float) -> str:
    return times.to_text(at(seconds))


def attempt(number: int, **fields: Any) -> Attempt:  # noqa: ANN401 - of Attempt
    made: Json = {"number": number, "clusterName": "c", "submissionId": f"c-{number}", "submittedTime": moment(0)}
    return Attempt.model_validate(made | fields)


def stages(*entries: tuple[str, float]) -> list[BegunStage]:
    return [BegunStage(name=name, since=moment(seconds)) for name, seconds in entries]


TRAINED = {"startTime": moment(-99), "lastStep": 12, "lastStepTime": moment(0)}


def test_a_new_cluster() -> None:
    before = attempt(1, **TRAINED, stopTime=moment(5), endTime=moment(9))
    again = attempt(2, resumedFromStep=10)
    start = stages(
        *(("Waiting", 20), ("Pods", 50), ("Image", 51), ("Ray", 55), ("Submitting", 65), ("Preparing", 68)),
        *(("CheckingNodes", 70), ("StartingTrainer", 72), ("LoadingModel", 80), ("StartingReplicas", 90)),
        *(("LoadingCheckpoint", 95), ("SendingWeights", 97), ("FirstRollout", 98), ("FirstUpdate", 101)),
    )
    found = {part.cause.value: part.seconds for part in recovery_of([before, again], start, moment(104), 4.0)}
    assert found == {
        "Detection": 5,
        "Stop": 4,
        "Deletion": 11,
        "Wait": 30,
        "Scheduling": 1,
        "Image": 4,
        "Ray": 13,
        "Checks": 4,
        "Imports": 8,
        "Model": 12,
        "Engines": 5,
        "Weights": 1,
        "FirstStep": 6,
        "Repeated": 4,
    }


def test_the_same_cluster_and_starts_that_failed_in_between() -> None:
    first = attempt(1, **TRAINED, endTime=moment(6))
    failed = attempt(2, endTime=moment(300), lastStep=12)
    start = stages(("Pods", 302), ("Submitting", 310), ("Preparing", 312))
    found = {
        part.cause.value: part.seconds for part in recovery_of([first, failed, attempt(3)], start, moment(320), 2.0)
    }
    assert found == {
        "Detection": 6,
        "FailedStart": 294,
        "Wait": 2,
        "Scheduling": 8,
        "Ray": 2,
        "Checks": 8,
        "Repeated": 22,
    }


@pytest.mark.parametrize(("recorded", "repeated"), [(None, 27), (3, 27), (5, 21), (10, 6), (20, 0)])
def test_steps_until_the_first_record_are_not_repeated_twice(recorded: int | None, repeated: int) -> None:
    attempts = [attempt(1, **TRAINED, endTime=moment(6)), attempt(2, resumedFromStep=2)]
    told = answer(
        {"step": recorded or 5, "first_step": recorded, "median_step_seconds": 3.0, "step_time": at(9).timestamp()}
    )
    current = with_stage(RLJobStatus(attempts=attempts), "Submitting", moment(7))
    found = {part.cause.value: part.seconds for part in with_first_step(current, told).attempts[-1].recovery}
    assert found.get("Repeated", 0) == repeated


def test_a_first_start_has_lost_nothing() -> None:
    assert recovery_of([attempt(1)], stages(("Pods", 1)), moment(9), 1.0) == []
    assert recovery_of([attempt(1, endTime=moment(3)), attempt(2)], stages(("Pods", 4)), moment(9), 1.0) == []


@given(
    st.lists(st.tuples(st.sampled_from([*BEFORE_THE_RUN, *StartStage, "Unknown"]), st.integers(-50, 500))),
    st.integers(-300, 300),
)
def test_the_causes_add_up_whatever_the_clocks_say(entries: list[tuple[str, int]], first_step: int) -> None:
    before = attempt(1, **TRAINED, endTime=moment(6))
    found = recovery_of([before, attempt(2, resumedFromStep=12)], stages(*entries), moment(first_step), 3.0)
    assert sum(part.seconds for part in found) == max(first_step, 0)


def test_every_stage_of_a_verl_run_has_a_cause() -> None:
    last = {"Validating", "FirstRollout", "FirstUpdate", "WaitingForRecords", "RunningCommand"}
    assert {*StartStage} - set(CAUSES) == last


@pytest.mark.parametrize(("created", "names"), [(NOW, ["Image", "Ray"]), (at(-60), [])])
def test_a_head_that_was_there_before_says_nothing_of_its_start(created: Any, names: list[str]) -> None:  # noqa: ANN401 - datetime
    pod = {
        "metadata": {"creationTimestamp": times.to_text(created)},
        "status": {
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(2)}],
            "containerStatuses": [{"name": "ray-head", "state": {"running": {"startedAt": moment(5)}}}],
        },
    }
    found = pod_stages(pod, moment(0))
    assert [(stage.name, stage.since) for stage in found] == [*zip(names, [moment(2), moment(5)], strict=False)]
