"""Which splits of a Megatron model a checkpoint can be loaded by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from rljob_runtime import parallelism
from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.parallelism import SIZES, SPLIT_FILE
from rljob_runtime.resume import Start

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
    """Give what `keep` reads of verl's configuration."""
    sizes = SimpleNamespace(**dict.fromkeys(SIZES) | {"tensor_model_parallel_size": tensor})
    contents = [SimpleNamespace(checkpoint=SimpleNamespace(load_contents=what)) for what in (actor, critic)]
    contents[0].strategy, contents[0].megatron = strategy, sizes
    whole = SimpleNamespace(actor_rollout_ref=SimpleNamespace(actor=contents[0]), critic=contents[1])
    return cast("DictConfig", whole)


def begin(folder: Path, config: DictConfig) -> None:
    parallelism.keep(folder, Start(folder / "global_step_5", 5), config)


def test_the_split_of_the_first_attempt_is_the_folders(tmp_path: Path) -> None:
    parallelism.keep(tmp_path, Start(), config())
    assert json.loads((tmp_path / SPLIT_FILE).read_text())["tensor_model_parallel_size"] == 2
    begin(tmp_path, config())


def test_another_split_is_refused_before_any_model_is_built(tmp_path: Path) -> None:
    begin(tmp_path, config())
    with pytest.raises(RefusedError, match="tensor_model_parallel_size 2, now 4") as caught:
        begin(tmp_path, config(4))
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "CheckpointTopology")
    begin(tmp_path, config())


def test_the_weights_alone_may_be_loaded_by_any_split(tmp_path: Path) -> None:
    begin(tmp_path, config())
    begin(tmp_path, config(4, actor=["model"]))
    begin(tmp_path, config(4))
    (tmp_path / "global_step_5" / "critic").mkdir(parents=True)
    with pytest.raises(RefusedError):
        begin(tmp_path, config(2, actor=["model"]))
    begin(tmp_path, config(2, actor=["model"], critic=["model"]))


def test_a_run_that_begins_at_step_0_may_be_split_as_it_likes(tmp_path: Path) -> None:
    begin(tmp_path, config())
    parallelism.keep(tmp_path, Start(), config(4))
    begin(tmp_path, config(4))


@pytest.mark.parametrize("written", [None, b"{"])
def test_a_folder_that_does_not_tell_is_taken_as_it_is(tmp_path: Path, written: bytes | None) -> None:
    if written is not None:
        (tmp_path / SPLIT_FILE).write_bytes(written)
    begin(tmp_path, config(4))


def test_a_source_of_another_job_is_read_and_not_written(tmp_path: Path) -> None:
    source, own = tmp_path / "source", tmp_path / "own"
    source.mkdir()
    own.mkdir()
    begin(source, config())
    with pytest.raises(RefusedError):
        parallelism.keep(own, Start(source / "global_step_5", 5), config(4))
    assert not list(own.iterdir())
    parallelism.keep(None, Start(source / "global_step_5", 5), config())


def test_another_engine_has_no_such_split(tmp_path: Path) -> None:
    begin(tmp_path, config(strategy="fsdp2"))
    assert not list(tmp_path.iterdir())
