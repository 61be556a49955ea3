"""Saves whose ranks write while the run continues: verl's FSDP2 manager in two real ranks, and our trainer's part.

test_export.py trains for real while its steps are saved, in `make acceptance`.

A run that is killed in any phase of such a save resumes from the step before it.
"""

from __future__ import annotations

import errno
import importlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.checkpoints import claims, saved_steps
from rljob_runtime.checkpoints.saved_steps import complete_steps, has_every_part, tracked_step
from rljob_runtime.outcomes import FencedError
from rljob_runtime.verl_plugin.trainer import background_save

torch = pytest.importorskip("torch")
HERE = Path(__file__).parent
RANKS, SECONDS = 2, 300


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[Any, Any]]:
    """Return the modules of the fenced save and of the real training, beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield importlib.import_module("fenced_save_probe"), importlib.import_module("real_training")


def local(value: Any) -> Any:
    return getattr(value, "_local_tensor", value)


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every tensor in what torch has saved, with its place."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from tensors(part, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from tensors(part, f"{path}/{index}")
    elif isinstance(value, torch.Tensor):
        yield path, local(value)


def test_what_is_written_behind_is_the_model_at_the_time_of_the_save(tmp_path: Path, modules: tuple[Any, Any]) -> None:
    modules[1].write_tokenizer(tmp_path / "model")
    for name in ("behind", "next"):
        background_save.request(tmp_path / name)
    command = [sys.executable, str(HERE / "background_ranks.py"), str(tmp_path)]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(RANKS)]
    try:
        names = [process.stdout.readline().split() for process in ranks if process.stdout is not None]
        assert names == [["actor-0"], ["actor-1"]]
        behind = tmp_path / "behind/global_step_4"
        assert not list(behind.glob("actor/*.pt")), "the ranks continue before anything is written"
        (tmp_path / "go").touch()
        assert [process.wait(SECONDS) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    files = sorted(path.name for path in (tmp_path / "plain/global_step_4/actor").glob("*.pt"))
    assert len(files) == 3 * RANKS
    for file in files:
        plain, copied = (
            dict(tensors(torch.load(tmp_path / name / "global_step_4/actor" / file, weights_only=False)))
            for name in ("plain", "behind")
        )
        assert plain.keys() == copied.keys()
        assert all(torch.equal(plain[key], copied[key]) for key in plain), file
        assert (tmp_path / "next/global_step_6/actor" / file).exists()
    reports = {path.name for path in (tmp_path / "behind").iterdir()}
    assert reports == {".background", "actor-0.written", "actor-1.written", "global_step_4"}


class Ranks:
    """A worker group whose ranks write when the test asks them to."""

    def __init__(self, parts: int = RANKS) -> None:
        self.names = [f"actor-{rank}" for rank in range(parts)]
        self.place = Path()
        self.workers: list[Any] = []

    def execute_all_async(self, method: str, *_: Any, **__: Any) -> None:
        raise AssertionError(f"{method} on ranks that do not exist")

    def save_checkpoint(self, local_path: str, *_: Any, **__: Any) -> None:
        made = Path(local_path)
        made.mkdir(parents=True)
        self.place = made.parent.parent

    def shard(self, rank: int) -> Path:
        (step,) = self.place.glob("global_step_*")
        return step / f"actor/model_world_size_{RANKS}_rank_{rank}.pt"

    def write(self, rank: int, report: str = "written") -> None:
        torch.save({"weight": torch.ones(2)}, self.shard(rank))
        (self.place / f"actor-{rank}.{report}").write_text("OSError: No space left" if report == "failed" else "")


@pytest.fixture
def trainer(tmp_path: Path, modules: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a trainer that has saved step 4 and is about to save step 6 behind."""
    import dataclasses

    made = modules[0].trainer_of(tmp_path)
    monkeypatch.setattr(background_save, "POLL_SECONDS", 0.01)
    made.total_training_steps, made.stopped_by, made._copies = 40, None, True
    made._save_checkpoint()
    made._run.job = dataclasses.replace(made._run.job, background_saves=True)
    made.actor_rollout_wg, made.global_steps = Ranks(), 6
    monkeypatch.setattr(made, "_in_ranks", lambda _: [])
    module = sys.modules[type(made).__mro__[1].__module__]
    monkeypatch.setattr(module, "ray", type("Ray", (), {"get": staticmethod(lambda _: [made.actor_rollout_wg.names])}))
    return made


