"""Which checkpoint a new attempt resumes from, and which checkpoints are deleted."""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from rljob_runtime.checkpoints.saved_steps import (
    TRACKER_FILE,
    block_pending_moves,
    broken_shards,
    complete_steps,
    deletable_steps,
    delete_retired,
    holds_complete,
    is_complete,
    new_place,
    rename_step,
    retire,
    retire_unfinished_saves,
    step_to_resume,
)
from rljob_runtime.outcomes import FencedError
from runtime.tests.fenced_save_process import WHOLE_MARK


def owned() -> None:
    """Replace the owner check by one that passes."""


def make_step(folder: Path, step: int, *, complete: bool = True) -> None:
    (folder / f"global_step_{step}" / "actor").mkdir(parents=True)
    if complete:
        (folder / f"global_step_{step}" / "data.pt").write_bytes(WHOLE_MARK)


def test_a_step_of_which_only_the_mark_is_left_cannot_be_resumed_from(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        make_step(tmp_path, step)
    (tmp_path / "global_step_2" / "actor").rmdir()  # as verl's own retention does
    assert complete_steps(tmp_path) == [4, 6]


def test_a_step_whose_mark_was_cut_off_in_the_writing_cannot_be_resumed_from(tmp_path: Path) -> None:
    for step in (2, 4):
        make_step(tmp_path, step)
    (tmp_path / "global_step_4" / "data.pt").write_bytes(WHOLE_MARK[:-1])
    assert complete_steps(tmp_path) == [2]
    assert step_to_resume(tmp_path) == 2


def test_a_mark_of_some_length_is_recognised_by_its_end(tmp_path: Path) -> None:
    make_step(tmp_path, 2, complete=False)
    mark = tmp_path / "global_step_2" / "data.pt"
    with zipfile.ZipFile(mark, "w") as archive:
        archive.writestr("archive/data.pkl", bytes(200_000))
        archive.comment = b"of another writer"
    assert is_complete(tmp_path / "global_step_2")
    mark.write_bytes(mark.read_bytes()[:150_000])
    assert not is_complete(tmp_path / "global_step_2")


@pytest.mark.parametrize("leads_to", ["data.pt", "/proc/self/mem"], ids=["cannot be opened", "cannot be read"])
def test_a_mark_that_cannot_be_read_is_neither_whole_nor_cut_off(tmp_path: Path, leads_to: str) -> None:
    for step in (2, 4):
        make_step(tmp_path, step, complete=step == 2)
    mark = tmp_path / "global_step_4" / "data.pt"
    mark.symlink_to(leads_to)
    (tmp_path / TRACKER_FILE).write_text("99")
    for ask in (complete_steps, holds_complete, step_to_resume, lambda folder: deletable_steps(folder, 1, 4, set())):
        with pytest.raises(OSError, match=r"global_step_4/data\.pt"):
            ask(tmp_path)
    (tmp_path / TRACKER_FILE).write_text("2")
    assert step_to_resume(tmp_path) == 2, "the others' marks need not be read"


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(WHOLE_MARK)


def test_every_rank_must_have_its_part_of_each_kind_that_was_saved(tmp_path: Path) -> None:
    parts = [f"{kind}_world_size_2_rank_{rank}.pt" for kind in ("model", "optim", "extra_state") for rank in (0, 1)]
    fill(tmp_path / "actor", *parts, "fsdp_config.json", "model_world_size_4_rank_3.pt")
    fill(tmp_path / "critic", *parts[:2])  # for which only the weights were configured
    assert broken_shards(tmp_path, 2) == []
    (tmp_path / "actor" / parts[2]).unlink()
    (tmp_path / "actor" / parts[5]).write_bytes(b"")
    (tmp_path / "critic" / parts[1]).write_bytes(WHOLE_MARK[:-1])
    assert broken_shards(tmp_path, 2) == [f"actor/{parts[5]}", f"actor/{parts[2]}", f"critic/{parts[1]}"]


def test_what_other_engines_save_is_left_to_them(tmp_path: Path) -> None:
    fill(tmp_path / "actor" / "dist_ckpt", "__0_0.distcp")
    (tmp_path / "critic").write_text("no folder")
    assert broken_shards(tmp_path, 2) == []


def test_a_part_that_cannot_be_read_is_neither_whole_nor_cut_off(tmp_path: Path) -> None:
    fill(tmp_path / "actor", "model_world_size_2_rank_0.pt")
    (tmp_path / "actor" / "model_world_size_2_rank_1.pt").symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match=r"actor/model_world_size_2_rank_1\.pt"):
        broken_shards(tmp_path, 2)


