"""The progress line of a run: redrawn on a terminal, printed at intervals elsewhere."""

from __future__ import annotations

import io
import os

import pytest

from rljob.cli.progress_line import Line, progress_line

PROGRESS = {"step": 20, "totalSteps": 40, "reward": "0.8", "clusterIdleRatio": "0.1", "eta": "16:42"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_shows_the_message_before_the_first_step_and_figures_after() -> None:
    assert progress_line(65, "Starting", {}, "waits for the head") == " 1:05  Starting     waits for the head"
    cut = progress_line(65, "Starting", {}, "x" * 200)
    assert (len(cut), cut[-1]) == (140, "…")
    told = progress_line(5, "Training", PROGRESS)
    assert (
        told
        == " 0:05  Training     [###############...............] 20/40  reward 0.8  DP idle 10.0%  ends about 16:42"
    )


def test_off_a_terminal_only_what_is_important_is_printed_at_once() -> None:
    out = io.StringIO()
    line = Line(out)
    line.draw("one", important=True)
    line.draw("one", important=True)
    line.draw("two", important=False)
    line.end()
    assert out.getvalue() == "one\n"


def test_on_a_terminal_it_is_drawn_over_and_cut_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((6, 20)))
    out = Terminal()
    line = Line(out)
    line.draw("a long one", important=False)
    line.draw("two", important=False)
    line.end()
    line.end()
    assert out.getvalue() == "\r\033[Ka lon\r\033[Ktwo\n"


def test_a_restarted_attempt_shows_its_message_although_there_were_steps() -> None:
    assert (
        progress_line(5, "Starting", PROGRESS, "loading the data (3 s)") == " 0:05  Starting     loading the data (3 s)"
    )
    assert "20/40" in progress_line(5, "Starting", PROGRESS)
    assert "20/40" in progress_line(5, "Stopping", PROGRESS, "the run may save")
