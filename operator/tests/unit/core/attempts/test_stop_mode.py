"""How a trainer is asked to stop, based on measurements."""

from __future__ import annotations

import pytest

from rljob.api.lifecycle import Stop
from rljob.api.status import CheckpointStatus, Progress
from rljob.core.attempts.stop_mode import choose_mode
from rljob_runtime.contract import StopMode

AUTO = Stop(grace_seconds=300)


def measured(step: str | None, rollout: str | None = None, last: str | None = None) -> Progress:
    return Progress(median_step_seconds=step, median_rollout_seconds=rollout, step_seconds=last)


def saved(seconds: str | None) -> CheckpointStatus:
    return CheckpointStatus(step=5, path="/data", saved_time="2026-01-01T00:00:00Z", seconds=seconds)


@pytest.mark.parametrize("mode", ["AfterStep", "AbortRollout", "Immediate"])
def test_a_mode_that_the_user_sets_stands(mode: str) -> None:
    choice = choose_mode(Stop(mode=mode, grace_seconds=1), measured("9000", "8000"), None)
    assert (choice.mode, choice.why) == (StopMode(mode), f"stop.mode is {mode}")


@pytest.mark.parametrize("progress", [None, measured(None), measured("NaN"), measured("0"), measured("-3")])
def test_without_a_measured_step_it_is_the_gentlest(progress: Progress | None) -> None:
    choice = choose_mode(AUTO, progress, None)
    assert (choice.mode, choice.why) == (StopMode.AFTER_STEP, "no step has been measured yet")


@pytest.mark.parametrize(
    ("progress", "checkpoint", "mode"),
    [
        (measured("100"), None, StopMode.AFTER_STEP),
        (measured("300"), None, StopMode.AFTER_STEP),
        (measured("250", "240"), saved("50"), StopMode.AFTER_STEP),
        (measured(None, "5", last="200"), None, StopMode.AFTER_STEP),
        (measured("250", "240"), saved("51"), StopMode.ABORT_ROLLOUT),
        (measured("1200", "900"), None, StopMode.ABORT_ROLLOUT),
        (measured("1200", "600"), saved("300"), StopMode.ABORT_ROLLOUT),
        (measured("1200", "599"), saved("10"), StopMode.AFTER_STEP),
        (measured("1200", "900"), saved("301"), StopMode.AFTER_STEP),
        (measured("1200"), saved("10"), StopMode.AFTER_STEP),
        (measured("1200", "900"), saved(None), StopMode.ABORT_ROLLOUT),
    ],
)
def test_auto_goes_by_step_rollout_and_save(
    progress: Progress, checkpoint: CheckpointStatus | None, mode: StopMode
) -> None:
    assert choose_mode(AUTO, progress, checkpoint).mode is mode


def test_the_words_name_what_was_measured() -> None:
    assert choose_mode(AUTO, measured("90.4", "80"), saved("5.2")).why == (
        "a step takes 90 s and a save 5 s: both fit stop.graceSeconds 300"
    )
    assert "discarding the rollout would not help" in choose_mode(AUTO, measured("900", "10"), saved("5")).why
