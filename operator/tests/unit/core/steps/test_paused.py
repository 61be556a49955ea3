"""A paused job: reported once, then nothing until the annotation is removed."""

from __future__ import annotations

import pytest
from builders import NOW, Json, cluster, decide, job, reasons, requests, running, seen, status_after, status_submitted

from rljob.core.observed import Observed
from rljob.core.requirements import Requirements
from rljob.render.labels import PAUSED

YES = {PAUSED: "true"}


def paused_status() -> Json:
    return status_after(decide(running(job=job(status=status_submitted(), annotations=YES))))


def test_a_paused_job_says_so_and_keeps_all_else() -> None:
    plan = decide(running(job=job(status=status_submitted(), annotations=YES)))
    assert reasons(plan)["Paused"] == ("True", "PausedByUser")
    before, after = status_submitted(), status_after(plan)
    assert {name: after[name] for name in after if name != "conditions"} == {
        name: before[name] for name in before if name != "conditions"
    }
    assert [note.reason for note in plan.events] == ["PausedByUser"]


def test_then_nothing_is_done_and_nothing_is_asked() -> None:
    paused = job(status=paused_status(), annotations=YES)
    plan = decide(running(job=paused), seconds=10_000_000)
    assert plan.empty
    assert plan.requeue_after_seconds is None
    assert requests(paused, (cluster(),), None, NOW) == Requirements()


def test_a_job_that_is_created_paused_makes_nothing() -> None:
    plan = decide(Observed(job(annotations=YES), snapshot=None))
    assert reasons(plan) == {"Paused": ("True", "PausedByUser")}


def test_a_job_goes_on_when_the_annotation_goes() -> None:
    assert reasons(decide(running(job=job(status=paused_status()))))["Paused"] == ("False", "NotPaused")


@pytest.mark.parametrize("value", ["false", "", "True", "yes"])
def test_only_true_pauses(value: str) -> None:
    plan = decide(seen(job(annotations={PAUSED: value})))
    assert "Paused" not in reasons(plan)


def test_a_deletion_is_not_held_up() -> None:
    leaving = job(status=status_submitted(), annotations=YES, deletionTimestamp="2026-01-01T12:00:00Z")
    assert decide(running(job=leaving)).empty
