"""A command whose steps cannot be seen, or whose number of steps is not stated."""

from __future__ import annotations

import pytest
from builders import Json, answer, decide, job, merged, running, small_spec, snapshot, status_submitted, wrote
from corpus.command import command, progress

SHORT: Json = {"deadlines": {"progressSeconds": 600}}


@pytest.mark.parametrize(("change", "ends"), [(command(), False), (progress(source="VerlConsole"), True)])
def test_only_a_command_with_progress_has_a_deadline_between_steps(change: Json, ends: bool) -> None:
    spec = small_spec(merged(change, SHORT) | {name: None for name, value in change.items() if value is None})
    world = running(job=job(spec, status_submitted()), snapshot=snapshot(spec), progress=answer())
    plan = decide(world, seconds=601)
    assert (plan.status is not None and wrote(plan).stop is not None) is ends


@pytest.mark.parametrize(("total", "summary"), [(40, "3/40"), (0, "3")])
def test_a_step_is_shown_with_the_number_of_steps_only_if_that_is_stated(total: int, summary: str) -> None:
    spec = small_spec(command(trainer=None) if total == 0 else command())
    world = running(
        job=job(spec, status_submitted()),
        snapshot=snapshot(spec),
        progress=answer({"total_steps": total, "step_seconds": 2.0}),
    )
    written = wrote(decide(world)).progress
    assert written is not None
    assert (written.summary, written.total_steps) == (summary, total)
    assert (written.eta is None) is (total == 0)
