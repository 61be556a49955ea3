"""The progress line of the demo, computed from a status."""

from __future__ import annotations

from scripts.demo.follow import describe


def test_the_line_shows_the_state_before_the_first_step_and_figures_after() -> None:
    assert (
        describe({"state": "Starting", "message": "waits for the head"}, 65) == " 1:05  Starting     waits for the head"
    )
    progress = {"step": 20, "totalSteps": 40, "reward": "0.8", "clusterIdleRatio": "0.1"}
    line = describe({"state": "Training", "progress": progress}, 5)
    assert line == " 0:05  Training     [###############...............] 20/40  reward 0.8  DP idle 10.0%"
