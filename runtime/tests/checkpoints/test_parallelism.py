"""Parallelism of a Megatron model with which a checkpoint can be loaded."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from rljob_runtime.checkpoints import parallelism
from rljob_runtime.checkpoints.parallelism import SIZES, SPLIT_FILE
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import FencedError, RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

EVERYTHING = ["model", "optimizer", "extra"]


def config(
    tensor: int = 2,
    *,
    strategy: str = "megatron",
    actor: Sequence[str] = EVERYTHING,
    critic: Sequence[str] = EVERYTHING,
) -> DictConfig:
    """Return the used part of verl's configuration."""
    sizes = SimpleNamespace(**dict.fromkeys(SIZES) | {"tensor_model_parallel_size": tensor})
    contents = [SimpleNamespace(checkpoint=SimpleNamespace(load_contents=what)) for what in (actor, critic)]
    contents[0].strategy, contents[0].megatron = strategy, sizes
    whole = SimpleNamespace(actor_rollout_ref=SimpleNamespace(actor=contents[0]), critic=contents[1])
    return cast("DictConfig", whole)


def owned() -> None:
    """Replace the owner check by one that passes."""


def save(folder: Path, step: int, config: DictConfig) -> Start:
    """Save a step and return it as a start."""
    made = folder / f"global_step_{step}"
    made.mkdir(parents=True)
    parallelism.note(made, parallelism.split(config), owned)
    return Start(made, step)


def test_another_split_than_the_steps_is_refused_before_any_model_is_built(tmp_path: Path) -> None:
    start = save(tmp_path, 5, config())
    assert [entry.name for entry in tmp_path.rglob("*")] == ["global_step_5", SPLIT_FILE]
    with pytest.raises(RefusedError, match="tensor_model_parallel_size 2, now 4") as caught:
        parallelism.require(start, config(4))
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "CheckpointTopology")
    parallelism.require(start, config())


def test_the_weights_alone_may_be_loaded_by_any_split(tmp_path: Path) -> None:
    start = save(tmp_path, 5, config())
    parallelism.require(start, config(4, actor=["model"]))
    (tmp_path / "global_step_5" / "critic").mkdir()
    with pytest.raises(RefusedError):
        parallelism.require(start, config(4, actor=["model"]))
    parallelism.require(start, config(4, actor=["model"], critic=["model"]))


def test_a_split_that_saved_nothing_leaves_the_steps_as_they_are(tmp_path: Path) -> None:
    start = save(tmp_path, 5, config())
    parallelism.require(start, config(4, actor=["model"]))
    parallelism.require(start, config())
    with pytest.raises(RefusedError):
        parallelism.require(start, config(4))
    parallelism.require(save(tmp_path, 6, config(4)), config(4))


def test_a_run_that_begins_at_step_0_may_be_split_in_any_way(tmp_path: Path) -> None:
    save(tmp_path, 5, config())
    parallelism.require(Start(), config(4))


@pytest.mark.parametrize("written", [None, b"{"])
def test_a_step_without_a_note_is_accepted(tmp_path: Path, written: bytes | None) -> None:
    if written is not None:
        (tmp_path / SPLIT_FILE).write_bytes(written)
    parallelism.require(Start(tmp_path, 5), config(4))


def test_another_engine_has_no_such_split(tmp_path: Path) -> None:
    parallelism.require(save(tmp_path, 5, config(strategy="fsdp2")), config(strategy="fsdp2"))
    assert not list((tmp_path / "global_step_5").iterdir())


def test_a_volume_that_takes_no_note_does_not_end_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(path: Path, text: str) -> None:
        path.write_bytes(text[:9].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    save(tmp_path, 5, config())
    assert not list((tmp_path / "global_step_5").iterdir())
    assert "cannot record the parallelism of " in capsys.readouterr().err


def test_a_process_that_lost_the_folder_notes_nothing_in_the_next_owners_step(tmp_path: Path) -> None:
    (made := tmp_path / "global_step_5").mkdir()

    def frozen_after_the_check() -> None:
        made.rename(tmp_path / "taken-away")
        save(tmp_path, 5, config(4))

    parallelism.note(made, parallelism.split(config()), frozen_after_the_check)
    parallelism.require(Start(made, 5), config(4))

    def lost() -> None:
        raise FencedError("lost")

    with pytest.raises(FencedError):
        parallelism.note(made, parallelism.split(config()), lost)
    assert [entry.name for entry in made.iterdir()] == [SPLIT_FILE]
