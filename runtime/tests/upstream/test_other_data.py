"""A step that was saved with other training data: verl's loader as released, and our trainer around it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.checkpoints import data_identity
from rljob_runtime.checkpoints.data_identity import DataFile, DataIdentity
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Phase, Platform, Progress, ResumeData
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool
from rljob_runtime.training_attempt import TrainingAttempt

BATCH, MANY, FEW = 4, 40, 12
SAVED = 7
"""Steps before the save: more batches than the few prompts have."""


def loader_of(prompts: int) -> Any:
    from omegaconf import OmegaConf
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.trainer.ppo.utils import create_rl_sampler
    from verl.utils.dataset.rl_dataset import collate_fn

    data = [{"raw_prompt": str(row)} for row in range(prompts)]
    sampler = create_rl_sampler(OmegaConf.create({"shuffle": True, "seed": 7}), data)
    # As in _init_dataloader (trainer_base.py:743, verl 0.9.1).
    return StatefulDataLoader(data, batch_size=BATCH, drop_last=True, collate_fn=collate_fn, sampler=sampler)


def trainer_of(root: Path, prompts: int, choice: ResumeData = ResumeData.SAME) -> Any:
    """Return a trainer that has read its data and loads the step next."""
    from omegaconf import OmegaConf

    from rljob_runtime.verl_plugin.trainer.sync_trainer import SyncTrainer

    job = JobConfig(
        CONTRACT_VERSION, "t", "sums", "uid-1", "sums-1", 1, Platform.CPU, 1, 2, 2, 40, {}, resume_data=choice
    )
    trainer: Any = SyncTrainer.__new__(SyncTrainer)
    trainer._run = TrainingAttempt(job, 1, Spool(root / "spool"))
    trainer._run.spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=1))
    train = root / "train.jsonl"
    train.write_text("x\n" * prompts)
    step = str(root / f"global_step_{SAVED}")
    settings = {"resume_mode": "resume_path", "resume_from_path": step, "del_local_ckpt_after_load": False}
    trainer.config = OmegaConf.create({"trainer": settings, "data": {"train_files": [str(train)]}})
    trainer.train_dataset, trainer.train_dataloader, trainer.train_dataloader_it = (
        range(prompts),
        loader_of(prompts),
        None,
    )
    trainer.trainer_mode, trainer.use_critic = "sync", False
    trainer.actor_rollout_wg = SimpleNamespace(load_checkpoint=lambda **_: None, execute_all_async=print)
    return trainer


def rows(trainer: Any, steps: int) -> list[list[int]]:
    """Draw the prompts of some steps, as verl does."""
    from verl.trainer.ppo.v1 import PPOTrainerSync

    batches = [PPOTrainerSync._fetch_one_gen_batch(trainer) for _ in range(steps)]
    return [[int(prompt) for prompt in batch["raw_prompt"]] for batch in batches]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Return a folder with a step after some batches of many prompts."""
    import torch

    trainer = trainer_of(tmp_path, MANY)
    rows(trainer, SAVED)
    step = tmp_path / f"global_step_{SAVED}"
    (step / "actor").mkdir(parents=True)
    torch.save(trainer.train_dataloader.state_dict(), step / "data.pt")
    data_identity.note(step, data_identity.of(trainer.config, MANY), lambda: None)
    return tmp_path


def test_verl_as_released_ends_twice_with_fewer_prompts(saved: Path) -> None:
    trainer = trainer_of(saved, FEW)
    trainer._load_checkpoint()
    with pytest.raises(StopIteration):
        rows(trainer, 1)


def test_other_data_is_refused_before_the_first_worker(saved: Path) -> None:
    with pytest.raises(RefusedError, match=f"had {MANY} prompts then, and has {FEW} now"):
        trainer_of(saved, FEW)._identify_data()


def test_the_same_data_continues_at_its_place(saved: Path) -> None:
    whole, resumed = trainer_of(saved, MANY), trainer_of(saved, MANY)
    resumed._identify_data()
    resumed._load_checkpoint()
    left = MANY // BATCH - SAVED
    assert rows(resumed, left) == rows(whole, SAVED + left)[SAVED:]


def test_a_new_epoch_begins_the_other_data_with_its_first_prompt(saved: Path) -> None:
    fresh, resumed = trainer_of(saved, FEW), trainer_of(saved, FEW, ResumeData.NEW_EPOCH)
    resumed._identify_data()
    resumed._load_checkpoint()
    assert resumed.global_steps == SAVED
    assert rows(resumed, 5) == rows(fresh, 5)


def test_a_step_records_what_the_run_has_read(saved: Path) -> None:
    trainer = trainer_of(saved, MANY)
    trainer._identify_data()
    file = saved / "train.jsonl"
    assert trainer._run.data == DataIdentity((DataFile(str(file), *data_identity.digest(str(file))),), MANY)
