"""The event recorder: one event per transition, limited in number."""

from __future__ import annotations

import pytest
from doubles.fake import fail_calls
from machine import KEY, Machine

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import EVENT, RLJOB
from rljob.core.plan import EventNote, EventType
from rljob.telemetry.events import BUDGET, COUNT_SECONDS, SAME_SECONDS, EventRecorder


@pytest.fixture
def machine() -> Machine:
    return Machine()


def recorder(machine: Machine) -> EventRecorder:
    return machine.reconciler.executor.recorder


def note(message: str = "text") -> EventNote:
    return EventNote(EventType.NORMAL, "Started", message)


async def test_an_event_is_about_the_job(machine: Machine) -> None:
    job = await machine.start()
    await recorder(machine).record(job, note())
    (event,) = machine.cluster.objects(EVENT)
    assert event["regarding"]["uid"] == job["metadata"]["uid"]
    assert event["metadata"]["namespace"] == KEY.namespace
    assert (event["type"], event["reason"], event["note"]) == ("Normal", "Started", "text")


async def test_a_note_does_not_control_the_terminal_of_its_reader(machine: Machine) -> None:
    await recorder(machine).record(await machine.start(), note("\x1b]0;x\x07 \x9b2J \u202e"))
    (event,) = machine.cluster.objects(EVENT)
    assert event["note"] == "\\u001b]0;x\\u0007 \\u009b2J \\u202e"


async def test_the_same_note_is_one_event_that_counts(machine: Machine) -> None:
    job = await machine.start()
    for _ in range(5):
        await recorder(machine).record(job, note())
        machine.clock.advance(COUNT_SECONDS)
    await recorder(machine).record(job, note("other"))
    first, other = sorted(machine.cluster.objects(EVENT), key=lambda event: str(event["eventTime"]))
    assert first["series"]["count"] == 5
    assert first["series"]["lastObservedTime"] == "2026-01-01T00:04:00.000000Z"
    assert "series" not in other


async def test_what_is_counted_says_nothing_else_than_before(machine: Machine) -> None:
    job = await machine.start()
    await recorder(machine).record(job, note())
    (before,) = machine.cluster.objects(EVENT)
    machine.clock.advance(COUNT_SECONDS)
    machine.cluster.edit(RLJOB, *KEY, lambda job: job.update(status={"state": "Pending"}))
    await recorder(machine).record(machine.job(), note())
    (after,) = machine.cluster.objects(EVENT)
    unlike = {name for name in after if after[name] != before.get(name)}
    assert unlike == {"metadata", "series"}


async def test_a_flood_is_counted_in_few_requests(machine: Machine) -> None:
    job = await machine.start()
    asked: list[str] = []
    machine.cluster.faults.append(lambda call: asked.append(call.verb) if call.kind == EVENT else None)
    for _ in range(180):
        await recorder(machine).record(job, note())
        machine.clock.advance(1)
    assert asked == ["create", "patch", "patch"]


async def test_after_ten_minutes_it_is_news_again(machine: Machine) -> None:
    job = await machine.start()
    await recorder(machine).record(job, note())
    machine.clock.advance(SAME_SECONDS)
    await recorder(machine).record(job, note())
    assert len(machine.events()) == 2


async def test_a_job_has_a_budget(machine: Machine) -> None:
    job = await machine.start()
    for number in range(2 * BUDGET):
        await recorder(machine).record(job, note(f"{number}"))
    assert len(machine.events()) == BUDGET


async def test_a_failure_to_post_is_swallowed(machine: Machine) -> None:
    job = await machine.start()
    machine.cluster.faults.append(fail_calls("create", EVENT, Unavailable("down"), times=1))
    await recorder(machine).record(job, note())
    assert machine.events() == []


async def test_a_note_fits_the_api_and_hides_secrets(machine: Machine) -> None:
    job = await machine.start()
    await recorder(machine).record(job, note("token=abc123 " + "ü" * 3000))
    (event,) = machine.cluster.objects(EVENT)
    assert len(event["note"].encode()) <= 1024
    assert "abc123" not in event["note"]
