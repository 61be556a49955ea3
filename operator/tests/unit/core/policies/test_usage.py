"""What an attempt held, in devices and in cards, and what it was worth."""

from __future__ import annotations

import pytest

from rljob.api.status import Attempt, AttemptOutcome, CheckpointStatus, Progress, Resolved, RLJobStatus, Usage
from rljob.core import clock
from rljob.core.policies.usage import added_usage, with_usage

BEGIN, END = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"


def ended(cards: str, saved: str = END) -> Attempt:
    """Give an attempt of 16 devices and 600 s that made 30 steps of 10 s and saved the first 20."""
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
    return with_usage(attempt, current, resolved, clock.from_text(END))


@pytest.mark.parametrize(("cards", "held", "productive"), [("16", 9600, 3200), ("8", 4800, 1600), ("NaN", 9600, 3200)])
def test_an_attempt_holds_devices_and_cards(cards: str, held: int, productive: int) -> None:
    attempt = ended(cards)
    assert (attempt.device_seconds, attempt.productive_device_seconds) == (9600, 3200)
    assert (attempt.card_seconds, attempt.productive_card_seconds) == (held, productive)


def test_a_checkpoint_of_before_the_attempt_keeps_none_of_its_steps() -> None:
    assert ended("16", saved="2025-12-31T23:59:59Z").productive_device_seconds == 0


def test_attempts_of_different_sizes_add_up() -> None:
    used = added_usage(added_usage(Usage(), ended("8")), ended("16"))
    assert (used.device_seconds, used.productive_device_seconds) == (19_200, 6400)
    assert (used.card_seconds, used.productive_card_seconds) == (14_400, 4800)
    assert used.goodput is not None
    assert float(used.goodput) == pytest.approx(1 / 3, abs=1e-3)
