"""Observing a job whose head is asked outside the round."""

from __future__ import annotations

from machine import KEY, Machine, start_with_head

from rljob.cluster.errors import HeadSilent
from rljob.control.observe import PENDING
from rljob.core.observed import UNSEEN, Observed
from rljob.core.requirements import STOPS_HERE, Requirements


async def test_nothing_else_is_requested_before_the_head_has_answered(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, progress=True, config_name="conf")
    machine.ray.faults.append(HeadSilent("no answer within 2 s"))
    calls = len(machine.cluster.calls)
    observer = machine.reconciler.observer
    assert await observer.observe(KEY, machine.clock.now()) is PENDING
    assert len(machine.cluster.calls) == calls
    await observer.heads.settle()
    seen = await observer.observe(KEY, machine.clock.now())
    assert isinstance(seen, Observed)
    assert (seen.progress, isinstance(seen.config, dict)) == (UNSEEN, True)
    # The silent head is left alone; the round continues without it, and the silence lasts.
    machine.clock.advance(1)
    seen = await observer.observe(KEY, machine.clock.now())
    assert isinstance(seen, Observed)
    assert seen.silence is not None
    assert seen.silence.since < machine.clock.now()


async def test_a_job_that_needs_no_answer_any_more_does_not_wait_for_it(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    observer = machine.reconciler.observer
    machine.wanted = Requirements(head=head, progress=True)
    assert await observer.observe(KEY, machine.clock.now()) is PENDING
    machine.wanted = STOPS_HERE
    assert isinstance(await observer.observe(KEY, machine.clock.now()), Observed)
    assert machine.reconciler.queue.get_nowait() == KEY
    machine.reconciler.queue.done(KEY)
    await observer.heads.settle()
    assert machine.reconciler.queue.get_nowait() is None
