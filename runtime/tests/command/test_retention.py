"""Old steps of a command are deleted, and never the one from which another attempt may resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE
from rljob_runtime.command import attempt_folders
from rljob_runtime.command.retention import Retention
from rljob_runtime.command.saved_watch import SavedWatch
from rljob_runtime.contract import CheckpointLayout, CommandCheckpoint
from rljob_runtime.outcomes import FencedError
from runtime.tests.command.test_attempt_folders import FIRST, SECOND, pattern, save_as_verl, write

DONE = pattern("step-{step}/state.pt", complete="done/{step}")


def retain(folder: Path, layout: CommandCheckpoint, keep: int, own: str = SECOND) -> None:
    Retention(keep, folder / own, lambda: None).apply(folder, layout)


def entries(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def save(root: Path, *steps: int, done: bool = True) -> None:
    for step in steps:
        write(root / f"step-{step}" / "state.pt")
        if done:
            write(root / "done" / str(step))


def test_the_newest_steps_of_all_attempts_stay(tmp_path: Path) -> None:
    save(tmp_path / FIRST, 1, 2, 3)
    save(tmp_path / SECOND, 3, 4)
    retain(tmp_path, DONE, keep=2)
    assert entries(tmp_path / FIRST) == {"step-3/state.pt", "done/3"}
    assert entries(tmp_path / SECOND) == {"step-3/state.pt", "done/3", "step-4/state.pt", "done/4"}


def test_a_folder_without_steps_is_removed_unless_it_is_the_attempts_own(tmp_path: Path) -> None:
    save_as_verl(tmp_path / FIRST, 5)
    (tmp_path / FIRST / TRACKER_FILE).unlink()
    save_as_verl(tmp_path / SECOND, 10)
    retain(tmp_path, CommandCheckpoint(CheckpointLayout.VERL), keep=1)
    assert not (tmp_path / FIRST).exists()
    assert (tmp_path / SECOND / "global_step_10").exists()


def test_files_that_belong_to_no_step_stay(tmp_path: Path) -> None:
    save(tmp_path / FIRST, 1)
    write(tmp_path / FIRST / "config.json")
    save(tmp_path / SECOND, 2)
    retain(tmp_path, DONE, keep=1)
    assert entries(tmp_path / FIRST) == {"config.json"}


def test_a_step_is_deleted_only_when_enough_newer_ones_are_complete(tmp_path: Path) -> None:
    save(tmp_path / SECOND, 1, 2)
    save(tmp_path / SECOND, 3, 4, done=False)
    retain(tmp_path, DONE, keep=3)
    assert len(entries(tmp_path / SECOND)) == 6
    retain(tmp_path, DONE, keep=2)
    assert len(entries(tmp_path / SECOND)) == 6
    retain(tmp_path, DONE, keep=1)
    assert entries(tmp_path / SECOND) == {"step-2/state.pt", "done/2", "step-3/state.pt", "step-4/state.pt"}


def test_steps_that_are_single_files(tmp_path: Path) -> None:
    for step in (1, 2):
        write(tmp_path / f"step-{step}.json")
    retain(tmp_path, pattern("step-{step}.json"), keep=1, own=".")
    assert entries(tmp_path) == {"step-2.json"}


def test_the_newest_folder_that_nothing_marks_as_complete_may_still_be_written(tmp_path: Path) -> None:
    for step in (10, 20):
        write(tmp_path / f"global_step{step}" / "model.pt")
    (tmp_path / "global_step30").mkdir()
    layout = pattern("global_step{step}")
    newest = attempt_folders.newest(tmp_path, layout)
    assert newest is not None
    assert newest.step == 20, "a folder without entries is not a step"
    retain(tmp_path, layout, keep=1, own=".")
    assert {path.name for path in tmp_path.iterdir()} == {"global_step10", "global_step20", "global_step30"}
    write(tmp_path / "global_step30" / "model.pt")
    retain(tmp_path, layout, keep=1, own=".")
    assert {path.name for path in tmp_path.iterdir()} == {"global_step20", "global_step30"}


def test_what_others_saved_stays(tmp_path: Path) -> None:
    """Beside the folders of attempts, and behind symbolic links."""
    theirs = tmp_path.parent / f"{tmp_path.name}-theirs"
    save(theirs / FIRST, 1)
    save(theirs / "attempt", 1)
    save(tmp_path, 1)
    save(tmp_path / SECOND, 2, 3)
    (tmp_path / FIRST).symlink_to(theirs / "attempt")
    (tmp_path / SECOND / "step-1").symlink_to(theirs / FIRST / "step-1")
    retain(tmp_path, DONE, keep=1)
    assert entries(tmp_path / SECOND) == {"step-3/state.pt", "done/3"}
    assert {path.name for path in tmp_path.iterdir()} == {"step-1", "done", FIRST, SECOND}
    assert len(entries(theirs)) == 4


def test_a_launcher_that_lost_the_folder_deletes_nothing(tmp_path: Path) -> None:
    def lost() -> None:
        raise FencedError("another attempt owns it")

    save(tmp_path / SECOND, 1, 2)
    with pytest.raises(FencedError):
        Retention(1, tmp_path / SECOND, lost).apply(tmp_path, DONE)
    assert len(entries(tmp_path / SECOND)) == 4


def test_the_watch_deletes_when_it_finds_a_new_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lost() -> None:
        raise FencedError("another attempt owns it")

    save(tmp_path / SECOND, 1, 2, 3)
    fenced = SavedWatch(tmp_path, DONE, Retention(1, tmp_path / SECOND, lost), every=0.01)
    fenced.finish()
    assert len(entries(tmp_path / SECOND)) == 6
    SavedWatch(tmp_path, DONE, Retention(1, tmp_path / SECOND, lambda: None), every=0.01).finish()
    assert entries(tmp_path / SECOND) == {"step-3/state.pt", "done/3"}
    assert capsys.readouterr().err == ""


def test_a_step_that_cannot_be_deleted_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        raise OSError("read-only file system")

    save(tmp_path / SECOND, 1, 2)
    SavedWatch(tmp_path, DONE, Retention(1, tmp_path / SECOND, refused), every=0.01).finish()
    assert capsys.readouterr().err.count("old steps are not deleted: read-only file system") == 1
