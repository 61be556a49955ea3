"""What a start is doing, with the seconds until somebody looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from builders import NOW, Json, at, job

from rljob.cli.describe import World, why
from rljob.cli.status import describe
from rljob.cli.watch import overview
from rljob.core import times
from rljob.reading import start
from scripts.demo.follow import describe as demo_line

WRITTEN = "loading the model: 1 of 2 ranks are done (45 s at 2026-01-01T12:00:00Z)"
STATUS = {
    "state": "Starting",
    "reason": "Submitted",
    "message": WRITTEN,
    "conditions": [{"type": "Progressing", "status": "True", "reason": "Submitted", "message": WRITTEN}],
    "start": {
        "stage": "LoadingModel",
        "detail": "1 of 2 ranks are done",
        "since": times.to_text(at(-45)),
        "observedTime": times.to_text(NOW),
    },
}
STARTING = job(status=STATUS)
LIVE = "loading the model: 1 of 2 ranks are done (57 s)"


def test_every_command_counts_on_from_the_status() -> None:
    live = start.with_current(STARTING, at(12))
    assert describe(live).count(LIVE) == 2
    assert LIVE in why(World(live))
    (row,) = overview([STARTING], at(12)).splitlines()[3:]
    assert LIVE in row


def test_a_clock_of_the_reader_that_is_behind_makes_no_stage_shorter() -> None:
    assert start.current(STATUS, at(-60)) == "loading the model: 1 of 2 ranks are done (45 s)"


def test_the_demo_counts_on_as_well() -> None:
    begun = times.to_text(datetime.now(UTC) - timedelta(seconds=65))
    rolling = {"stage": "FirstRollout", "since": begun, "observedTime": begun}
    line = demo_line({"state": "Starting", "reason": "Submitted", "message": "an old text", "start": rolling}, 65)
    assert line.startswith(" 1:05  Starting     first rollout (6")


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"message": "", "conditions": []},
        {"message": "pod w-0 waits", "conditions": [{"type": "Validated"}]},
        {"message": "1 of 2 pods", "start": {"stage": "Pods", "since": times.to_text(NOW)}},
        # An operator that does not record when the run reported its stage.
        {"reason": "Submitted", "message": WRITTEN, "start": {"stage": "LoadingModel", "since": times.to_text(NOW)}},
    ],
)
def test_other_messages_stay_as_they_are(status: Json) -> None:
    live = start.with_current(job(status=status), at(12))
    assert live["status"].get("message") == status.get("message")
    assert start.words(status) == start.stage(status, at(12)) == ""


def test_only_a_starting_job_has_a_stage() -> None:
    assert start.words(STATUS) == "loading the model: 1 of 2 ranks are done"
    assert start.stage(STATUS, at(12)) == LIVE
    assert start.stage(STATUS | {"state": "Stopping"}, at(12)) == ""


def test_a_silent_head_is_reported_in_place_of_the_stage() -> None:
    silent = STATUS | {"reason": "HeadSilent", "message": "the head pod does not answer"}
    assert start.current(silent, at(12)) == "the head pod does not answer"
