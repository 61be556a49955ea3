"""What the conditions of a finished job say."""

from __future__ import annotations

import pytest
from builders import (
    Json,
    answer,
    decide,
    job,
    merged,
    reasons,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_submitted,
    wrote,
)

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import times
from rljob.core.status import Writer, condition
from rljob.core.transitions.final_conditions import FINAL, with_final_conditions
from rljob_runtime.contract import Outcome, Phase

WRITER = Writer(generation=2, now=times.from_text("2026-01-01T12:00:00Z"))
STAYS = ("Validated", "Checkpointed", "Paused", "Finished")
SPEC = small_spec(saving({"checkpoint": {"path": "/data/ckpt", "everySteps": 5}}))
SUSPENDED: Json = merged(SPEC, {"suspend": True})


def finished(kind: ConditionType, value: ConditionStatus) -> tuple[str, str, str]:
    """Return how the condition reads after the end of a job that had it with this value."""
    before = WRITER.with_condition(RLJobStatus(), kind, value, "Before", "under way")
    told = condition(with_final_conditions(before, WRITER, "Succeeded"), kind)
    assert told is not None
    return told.status.value, told.reason, told.message


def test_the_table_has_every_condition() -> None:
    assert list(FINAL) == list(ConditionType)


@pytest.mark.parametrize("value", list(ConditionStatus))
@pytest.mark.parametrize("kind", list(ConditionType))
def test_only_facts_about_the_past_stay(kind: ConditionType, value: ConditionStatus) -> None:
    stays = kind.value in STAYS or (kind is ConditionType.INITIALIZED and value is ConditionStatus.TRUE)
    reason = "Healthy" if kind in (ConditionType.DEGRADED, ConditionType.ROLLOUT_DEGRADED) else "Succeeded"
    assert finished(kind, value) == ((value.value, "Before", "under way") if stays else ("False", reason, ""))


def test_a_condition_that_was_never_set_stays_absent() -> None:
    assert with_final_conditions(RLJobStatus(), WRITER, "Succeeded") == RLJobStatus()


def test_a_job_that_completes_while_it_is_asked_to_stop_is_not_suspending() -> None:
    held = {"snapshot": snapshot(SPEC)}
    ordered = decide(running(job=job(SUSPENDED, status_submitted()), progress=answer(), **held))
    assert reasons(ordered)["Suspended"] == ("False", "Suspending")
    done = answer({"phase": Phase.ENDED, "step": 10, "outcome": Outcome(0, "Completed", "trained 10 steps")})
    ended = decide(running(job=job(SUSPENDED, status_after(ordered)), progress=done, **held))
    assert reasons(ended)["Suspended"] == ("False", "Completed")
    assert reasons(ended)["Finished"] == ("True", "Succeeded")
    assert wrote(ended).stop is None
