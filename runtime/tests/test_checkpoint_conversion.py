"""An initializer converts a checkpoint into a folder that holds one model at a time.

A program stands in place of verl's converter here; runtime/tests/upstream/test_export.py runs the real one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import InitializerRequest
from rljob_runtime.export import source
from rljob_runtime.export.folder import read_manifest
from rljob_runtime.initializers.command import initialize
from runtime.tests.fenced_save_process import WHOLE_MARK
from runtime.tests.test_export import COPY, leftovers, make_step, merger

FAIL = "sys.exit('no memory is left')\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for step in (2, 4):
        made = make_step(tmp_path / "ckpt", step)
        (made / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"of step %d" % step + WHOLE_MARK)
    monkeypatch.setenv("PYTHONPATH", str(merger(tmp_path, COPY)))
    return tmp_path


def convert(folder: Path, step: int = 0, to: str = "model") -> int:
    wanted = InitializerRequest(to=str(folder / to), source=str(folder / "ckpt"), checkpoint=True, step=step)
    return initialize(wanted.to_argument(), {}, folder / "report")


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes().removesuffix(WHOLE_MARK)


def test_the_last_complete_step_becomes_a_model(world: Path) -> None:
    assert convert(world) == 0
    assert weights(world) == b"of step 4"
    assert json.loads((world / "model" / "config.json").read_text()) == {}
    assert leftovers(world) == []


def test_the_step_that_the_tracker_names_is_the_last_one(world: Path) -> None:
    (world / "ckpt" / "latest_checkpointed_iteration.txt").write_text("2")
    assert convert(world) == 0
    assert weights(world) == b"of step 2"


def test_a_named_step_is_converted_once(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = world / "report"
    report.write_text("")
    assert convert(world, 2) == 0
    monkeypatch.setenv("PYTHONPATH", "")
    assert convert(world, 2) == 0
    assert report.read_text() == f"skipped: {world / 'model'} is there already"
    # Any step will do, and one is there.
    assert convert(world) == 0
    assert weights(world) == b"of step 2"


def test_another_step_replaces_the_model(world: Path) -> None:
    assert [convert(world, 2), convert(world, 4)] == [0, 0]
    assert weights(world) == b"of step 4"
    assert sorted(path.name for path in world.iterdir()) == ["ckpt", "model", "packages"]


def test_a_killed_try_leaves_the_step_to_the_next_one(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does, the exception leaves no time for anything; retention then deletes the step."""
    held: list[Path] = []
    real = source.hold

    def die(step: source.Step, work: Path, saved: int) -> Path:
        held.append(real(step, work, saved))
        raise SystemExit(137)

    with monkeypatch.context() as patched:
        patched.setattr(source, "hold", die)
        with pytest.raises(SystemExit):
            convert(world, 2)
    shutil.rmtree(world / "ckpt" / "global_step_2")
    assert held[0].is_dir()
    assert convert(world, 2) == 0
    assert weights(world) == b"of step 2"
    assert leftovers(world) == []


def test_a_step_that_is_gone_ends_it_for_good(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(world, 3) == ExitCode.BAD_CONFIG
    assert "CheckpointGone" in capsys.readouterr().out


def test_a_folder_without_checkpoints_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(tmp_path) == ExitCode.BAD_CONFIG
    said = capsys.readouterr().out
    assert f"{tmp_path / 'ckpt'} has no complete checkpoint" in said
    assert "conversion.from" in said


def test_a_folder_of_somebody_else_is_kept(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "model").mkdir()
    (world / "model" / "mine").write_text("")
    assert convert(world) == ExitCode.BAD_CONFIG
    assert "TargetTaken" in capsys.readouterr().out
    assert (world / "model" / "mine").exists()


def test_a_failed_conversion_is_tried_again(
    world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(merger(world / "failing", FAIL)))
    assert convert(world) not in (0, ExitCode.BAD_CONFIG)
    assert "no memory is left" in capsys.readouterr().out
    assert read_manifest(world / "model") is None