@pytest.mark.parametrize("damage", [None, "", "x", "99"])
def test_in_place_of_a_damaged_tracker_the_newest_complete_step_counts(tmp_path: Path, damage: str | None) -> None:
    for step in (2, 10):
        make_step(tmp_path, step)
    make_step(tmp_path, 12, complete=False)
    if damage is not None:
        (tmp_path / TRACKER_FILE).write_text(damage)
    assert step_to_resume(tmp_path) == 10


def test_a_tracker_that_a_user_set_back_is_kept(tmp_path: Path) -> None:
    for step in (2, 10):
        make_step(tmp_path, step)
    (tmp_path / TRACKER_FILE).write_text("2")
    assert step_to_resume(tmp_path) == 2


def test_without_a_complete_step_the_run_starts_again(tmp_path: Path) -> None:
    make_step(tmp_path, 4, complete=False)
    (tmp_path / TRACKER_FILE).write_text("")
    assert step_to_resume(tmp_path) is None
    assert step_to_resume(tmp_path / "absent") is None


def test_superfluous_steps_are_neither_among_the_newest_nor_the_trackers(tmp_path: Path) -> None:
    for step in (2, 4, 8, 10):
        make_step(tmp_path, step)
    for step in (3, 9, 11):
        make_step(tmp_path, step, complete=False)
    (tmp_path / TRACKER_FILE).write_text("2")  # set back by hand
    assert deletable_steps(tmp_path, 1, 10, set()) == [3, 4, 8, 9]
    assert deletable_steps(tmp_path, 2, 10, set()) == [3, 4, 9]
    assert deletable_steps(tmp_path, 2, 4, set()) == [3]


def test_a_step_that_lost_a_part_is_no_reason_to_give_up_the_one_before(tmp_path: Path) -> None:
    parts = ("model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt")
    for step in (2, 4, 6, 8):
        make_step(tmp_path, step)
        fill(tmp_path / f"global_step_{step}" / "actor", *parts)
    lost = tmp_path / "global_step_6" / "actor" / parts[1]
    lost.write_bytes(WHOLE_MARK[:-1])  # its node lost power before it was written
    (tmp_path / TRACKER_FILE).write_text("6")
    whole: set[int] = set()
    assert deletable_steps(tmp_path, 1, 6, whole) == [2]
    assert whole == {4}
    (tmp_path / TRACKER_FILE).write_text("8")
    assert deletable_steps(tmp_path, 2, 8, whole) == [2]
    assert deletable_steps(tmp_path, 1, 8, whole) == [2, 4, 6]
    assert deletable_steps(tmp_path, 2, 8, {6, 8}) == [2, 4]  # known steps are not read again


@pytest.mark.parametrize("damage", [None, "", "x"])
def test_without_a_tracker_every_step_may_be_needed(tmp_path: Path, damage: str | None) -> None:
    for step in (2, 4):
        make_step(tmp_path, step)
    if damage is not None:
        (tmp_path / TRACKER_FILE).write_text(damage)
    assert deletable_steps(tmp_path, 1, 4, set()) == []
    assert deletable_steps(tmp_path / "absent", 1, 4, set()) == []


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_place_that_a_deletion_beside_it_took_is_created_again(tmp_path: Path, times: int) -> None:
    make_step(tmp_path, 2)
    taken: list[Path] = []

    def delete_beside() -> None:
        places = list(tmp_path.glob(".retired-*"))
        if places and len(taken) < times:
            taken.extend(places)
            delete_retired(tmp_path)

    if times < 3:
        retire(tmp_path, 2, delete_beside)
        assert complete_steps(tmp_path) == []
    else:
        with pytest.raises(FileNotFoundError):
            retire(tmp_path, 2, delete_beside)


