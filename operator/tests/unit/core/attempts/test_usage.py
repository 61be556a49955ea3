"""What an attempt held, in devices and in cards, and how much of it was productive."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.recovery_time import UnproductiveUse
from rljob.api.status import Attempt, AttemptOutcome, CheckpointStatus, Progress, Resolved, RLJobStatus, Usage
from rljob.api.under_way import StartStatus
from rljob.core import times
from rljob.core.attempts.recovery_time import TRAINING
from rljob.core.attempts.usage import account, added_usage, with_held_before, with_start_usage, with_usage
from rljob.core.scheduling.node_faults import Held
from rljob.core.scheduling.worker_sizes import WorkerSizes

BEGIN, END = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"


def ended(cards: str, saved: str = END) -> Attempt:
    """Return an attempt of 16 devices and 600 s that completed 30 steps of 10 s and saved the first 20."""
    attempt = Attempt(
        number=1,
        submission_id="sums-1-1",
        cluster_name="sums-1",
        submitted_time=BEGIN,
        start_time=BEGIN,
        end_time=END,
        outcome=AttemptOutcome.FAILED,
        last_step=30,
    )
    current = RLJobStatus(
        progress=Progress(step=30, median_step_seconds="10"),
        checkpoint=CheckpointStatus(step=20, path="/saves", saved_time=saved),
    )
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=1, devices=16, cards=cards)
    return with_usage(attempt, current, resolved, times.from_text(END))


@pytest.mark.parametrize(("cards", "held", "productive"), [("16", 9600, 3200), ("8", 4800, 1600), ("NaN", 9600, 3200)])
def test_an_attempt_holds_devices_and_cards(cards: str, held: int, productive: int) -> None:
    attempt = ended(cards)
    assert (attempt.device_seconds, attempt.productive_device_seconds) == (9600, 3200)
    assert (attempt.card_seconds, attempt.productive_card_seconds) == (held, productive)


def test_a_checkpoint_of_before_the_attempt_keeps_none_of_its_steps() -> None:
    assert ended("16", saved="2025-12-31T23:59:59Z").productive_device_seconds == 0


@pytest.mark.parametrize(("recorded", "start"), [(None, 90), ("50", 50)])
def test_goodput_and_all_other_uses_add_up_to_what_was_held(recorded: str | None, start: int) -> None:
    """30 steps of 10 s, of which 20 are kept; the first record came after 100 s, the last after 500 s of 600 s."""
    attempt = ended("16").model_copy(
        update={"last_step_time": times.to_text(times.after(BEGIN, 500)), "device_seconds": 160}
    )
    current = RLJobStatus(
        progress=Progress(step=30, median_step_seconds="10", record_seconds=recorded),
        checkpoint=CheckpointStatus(step=20, path="/saves", saved_time=END),
        start=StartStatus(stage=TRAINING, since=times.to_text(times.after(BEGIN, 100))),
    )
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=1, devices=16, cards="16")
    closed = with_usage(attempt, current, resolved, times.from_text(END))
    assert {part.use: part.device_seconds for part in closed.unproductive} == {
        UnproductiveUse.START: 160 + 16 * start,
        UnproductiveUse.BETWEEN: 16 * (500 - start - 300),
        UnproductiveUse.REPEATED: 16 * 100,
        UnproductiveUse.END: 16 * 100,
    }
    used = added_usage(added_usage(Usage(), closed), closed)
    assert (
        used.productive_device_seconds + sum(part.device_seconds for part in used.unproductive) == used.device_seconds
    )


def test_an_attempt_without_a_step_was_a_start() -> None:
    (part,) = ended("16", saved="2025-12-31T23:59:59Z").unproductive
    assert (part.use, part.device_seconds) == (UnproductiveUse.START, 9600)


@given(*[st.integers(0, 900)] * 4, st.integers(0, 60))
def test_no_clock_makes_uses_exceed_what_was_held(first: int, last: int, end: int, before: int, pace: int) -> None:
    attempt = ended("16").model_copy(
        update={"last_step_time": times.to_text(times.after(BEGIN, last)), "device_seconds": before}
    )
    current = RLJobStatus(
        progress=Progress(step=30, median_step_seconds=str(pace)),
        checkpoint=CheckpointStatus(step=20, path="/saves", saved_time=END),
        start=StartStatus(stage=TRAINING, since=times.to_text(times.after(BEGIN, first))),
    )
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=1, devices=16, cards="16")
    closed = with_usage(attempt, current, resolved, times.after(BEGIN, end))
    rest = sum(part.device_seconds for part in closed.unproductive)
    assert (closed.productive_device_seconds or 0) + rest == closed.device_seconds


def running(*before: Attempt) -> Attempt:
    """Return an attempt of two nodes of 8 devices that was submitted at 00:10, with what its workers held before."""
    submitted = END if not before else "2026-01-01T00:20:00Z"
    last = Attempt(number=2, submission_id="sums-1-2", cluster_name="sums-1", submitted_time=submitted)
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=2, devices=16, cards="8")
    places = [
        Held("n0", works=False, since=times.from_text("2026-01-01T00:00:00Z")),
        Held("n1", works=True, since=times.from_text("2026-01-01T00:05:00Z")),
        Held("n2", works=True, since=times.from_text("2026-01-01T00:09:00Z")),
    ]
    told = with_held_before([*before, last], places, resolved, None)
    assert with_held_before([*before, told], places[:2], resolved, None) == told, "it is reported once"
    assert with_held_before([*before, last], (), resolved, None) == last, "its pods were not observed"
    return told


def test_a_start_that_went_well_held_devices_from_when_its_workers_got_nodes() -> None:
    told = running()
    assert (told.device_seconds, told.card_seconds) == (8 * (300 + 60), 4 * (300 + 60))
    assert told.productive_device_seconds is None
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=2, devices=16, cards="8")
    closed = with_usage(told, RLJobStatus(), resolved, times.after(told.submitted_time, 100))
    assert closed.device_seconds == 8 * 360 + 16 * 100


def test_workers_of_two_groups_hold_their_own_devices() -> None:
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=2, devices=20, cards="10")
    sizes, submitted = WorkerSizes({"train": 16, "generate": 4}), times.from_text(END)
    begun = Attempt(number=1, submission_id="sums-1-1", cluster_name="sums-1", submitted_time=END)
    places = [
        Held("n1", works=True, since=times.after(END, -100), group="train"),
        Held("n2", works=True, since=times.after(END, -300), group="generate"),
    ]
    told = with_held_before([begun], places, resolved, sizes)
    assert (told.device_seconds, told.card_seconds) == (16 * 100 + 4 * 300, 8 * 100 + 2 * 300)
    pods = [
        {
            "metadata": {"name": name, "labels": {"ray.io/node-type": "worker", "ray.io/group": name}},
            "spec": {"nodeName": name},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": END}]},
        }
        for name in ("train", "generate")
    ]
    failed = with_start_usage(begun, pods, resolved, sizes, submitted + timedelta(seconds=10))
    assert (failed.device_seconds, failed.productive_device_seconds) == (200, 0)


def test_another_driver_in_the_same_cluster_begins_with_the_end_of_the_one_before() -> None:
    told = running(ended("16"))
    assert told.device_seconds == 16 * 600


def test_what_a_start_held_counts_while_its_attempt_runs() -> None:
    resolved = Resolved(snapshot_name="s", spec_hash="h", nodes=2, devices=16, cards="8")
    current = RLJobStatus(attempts=[running()], resolved=resolved, usage=Usage(device_seconds=1000))
    found = account(current)
    assert found.device_seconds_at(times.after(END, 10)) == 1000 + 8 * 360 + 160


def test_attempts_of_different_sizes_add_up() -> None:
    used = added_usage(added_usage(Usage(), ended("8")), ended("16"))
    assert (used.device_seconds, used.productive_device_seconds) == (19_200, 6400)
    assert (used.card_seconds, used.productive_card_seconds) == (14_400, 4800)
    assert used.goodput is not None
    assert float(used.goodput) == pytest.approx(1 / 3, abs=1e-3)
