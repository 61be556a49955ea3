"""Who may write checkpoints, and which one a new attempt resumes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.checkpoint import (
    OWNER_FILE,
    TRACKER_FILE,
    FencedError,
    Owner,
    check,
    claim,
    read_owner,
    repair_tracker,
)


def make_step(folder: Path, step: int, *, complete: bool = True) -> None:
    (folder / f"global_step_{step}" / "actor").mkdir(parents=True)
    if complete:
        (folder / f"global_step_{step}" / "data.pt").write_bytes(b"")


def test_a_later_attempt_takes_the_folder_and_fences_the_earlier(tmp_path: Path) -> None:
    claim(tmp_path / "c", Owner("job", 1))
    claim(tmp_path / "c", Owner("job", 2))
    check(tmp_path / "c", Owner("job", 2))
    with pytest.raises(FencedError, match="nothing more is written from here"):
        check(tmp_path / "c", Owner("job", 1))


def test_an_earlier_attempt_cannot_take_it_back(tmp_path: Path) -> None:
    claim(tmp_path, Owner("job", 3))
    with pytest.raises(FencedError, match="attempt 3 owns it, this is attempt 2"):
        claim(tmp_path, Owner("job", 2))
    assert read_owner(tmp_path) == Owner("job", 3)


def test_a_recreated_job_takes_over_its_predecessors_folder(tmp_path: Path) -> None:
    claim(tmp_path, Owner("old", 7))
    claim(tmp_path, Owner("new", 1))
    with pytest.raises(FencedError):
        check(tmp_path, Owner("old", 7))


def test_a_damaged_claim_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / OWNER_FILE).write_text("{")
    with pytest.raises(FencedError):
        check(tmp_path, Owner("job", 1))
    claim(tmp_path, Owner("job", 1))
    check(tmp_path, Owner("job", 1))


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