def test_a_step_that_is_taken_away_counts_no_more_before_it_is_deleted(tmp_path: Path) -> None:
    for step in (2, 4):
        make_step(tmp_path, step)
    with (tmp_path / "global_step_4" / "data.pt").open("r+b") as written:
        retire(tmp_path, 4, owned)
        retire(tmp_path, 4, owned)
        make_step(tmp_path, 4, complete=False)
        written.write(b"by a worker that comes back")
    assert complete_steps(tmp_path) == [2]
    assert list((tmp_path / "global_step_4").iterdir()) == [tmp_path / "global_step_4" / "actor"]
    delete_retired(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["global_step_2", "global_step_4"]


def test_a_paused_process_takes_nothing_away_from_the_next_owner(tmp_path: Path) -> None:
    make_step(tmp_path, 4)
    checks = iter([block_pending_moves, None])

    def frozen_in_the_first_check() -> None:
        if (act := next(checks)) is None:
            raise FencedError("lost")
        act(tmp_path)

    with pytest.raises(FencedError):
        retire(tmp_path, 4, frozen_in_the_first_check)
    assert complete_steps(tmp_path) == [4]


def test_a_rename_that_is_on_its_way_by_the_places_handle_takes_nothing_away_either(tmp_path: Path) -> None:
    make_step(tmp_path, 4)
    (place := tmp_path / ".retired-4.0").mkdir()
    handle = os.open(place, os.O_DIRECTORY)
    try:
        block_pending_moves(tmp_path)
        with pytest.raises(FileNotFoundError):
            os.rename(tmp_path / "global_step_4", "global_step_4", dst_dir_fd=handle)
    finally:
        os.close(handle)
    assert complete_steps(tmp_path) == [4]
    assert not list(tmp_path.glob(".retired-*"))


@pytest.mark.parametrize("lost", [True, False])
def test_a_handle_that_is_stale_is_the_next_owners_doing_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def stale(made: Path, _: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(made))

    def check() -> None:
        if not next(checks):
            raise FencedError("lost")

    make_step(tmp_path, 4)
    checks = iter([True, not lost])
    monkeypatch.setattr(Path, "rename", stale)
    with pytest.raises(FencedError if lost else OSError):
        retire(tmp_path, 4, check)


@pytest.mark.parametrize("lost", [True, False])
def test_a_stale_handle_of_the_place_of_a_save_is_the_next_owners_doing_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def stale(made: Path, _: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(made))

    def check() -> None:
        if not next(checks):
            raise FencedError("lost")

    place = new_place(tmp_path, "a", 1)
    make_step(place, 4)
    checks = iter([True, not lost])
    monkeypatch.setattr(Path, "rename", stale)
    with pytest.raises(FencedError if lost else OSError):
        rename_step(tmp_path, 4, place / "global_step_4", check)


def test_a_place_that_is_taken_is_moved(tmp_path: Path) -> None:
    make_step(tmp_path, 4)
    retire(tmp_path, 4, owned)
    (before,) = tmp_path.glob(".retired-*")
    block_pending_moves(tmp_path)
    (after,) = tmp_path.glob(".retired-*")
    assert after != before
    assert (after / "global_step_4" / "data.pt").exists()


def test_a_place_that_cannot_be_removed_keeps_the_folder_from_its_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(place: Path) -> None:
        raise PermissionError(errno.EACCES, "not yours", str(place))

    (tmp_path / ".retired-4.0").mkdir()
    monkeypatch.setattr(Path, "rmdir", fail)
    with pytest.raises(PermissionError):
        block_pending_moves(tmp_path)


def test_places_of_earlier_attempts_and_other_jobs_are_taken_away(tmp_path: Path) -> None:
    earlier, own, later, other = (new_place(tmp_path, *of) for of in [("a.b", 1), ("a.b", 2), ("a.b", 3), ("c", 9)])
    foreign = tmp_path / ".saving-by-hand"
    for place in (earlier, own, later, other, foreign):
        make_step(place, 4)
    retire_unfinished_saves(tmp_path, "a.b", 2)
    assert [place.exists() for place in (earlier, own, later, other, foreign)] == [False, True, True, False, True]
    assert len(list(tmp_path.glob(".retired-*/global_step_4/data.pt"))) == 2
    assert complete_steps(tmp_path) == []


@pytest.mark.parametrize("left", [False, True])
def test_a_step_that_is_whole_gets_its_name_in_place_of_one_that_has_it(tmp_path: Path, left: bool) -> None:
    make_step(tmp_path, 4, complete=False)
    place = new_place(tmp_path, "a", 1)
    make_step(place, 4)
    if left:
        (place / ".nfs0001").touch()
    rename_step(tmp_path, 4, place / "global_step_4", owned)
    assert complete_steps(tmp_path) == [4]
    assert place.exists() is left


@pytest.mark.parametrize("lost", [True, False])
def test_a_place_that_is_gone_is_the_next_owners_doing_or_an_error(tmp_path: Path, lost: bool) -> None:
    def check() -> None:
        if not next(checks):
            raise FencedError("lost")

    checks = iter([True, not lost])
    with pytest.raises(FencedError if lost else FileNotFoundError):
        rename_step(tmp_path, 4, new_place(tmp_path, "a", 1) / "global_step_4", check)


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_what_cannot_be_deleted_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    for step in (2, 4, 6):
        make_step(tmp_path, step)
        retire(tmp_path, step, owned)
    delete = shutil.rmtree

    def fail_for_one(folder: Path) -> None:
        if (folder / "global_step_4").exists():
            raise error("of another")
        delete(folder)

    monkeypatch.setattr("rljob_runtime.checkpoints.saved_steps.shutil.rmtree", fail_for_one)
    if error is PermissionError:
        with pytest.raises(PermissionError):
            delete_retired(tmp_path)
    else:
        delete_retired(tmp_path)
    assert [entry.name for entry in tmp_path.glob(".retired-*/*")] == ["global_step_4"]
