"""What a start is doing, with the seconds until somebody looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from builders import NOW, at, job

from rljob.cli import start
from rljob.cli.describe import World, why
from rljob.cli.status import describe
from rljob.cli.watch import overview
from rljob.core.start_message import Written
from scripts.demo.follow import describe as demo_line

LOADING = Written("loading the model: 1 of 2 ranks are done", 45, NOW)
STATUS = {
    "state": "Starting",
    "reason": "Submitted",
    "message": LOADING.text,
    "conditions": [{"type": "Progressing", "status": "True", "reason": "Submitted", "message": LOADING.text}],
}
STARTING = job(status=STATUS)
LIVE = "loading the model: 1 of 2 ranks are done (57 s)"


def test_every_command_counts_on_from_the_status() -> None:
    live = start.with_current(STARTING, at(12))
    assert describe(live).count(LIVE) == 2
    assert LIVE in why(World(live))
    (row,) = overview([STARTING], at(12)).splitlines()[3:]
    assert LIVE in row


def test_the_demo_counts_on_as_well() -> None:
    written = Written("first rollout", 5, datetime.now(UTC) - timedelta(seconds=60))
    line = demo_line({"state": "Starting", "message": written.text}, 65)
    assert line.startswith(" 1:05  Starting     first rollout (6")


@pytest.mark.parametrize(
    "status",
    [{}, {"message": "", "conditions": []}, {"message": "pod w-0 waits", "conditions": [{"type": "Validated"}]}],
)
def test_other_messages_stay_as_they_are(status: dict[str, object]) -> None:
    live = start.with_current(job(status=status), at(12))
    assert live["status"].get("message") == status.get("message")
    assert start.words(status) == start.stage(status, at(12)) == ""


def test_only_a_starting_job_has_a_stage() -> None:
    assert start.words(STATUS) == "loading the model: 1 of 2 ranks are done"
    assert start.stage(STATUS, at(12)) == LIVE
    assert start.stage(STATUS | {"state": "Stopping"}, at(12)) == ""
