"""Where an attempt of a command saves, and which step the next one finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE
from rljob_runtime.command import attempt_folders
from rljob_runtime.command.attempt_folders import complete_steps, folder_of, newest, require_layout
from rljob_runtime.contract import CheckpointFence, CheckpointLayout, CommandCheckpoint, CommandConfig, ExitCode
from rljob_runtime.outcomes import RefusedError
from runtime.tests.conftest import MakeJob
from runtime.tests.fenced_save_process import WHOLE_MARK

VERL = CommandCheckpoint(CheckpointLayout.VERL)
FIRST, SECOND = "sums-uid01-1-attempt-1", "sums-uid01-2-attempt-2"


def pattern(text: str, complete: str | None = None) -> CommandCheckpoint:
    return CommandCheckpoint(CheckpointLayout.PATTERN, pattern=text, complete=complete)


def save_as_verl(root: Path, *steps: int, tracked: int | None = None, written: float = 1000.0) -> None:
    """Save steps as verl does. The tracker names the last one, or `tracked`; 0 leaves it out."""
    for step in steps:
        made = root / f"global_step_{step}"
        (made / "actor").mkdir(parents=True)
        (made / "data.pt").write_bytes(WHOLE_MARK)
        os.utime(made, (written, written))
    if tracked != 0:
        (root / TRACKER_FILE).write_text(str(tracked or steps[-1]))


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def found(folder: Path, layout: CommandCheckpoint) -> list[tuple[int, str]]:
    return [(saved.step, str(saved.path.relative_to(folder))) for saved in complete_steps(folder, layout)]


def test_each_attempt_has_a_folder_of_its_own_unless_the_fence_is_none(make_job: MakeJob) -> None:
    def folder(checkpoint: CommandCheckpoint | None, path: str | None = "/ckpt") -> Path | None:
        return folder_of(make_job(checkpoint_path=path, command=CommandConfig(("a",), checkpoint=checkpoint)), 3)

    assert folder(VERL) == Path("/ckpt/sums-uid01-1-attempt-3")
    assert folder(CommandCheckpoint(CheckpointLayout.VERL, fence=CheckpointFence.NONE)) == Path("/ckpt")
    assert folder(None) is None
    assert folder(VERL, path=None) is None
    assert folder_of(make_job(checkpoint_path="/ckpt"), 3) is None


def test_the_newest_step_of_all_attempts_counts(tmp_path: Path) -> None:
    assert newest(tmp_path / "absent", VERL) is None
    assert newest(tmp_path, VERL) is None
    save_as_verl(tmp_path / FIRST, 5, 10)
    save_as_verl(tmp_path / SECOND, 8)
    save_as_verl(tmp_path, 9)
    assert [step for step, _ in found(tmp_path, VERL)] == [10, 9, 8, 5]
    best = newest(tmp_path, VERL)
    assert best is not None
    assert (best.path, best.root) == (tmp_path / FIRST / "global_step_10", tmp_path / FIRST)


@pytest.mark.parametrize(("first", "second"), [(1000.0, 2000.0), (2000.0, 1000.0)])
def test_of_equal_steps_the_last_written_one_counts(tmp_path: Path, first: float, second: float) -> None:
    save_as_verl(tmp_path / FIRST, 5, written=first)
    save_as_verl(tmp_path / SECOND, 5, written=second)
    best = newest(tmp_path, VERL)
    assert best is not None
    assert best.root.name == (FIRST if first > second else SECOND)


def test_a_step_of_verl_is_complete_when_the_tracker_has_reached_it(tmp_path: Path) -> None:
    save_as_verl(tmp_path / FIRST, 5, 10, 15, tracked=10)
    save_as_verl(tmp_path / SECOND, 20, tracked=0)
    assert [step for step, _ in found(tmp_path, VERL)] == [10, 5]
    (tmp_path / FIRST / "global_step_10" / "data.pt").write_bytes(b"PK")
    assert [step for step, _ in found(tmp_path, VERL)] == [5]


def test_another_file_may_show_that_a_step_of_verl_is_complete(tmp_path: Path) -> None:
    save_as_verl(tmp_path / FIRST, 5, 10, tracked=0)
    write(tmp_path / FIRST / "done" / "5")
    layout = CommandCheckpoint(CheckpointLayout.VERL, complete="done/{step}")
    assert found(tmp_path, layout) == [(5, f"{FIRST}/global_step_5")]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("step-{step}", "step-12"),
        ("{step}", "12"),
        ("run/step-{step}/state.pt", "run/step-12/state.pt"),
        ("iter_{step}/model_{step}.pt", "iter_0000012/model_0000012.pt"),
        ("a.{step}.{step}", "a.12.12"),
        ("x[{step}]+", "x[12]+"),
    ],
)
def test_a_pattern_finds_its_steps(tmp_path: Path, text: str, path: str) -> None:
    write(tmp_path / FIRST / path)
    (tmp_path / SECOND / "step-999999999999999999").mkdir(parents=True)
    (tmp_path / SECOND / "a.1.2").mkdir()
    (tmp_path / SECOND / "step-x").mkdir()
    (tmp_path / SECOND / "iter_7").mkdir()
    assert found(tmp_path, pattern(text)) == [(12, f"{FIRST}/{path}")]


def test_a_step_is_complete_when_the_file_for_it_exists(tmp_path: Path) -> None:
    layout = pattern("step-{step}/state.pt", "step-{step}/DONE")
    for step in ("007", "010"):
        write(tmp_path / FIRST / f"step-{step}" / "state.pt")
    assert found(tmp_path, layout) == []
    write(tmp_path / FIRST / "step-007" / "DONE")
    assert found(tmp_path, layout) == [(7, f"{FIRST}/step-007/state.pt")]
    (best,) = complete_steps(tmp_path, layout)
    assert best.entry == tmp_path / FIRST / "step-007"


def test_steps_that_were_set_aside_do_not_count(tmp_path: Path) -> None:
    save_as_verl(tmp_path / f"set-aside-by-{FIRST}", 50)
    save_as_verl(tmp_path / ".retired-x-attempt-1", 60)
    write(tmp_path / "file-attempt-1")
    assert found(tmp_path, VERL) == []


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (pattern("latest"), "pattern: 'latest'"),
        (CommandCheckpoint(CheckpointLayout.PATTERN), "pattern: None"),
        (pattern("/abs/{step}"), "pattern: '/abs/{step}'"),
        (pattern("../{step}"), "pattern: '../{step}'"),
        (pattern("{step}", "DONE"), "complete: 'DONE'"),
        (CommandCheckpoint(CheckpointLayout.VERL, complete="../{step}"), "complete: '../{step}'"),
    ],
)
def test_a_layout_whose_steps_cannot_be_found_is_refused(layout: CommandCheckpoint, field: str) -> None:
    with pytest.raises(RefusedError, match=f"launcher.command.checkpoint.{field} is not a path within") as refused:
        require_layout(layout)
    assert refused.value.code is ExitCode.BAD_CONFIG
    require_layout(VERL)
    require_layout(pattern("a/{step}", "b/{step}.done"))


def test_a_folder_that_is_listed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_folders, "ENTRIES_MAX", 3)
    for number in range(4):
        write(tmp_path / str(number))
    with pytest.raises(RefusedError, match=r"checkpoint.path: .* has more than 3 entries"):
        newest(tmp_path, VERL)
