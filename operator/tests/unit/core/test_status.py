"""Reading and writing the status."""

import math

import pytest
from builders import NOW, job, status_finished, status_recorded, status_training
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from rljob.api.base import Metric
from rljob.api.status import Condition, ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core.status import MESSAGE_LIMIT, Writer, bounded, condition, document, is_true, metric, read_status

WRITER = Writer(generation=3, now=NOW)
LATER = Writer(generation=4, now=NOW.replace(hour=13))


def ready(status: RLJobStatus, writer: Writer, value: ConditionStatus) -> RLJobStatus:
    return writer.with_condition(status, ConditionType.CLUSTER_READY, value, "Because")


def test_a_status_reads_as_it_was_written() -> None:
    assert document(read_status(job(status=status_training()))) == status_training()


def test_a_job_without_status_has_an_empty_one() -> None:
    assert read_status(job()) == RLJobStatus()


@pytest.mark.parametrize("damage", [{"state": "Dreaming"}, {"progress": {"step": "many"}}, {"attempts": "none"}])
def test_a_part_that_does_not_fit_costs_only_that_part(damage: dict[str, object]) -> None:
    read = read_status(job(status=status_finished() | damage))
    assert is_true(read, ConditionType.FINISHED)
    assert read.intent is not None


def test_a_broken_condition_costs_only_that_condition() -> None:
    status = status_finished()
    status["conditions"].insert(0, {"type": "Validated", "status": "Perhaps"})
    assert is_true(read_status(job(status=status)), ConditionType.FINISHED)


def test_a_condition_of_another_version_is_kept_and_stands_last() -> None:
    status = status_finished()
    status["conditions"].insert(0, status["conditions"][0] | {"type": "Moonlit"})
    new = ready(read_status(job(status=status)), WRITER, ConditionStatus.TRUE)
    assert [entry.type for entry in new.conditions][-2:] == ["Finished", "Moonlit"]


@pytest.mark.parametrize("nonsense", ["text", [1], {"conditions": {"a": 1}, "attempts": [[]]}])
def test_nonsense_reads_as_lost(nonsense: object) -> None:
    assert read_status({"metadata": {}, "status": nonsense}) == RLJobStatus()


def test_a_status_that_cannot_be_mended_reads_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.core.status.READ_ATTEMPTS", 1)
    assert read_status(job(status=status_finished() | {"state": "Dreaming"})) == RLJobStatus()


def test_the_transition_time_moves_only_with_the_value() -> None:
    first = ready(RLJobStatus(), WRITER, ConditionStatus.FALSE)
    same = ready(first, LATER, ConditionStatus.FALSE)
    other = ready(first, LATER, ConditionStatus.TRUE)
    times = [entry.last_transition_time for status in (first, same, other) for entry in status.conditions]
    assert times == ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"]
    assert same.observed_generation == 4


def test_conditions_stand_in_the_order_of_a_jobs_life() -> None:
    status = WRITER.with_condition(RLJobStatus(), ConditionType.FINISHED, ConditionStatus.TRUE, "Failed")
    status = WRITER.with_condition(status, ConditionType.VALIDATED, ConditionStatus.TRUE, "Valid")
    assert [entry.type for entry in status.conditions] == ["Validated", "Finished"]


def test_a_condition_that_is_absent_is_not_true() -> None:
    assert condition(RLJobStatus(), ConditionType.FINISHED) is None
    assert not is_true(RLJobStatus(), ConditionType.FINISHED)


def test_an_empty_summary_leaves_no_message() -> None:
    assert WRITER.summarised(RLJobStatus(), State.TRAINING, "Training").message is None


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=3000))
def test_a_message_of_any_characters_fits(text: str) -> None:
    kept = bounded(text)
    assert len(kept.encode()) <= MESSAGE_LIMIT
    Condition(type="T", status=ConditionStatus.TRUE, reason="R", message=kept, last_transition_time="now")


def test_a_long_message_says_that_it_goes_on() -> None:
    assert bounded("界" * 1000).endswith("界…")
    assert bounded("short") == "short"


def test_a_message_does_not_control_the_terminal_of_its_reader() -> None:
    assert bounded("\x1b[2Ja\rb\x9bc\u202ed\tline\nnext") == "\\u001b[2Ja\\u000db\\u009bc\\u202ed\tline\nnext"
    assert bounded(bounded("\x1b")) == bounded("\x1b")
    assert len(bounded("\x1b" * MESSAGE_LIMIT).encode()) <= MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (math.nan, "NaN"),
        (math.inf, "Inf"),
        (-math.inf, "-Inf"),
        (0.123456, "0.1235"),
        (12345.678, "12345.7"),
        (1e-7, "1e-07"),
        (1e300, "1e+300"),
        (-0.0, "-0"),
    ],
)
def test_a_figure_is_written_for_people(value: float | None, text: str | None) -> None:
    assert metric(value) == text


@given(st.floats())
def test_every_figure_fits_the_schema(value: float) -> None:
    TypeAdapter(Metric).validate_python(metric(value))


@pytest.mark.parametrize("part", ["intent", "resolved"])
def test_intent_and_resolved_are_lost_together(part: str) -> None:
    now = "2026-01-01T12:00:00Z"
    stop = {"reason": "Preempted", "mode": "AfterStep", "requestedTime": now, "deadline": now}
    whole = status_recorded() | {"stop": stop, "ending": {"time": now, "deadline": now, "exitCode": 1}}
    del whole[part]
    read = read_status(job(status=whole))
    assert (read.intent, read.resolved) == (None, None)
    assert (read.stop, read.ending) == (None, None)
    assert read.conditions
