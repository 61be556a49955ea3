"""Which checkpoint a new attempt resumes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.checkpoint import TRACKER_FILE, complete_steps, repair_tracker
from runtime.tests.saving_process import WHOLE_MARK


def make_step(folder: Path, step: int, *, complete: bool = True) -> None:
    (folder / f"global_step_{step}" / "actor").mkdir(parents=True)
    if complete:
        (folder / f"global_step_{step}" / "data.pt").write_bytes(WHOLE_MARK)


def test_a_step_of_which_only_the_mark_is_left_cannot_be_resumed_from(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        make_step(tmp_path, step)
    (tmp_path / "global_step_2" / "actor").rmdir()  # what checkpoint.keep does
    assert complete_steps(tmp_path) == [4, 6]


def test_a_step_whose_mark_was_cut_off_in_the_writing_cannot_be_resumed_from(tmp_path: Path) -> None:
    for step in (2, 4):
        make_step(tmp_path, step)
    (tmp_path / "global_step_4" / "data.pt").write_bytes(WHOLE_MARK[:-1])
    assert complete_steps(tmp_path) == [2]
    assert repair_tracker(tmp_path) == 2


@pytest.mark.parametrize("damage", [None, "", "x", "99"])
def test_a_damaged_tracker_is_set_to_the_newest_complete_step(tmp_path: Path, damage: str | None) -> None:
    for step in (2, 10):
        make_step(tmp_path, step)
    make_step(tmp_path, 12, complete=False)
    if damage is not None:
        (tmp_path / TRACKER_FILE).write_text(damage)
    assert repair_tracker(tmp_path) == 10
    assert (tmp_path / TRACKER_FILE).read_text() == "10"


def test_a_tracker_that_a_user_set_back_is_kept(tmp_path: Path) -> None:
    for step in (2, 10):
        make_step(tmp_path, step)
    (tmp_path / TRACKER_FILE).write_text("2")
    assert repair_tracker(tmp_path) == 2


def test_without_a_complete_step_the_run_begins_anew(tmp_path: Path) -> None:
    make_step(tmp_path, 4, complete=False)
    (tmp_path / TRACKER_FILE).write_text("")
    assert repair_tracker(tmp_path) is None
    assert not (tmp_path / TRACKER_FILE).exists()
    assert repair_tracker(tmp_path / "absent") is None
