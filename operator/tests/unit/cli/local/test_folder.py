"""The folder of a local job: one user at a time, a state that survives, files that are replaced atomically."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob.cli.errors import UsageError
from rljob.cli.local.folder import JobFolder, held, read_state, write_files


def test_attempts_are_counted_under_one_uid(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    first = folder.begin_attempt(folder.state())
    second = folder.begin_attempt(folder.state())
    assert (first.uid, first.attempts, second.attempts) == (second.uid, 1, 2)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with held(tmp_path / "job"), pytest.raises(UsageError, match="in use by another"), held(tmp_path / "job"):
        pass
    with held(tmp_path / "job") as folder:
        assert folder.root == tmp_path / "job"


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another folder with --workdir"), held(tmp_path / "file"):
        pass


def test_a_damaged_state_says_what_to_do(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(UsageError, match=r"remove .* to start over"):
        read_state(tmp_path)


def test_files_of_a_config_map_replace_those_of_before(tmp_path: Path) -> None:
    write_files(tmp_path / "c", {"a": b"1", "b": b"2"})
    write_files(tmp_path / "c", {"b": b"3"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == {"b": b"3"}
