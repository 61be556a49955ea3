"""Traces stop when their folder has reached its bound, and the run says where they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rljob_runtime import files
from rljob_runtime.verl_plugin.trainer import profiling


class Run:
    """What a run notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def config(folder: Path) -> SimpleNamespace:
    return SimpleNamespace(global_profiler=SimpleNamespace(save_path=str(folder), steps=[2, 3]))


def may_trace(folder: Path, run: Run) -> bool:
    return profiling.may_trace(cast("Any", config(folder)), cast("Any", run), 3)


def test_steps_are_traced_until_the_folder_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "FOLDER_BYTES", 100)
    folder, run = tmp_path / "profile", Run()
    assert may_trace(folder, run)
    folder.mkdir()
    (folder / "step2.json.gz").write_bytes(b"x" * 99)
    assert may_trace(folder, run)
    (folder / "step3.json.gz").write_bytes(b"x")
    assert not may_trace(folder, run)
    assert len(run.notes) == 1
    assert run.notes[0].startswith(f"step 3 and further steps are not profiled: {folder} has ")


def test_a_folder_that_hangs_gets_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "folder_bytes", lambda *_: None)
    run = Run()
    assert not may_trace(tmp_path, run)
    assert "could not be measured" in run.notes[0]
    assert files.folder_bytes(tmp_path, 1.0) == 0


def test_the_folder_of_the_traces_is_printed_once(tmp_path: Path) -> None:
    run = Run()
    for _ in range(2):
        profiling.tell(cast("Any", config(tmp_path)), cast("Any", run))
    assert set(run.notes) == {f"traces of steps 2, 3 are written to {tmp_path}"}