def folder(trainer: Any) -> Path:
    return Path(trainer._run.job.checkpoint_path)


def settled(trainer: Any) -> None:
    trainer._settle(60.0)
    assert trainer._pending is None


def test_a_step_gets_its_name_when_every_rank_has_written(trainer: Any) -> None:
    trainer._save_checkpoint()
    ranks = trainer.actor_rollout_wg
    trainer._settle(0.1)
    assert (tracked_step(folder(trainer)), trainer._pending.step) == (4, 6)
    ranks.write(0)
    trainer._settle(0.1)
    assert tracked_step(folder(trainer)) == 4
    ranks.write(1)
    settled(trainer)
    assert (tracked_step(folder(trainer)), trainer._run.spool.progress().checkpoint_step) == (6, 6)
    assert has_every_part(folder(trainer) / "global_step_6")
    assert not list(folder(trainer).glob(".saving-*")), "nothing is left of the save"


@pytest.mark.parametrize("written", [(), (0,), (0, 1)])
def test_a_run_that_is_killed_in_a_save_resumes_from_the_step_before(trainer: Any, written: tuple[int, ...]) -> None:
    """Neither with nothing written, nor in the middle, nor when only the name is missing."""
    publish = trainer._publisher.publish
    trainer._publisher.publish = lambda *_: time.sleep(3600)
    trainer._save_checkpoint()
    for rank in written:
        trainer.actor_rollout_wg.write(rank)
    time.sleep(0.1)
    assert complete_steps(folder(trainer)) == [4]
    # The next attempt: what the ranks of the old one write now is in nobody's way.
    claims.claim(folder(trainer), claims.Owner("uid-1", 2))
    saved_steps.retire_unfinished_saves(folder(trainer), "uid-1", 2)
    assert saved_steps.step_to_resume(folder(trainer)) == 4
    with pytest.raises((FencedError, OSError)):
        publish(6, trainer.actor_rollout_wg.place / "global_step_6")
    assert complete_steps(folder(trainer)) == [4]


def test_two_saves_never_overlap(trainer: Any) -> None:
    trainer._save_checkpoint()
    ranks, trainer.global_steps = trainer.actor_rollout_wg, 8
    first = ranks.place
    thread = threading.Thread(target=trainer._save_checkpoint, daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "the save of step 8 waits"
    assert ranks.place == first
    for rank in range(RANKS):
        ranks.write(rank)
    thread.join(60)
    assert (tracked_step(folder(trainer)), trainer._pending.step) == (6, 8)


def test_the_last_step_and_a_stop_wait_for_the_ranks(trainer: Any) -> None:
    trainer._save_checkpoint()
    for rank in range(RANKS):
        trainer.actor_rollout_wg.write(rank)
    trainer.global_steps = trainer.total_training_steps = 7
    trainer._save_checkpoint()
    assert (tracked_step(folder(trainer)), trainer._pending) == (7, None)


def test_a_rank_that_cannot_write_fails_the_run_with_its_words(trainer: Any) -> None:
    trainer._save_checkpoint()
    trainer.actor_rollout_wg.write(0)
    trainer.actor_rollout_wg.write(1, "failed")
    with pytest.raises(OSError, match="step 6 was not saved: rank actor-1: OSError: No space left"):
        trainer._settle(60.0)
    assert complete_steps(folder(trainer)) == [4]


def test_a_volume_that_is_full_fails_the_save_and_not_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: object) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = background_save.Writer(tmp_path, "actor-0")
    writer.begin()
    writer.keep({"weight": torch.ones(2)}, str(tmp_path / "model.pt"))
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    writer.write()
    assert [path.name for path in tmp_path.iterdir()] == ["actor-0.failed"], "nor does it leave a part of the file"


def test_a_save_whose_folder_is_deleted_fails(trainer: Any) -> None:
    trainer._save_checkpoint()
    shutil.rmtree(trainer.actor_rollout_wg.place)
    with pytest.raises(OSError, match="was deleted"):
        trainer._settle(60.0)


def test_the_score_of_a_step_is_beside_it_although_it_was_saved_later(trainer: Any) -> None:
    trainer._save_checkpoint()
    trainer._run.record(6, {"critic/score/mean": 0.5})
    for rank in range(RANKS):
        trainer.actor_rollout_wg.write(rank)
    settled(trainer)
    assert "0.5" in "".join(path.read_text() for path in (folder(trainer) / "global_step_6").glob("*.json"))
