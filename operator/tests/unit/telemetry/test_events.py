"""The event recorder: one event per transition, never a flood."""

from __future__ import annotations

import pytest
from doubles.fake import fail_calls
from machine import KEY, Machine

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import EVENT
from rljob.core.plan import EventNote, EventType
from rljob.telemetry.events import BUDGET, SAME_SECONDS, EventRecorder


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


async def test_the_same_note_is_posted_once_in_ten_minutes(machine: Machine) -> None:
    job = await machine.start()
    for _ in range(5):
        await recorder(machine).record(job, note())
    await recorder(machine).record(job, note("other"))
    assert len(machine.events()) == 2
    machine.clock.advance(SAME_SECONDS)
    await recorder(machine).record(job, note())
    assert len(machine.events()) == 3


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
