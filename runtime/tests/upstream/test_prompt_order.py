"""Prompts ordered by the lengths of their responses, with verl's own dataloader and its trainer's methods for data."""

from __future__ import annotations

import copy
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Optimizations, OverrideValue, Platform, StopMode
from rljob_runtime.outcomes import RefusedError

PROMPTS, BATCH, LONGEST, SEED = 30, 4, 1600, 7
STEPS_OF_AN_EPOCH = PROMPTS // BATCH
STEPS = 3 * STEPS_OF_AN_EPOCH
workers = pytest.mark.parametrize("workers", [0, 2])


class Dataset(list[dict[str, Any]]):
    """Prompts whose text is their row."""

    def __init__(self, count: int = PROMPTS) -> None:
        super().__init__({"raw_prompt": str(row)} for row in range(count))


class Attempt:
    """The data of one attempt: verl's loader and trainer methods, ours around them, and steps that measure lengths."""

    def __init__(
        self, *, workers: int = 0, ordered: bool = True, fetch: int = BATCH, prompts: int = PROMPTS, **data: Any
    ) -> None:
        from omegaconf import OmegaConf
        from torchdata.stateful_dataloader import StatefulDataLoader
        from verl.trainer.ppo.utils import create_rl_sampler
        from verl.utils.dataset.rl_dataset import collate_fn

        from rljob_runtime.verl_plugin.trainer import ordered_loader

        settings = {"train_batch_size": BATCH, "gen_batch_size": fetch, "max_response_length": LONGEST}
        config = OmegaConf.create({"data": {"shuffle": True, "seed": SEED, **settings, **data}})
        dataset, self.notes = Dataset(prompts), list[str]()
        # As in _init_dataloader (trainer_base.py:743, verl 0.9.1); a test below compares it.
        loader = StatefulDataLoader(
            dataset=dataset,
            batch_size=fetch,
            num_workers=workers,
            drop_last=True,
            collate_fn=collate_fn,
            sampler=create_rl_sampler(config.data, dataset),
        )
        if ordered:
            loader = ordered_loader.ordered(loader, config, self.notes.append)
        self.trainer: Any = SimpleNamespace(
            config=config, train_dataloader=loader, train_dataloader_it=None, global_steps=1
        )

    @property
    def loader(self) -> Any:
        return self.trainer.train_dataloader

    def resume(self, state: dict[str, Any]) -> Attempt:
        import torch

        from rljob_runtime.verl_plugin.trainer import ordered_loader

        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        # As verl loads data.pt (trainer_base.py:895, 0.9.1).
        self.loader.load_state_dict(torch.load(file, weights_only=False))
        self.trainer.train_dataloader = ordered_loader.continued(self.loader, self.trainer.config, self.notes.append)
        return self

    def fetch(self) -> Any:
        from verl.trainer.ppo.v1 import PPOTrainerSync

        from rljob_runtime.verl_plugin.trainer.ordered_loader import ROW, OrderedLoader

        batch = PPOTrainerSync._fetch_one_gen_batch(self.trainer)
        if isinstance(self.loader, OrderedLoader):
            self.loader.take_rows(batch)
        assert ROW not in list(batch.keys())
        return batch

    def step(self) -> list[int]:
        """Draw and measure the prompts of a step; return their rows."""
        fetched = [self.fetch() for _ in range(BATCH // self.loader.batch_size)]
        pairs = [pair for batch in fetched for pair in zip(batch["uid"], batch["raw_prompt"], strict=True)]
        if hasattr(self.loader, "order"):
            tags = [{"response_len": length_of(int(prompt))} for _, prompt in pairs]
            self.loader.order.measure((f"{uid}_0_0", tag) for (uid, _), tag in zip(pairs, tags, strict=True))
        return [int(prompt) for _, prompt in pairs]

    def run(self, steps: int = STEPS) -> list[list[int]]:
        return [self.step() for _ in range(steps)]


def length_of(row: int) -> int:
    return (row * 677) % LONGEST


def spread(steps: list[list[int]]) -> int:
    """Return the tokens by which responses are shorter than the longest of their batch."""
    lengths = [[length_of(row) for row in rows] for rows in steps]
    return sum(max(batch) - tokens for batch in lengths for tokens in batch)


def epochs(steps: list[list[int]], of: int = STEPS_OF_AN_EPOCH) -> Iterator[list[list[int]]]:
    for start in range(0, len(steps), of):
        yield steps[start : start + of]


@workers
def test_the_first_epoch_is_verls_and_later_ones_have_its_prompts_in_another_order(workers: int) -> None:
    ours, theirs = Attempt(workers=workers).run(), Attempt(workers=workers, ordered=False).run()
    first, second, third = epochs(ours)
    assert first == next(epochs(theirs))
    for epoch in (first, second, third):
        assert max(Counter(row for rows in epoch for row in rows).values()) == 1
        assert len(epoch) == STEPS_OF_AN_EPOCH
    assert spread(second) < spread(first) / 3
    assert spread(third) < spread(first) / 3
    assert {frozenset(rows) for rows in second} != {frozenset(rows) for rows in third}


@workers
@pytest.mark.parametrize("fetch", [BATCH, 1])
def test_an_attempt_resumed_at_any_step_draws_what_the_first_would_have_drawn(workers: int, fetch: int) -> None:
    whole = Attempt(workers=workers, fetch=fetch).run()
    first = Attempt(workers=workers, fetch=fetch)
    for done in range(STEPS):
        if not workers or done % 4 == 2 or not done % STEPS_OF_AN_EPOCH:
            resumed = Attempt(workers=workers, fetch=fetch).resume(first.loader.state_dict())
            assert resumed.run(STEPS - done) == whole[done:], f"after {done} steps"
        first.step()


def test_the_position_before_a_step_draws_its_prompts_again() -> None:
    # As our trainer keeps it in on_step_begin and saves it if the step trains nothing.
    from rljob_runtime.verl_plugin.trainer.ordered_loader import STATE

    for done in (0, STEPS_OF_AN_EPOCH, STEPS_OF_AN_EPOCH + 3, 2 * STEPS_OF_AN_EPOCH):
        first = Attempt()
        first.run(done)
        before = first.loader.state_dict()
        known = copy.deepcopy(before[STATE])
        abandoned = first.step()
        assert before[STATE] == known
        assert Attempt().resume(before).step() == abandoned


@workers
@pytest.mark.parametrize("done", [3, STEPS_OF_AN_EPOCH + 3])
def test_a_run_continues_in_the_middle_of_an_epoch_of_a_run_with_another_switch(workers: int, done: int) -> None:
    left = STEPS_OF_AN_EPOCH - done % STEPS_OF_AN_EPOCH
    for before, after in ((True, False), (False, True)):
        first = Attempt(workers=workers, ordered=before)
        drawn = first.run(done)[-(done % STEPS_OF_AN_EPOCH) :]
        second = Attempt(workers=workers, ordered=after).resume(first.loader.state_dict())
        rest = second.run(left)
        assert max(Counter(row for rows in drawn + rest for row in rows).values()) == 1
        assert rest == first.run(left), "the epoch keeps its order"
        assert second.notes == []
        if not after:
            verls = Attempt(workers=workers, ordered=False).run(done + left + STEPS_OF_AN_EPOCH)
            assert second.run(STEPS_OF_AN_EPOCH) == verls[-STEPS_OF_AN_EPOCH:], "verl's order follows"


def test_a_dataset_of_another_size_begins_a_new_epoch() -> None:
    first = Attempt()
    first.run(STEPS_OF_AN_EPOCH + 3)
    second = Attempt(prompts=PROMPTS // 2).resume(first.loader.state_dict())
    assert second.run(3) == Attempt(prompts=PROMPTS // 2, ordered=False).run(3)
    (note,) = second.notes
    assert note.startswith("the checkpoint orders 30 prompts by the lengths of their responses, and data.train has 15")


def test_prompts_that_replace_discarded_ones_are_each_drawn_once() -> None:
    # DAPO's filter draws single prompts, as many as a step lacks (replay_buffer.py, verl 0.9.1).
    attempt = Attempt(fetch=1)
    rows = [int(attempt.fetch()["raw_prompt"][0]) for _ in range(2 * PROMPTS)]
    assert sorted(rows[:PROMPTS]) == sorted(rows[PROMPTS:]) == list(range(PROMPTS))


def test_an_order_that_the_job_asks_for_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"sets data\.shuffle to false, which asks for the order of the files"):
        Attempt(shuffle=False)


def test_a_dataset_with_a_state_keeps_it() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import RandomSampler

    from rljob_runtime.verl_plugin.trainer.ordered_loader import OrderedLoader
    from rljob_runtime.verl_plugin.trainer.prompt_order import PromptOrder

    class Counting(Dataset):
        reads = 0

        def __getitem__(self, row: Any) -> Any:
            self.reads += 1
            return super().__getitem__(row)

        def state_dict(self) -> dict[str, int]:
            return {"reads": self.reads}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.reads = state["reads"]

    def loader(dataset: Any) -> Any:
        plain = StatefulDataLoader(dataset, batch_size=BATCH, sampler=RandomSampler(dataset), collate_fn=list)
        return OrderedLoader(plain, PromptOrder(PROMPTS, BATCH, LONGEST), print)

    first, second = loader(Counting()), Counting()
    next(iter(first))
    resumed = loader(second)
    resumed.load_state_dict(first.state_dict())
    iter(resumed)
    assert second.reads == BATCH


def test_verl_still_creates_its_loader_as_ours_is_created() -> None:
    import inspect

    from verl.trainer.ppo.v1 import PPOTrainerSync

    source = "".join(inspect.getsource(PPOTrainerSync._init_dataloader).split())
    assert (
        "self.train_dataloader=StatefulDataLoader(dataset=self.train_dataset,batch_size=gen_batch_size,"
        'num_workers=self.config.data["dataloader_num_workers"],drop_last=True,collate_fn=collate_fn,'
        "sampler=create_rl_sampler(self.config.data,self.train_dataset),)self.train_dataloader_it=None" in source
    )
    fetched = inspect.getsource(PPOTrainerSync._fetch_one_gen_batch)
    assert "iter(self.train_dataloader)" in fetched
    assert 'batch_dict["uid"]' in fetched


class Tokenizer:
    """One token for each character of a message."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        return [ord(letter) for message in messages for letter in message["content"]]


class Buffer:
    """verl's replay buffer as far as the trainer's methods for data need it: it returns what a step drew."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, Any]] = {"train": {}}

    def sample(self, partition_id: str) -> tuple[Any, dict[str, Any]]:
        held = self.partitions[partition_id]
        self.partitions[partition_id] = {}
        return SimpleNamespace(partition_id=partition_id, keys=[*held], tags=[*held.values()]), {}

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        for key in list(self.partitions[partition_id]):
            if key.split("_")[0] in uids:
                del self.partitions[partition_id][key]


class Slice:
    """Our real trainer from its data to its checkpoint, without workers and replicas."""

    def __init__(self, folder: Path, *, ordered: bool, attempt: int, resume: int | None = None) -> None:
        from verl.trainer.ppo.v1 import PPOTrainerSync

        from rljob_runtime import hydra_config
        from rljob_runtime.checkpoints import claims
        from rljob_runtime.contract import Phase, Progress
        from rljob_runtime.spool.spool import Spool
        from rljob_runtime.training_attempt import TrainingAttempt
        from rljob_runtime.verl_plugin import launcher
        from rljob_runtime.verl_plugin.trainer import fenced_save
        from rljob_runtime.verl_plugin.trainer.sync_trainer import SyncTrainer

        job = job_of(folder, ordered=ordered)
        spool = Spool(folder / f"spool-{attempt}")
        spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=attempt))
        (folder / "saved").mkdir(exist_ok=True)
        claims.claim(folder / "saved", claims.Owner.of(job, attempt))
        self.trainer: Any = SyncTrainer.__new__(SyncTrainer)
        trainer = self.trainer
        trainer._run, trainer._nan = TrainingAttempt(job, attempt, spool), None
        trainer.config = hydra_config.compose(job, spool, folder)
        start = Start(folder / f"saved/global_step_{resume}", resume) if resume else Start()
        hydra_config.apply(trainer.config, launcher.resume_settings(start))
        trainer._take_over(trainer.config)
        trainer.trainer_mode, trainer.parameter_sync_step, trainer.use_critic = "sync", 1, False
        trainer.tokenizer, trainer.processor = Tokenizer(), None
        trainer.actor_rollout_wg = SimpleNamespace(
            save_checkpoint=save_actor, load_checkpoint=ignore, execute_all_async=ignore
        )
        trainer._publisher = trainer.checkpoint_callback = fenced_save.Publisher(
            SimpleNamespace(on_save=ignore), trainer._run
        )
        trainer.replay_buffer = Buffer()
        assert PPOTrainerSync in SyncTrainer.__mro__
        trainer._init_dataloader()
        trainer._load_checkpoint()
        trainer.on_train_begin()

    def step(self) -> list[int]:
        """Draw the prompts of a step and measure their responses; return their rows."""
        trainer = self.trainer
        trainer.global_steps += 1
        batch = trainer._next_train_batch()
        rows = [int(messages[0]["content"]) for messages in batch["raw_prompt"]]
        held = trainer.replay_buffer.partitions["train"]
        held |= {f"{uid}_0_0": {"response_len": length_of(row)} for uid, row in zip(batch["uid"], rows, strict=True)}
        trainer.replay_buffer._clear_groups("train", {str(batch["uid"][0])})
        trainer.replay_buffer.sample(partition_id="train")
        return rows


def ignore(*_: Any, **__: Any) -> None:
    """Do what takes devices."""


def save_actor(place: str, *_: Any, **__: Any) -> None:
    """Save what makes a step complete."""
    Path(place).mkdir(parents=True)


def job_of(folder: Path, *, ordered: bool) -> JobConfig:
    overrides: dict[str, OverrideValue] = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": [str(folder / "train.parquet")],
        "data.val_files": [str(folder / "train.parquet")],
        "data.train_batch_size": BATCH,
        "data.max_prompt_length": 8,
        "data.max_response_length": LONGEST,
        "data.seed": SEED,
        "data.dataloader_num_workers": 0,
        "data.filter_overlong_prompts": False,
        "actor_rollout_ref.actor.ppo_mini_batch_size": BATCH,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.path": "/model",
    }
    return JobConfig(
        CONTRACT_VERSION, "ns", "job", "u", "c", 1, Platform.CPU, 1, 1, 1, STEPS, overrides,
        checkpoint_path=str(folder / "saved"), optimizations=Optimizations(length_aware_order=ordered),
    )  # fmt: skip


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the prompts of a job."""
    import pyarrow as pa
    import transfer_queue
    from pyarrow import parquet

    rows = [{"data_source": "d", "prompt": [{"role": "user", "content": f"{row}"}]} for row in range(PROMPTS)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(transfer_queue, "get_metrics_endpoint", ignore)
    return tmp_path


@pytest.mark.parametrize("then", [True, False], ids=["with the order", "without it"])
def test_our_trainer_resumes_within_an_epoch_without_a_prompt_twice(prompts: Path, then: bool) -> None:
    first = Slice(prompts, ordered=True, attempt=1)
    drawn = [first.step() for _ in range(STEPS_OF_AN_EPOCH + 3)]
    first.trainer._save_checkpoint()
    second = Slice(prompts, ordered=then, attempt=2, resume=len(drawn))
    rest = [second.step() for _ in range(STEPS_OF_AN_EPOCH - 3)]
    assert rest == [first.step() for _ in range(STEPS_OF_AN_EPOCH - 3)]
    epoch = drawn[STEPS_OF_AN_EPOCH:] + rest
    assert max(Counter(row for rows in epoch for row in rows).values()) == 1
    assert spread(epoch) < spread(drawn[:STEPS_OF_AN_EPOCH]) / 3


def test_a_step_that_trains_nothing_is_drawn_again(prompts: Path) -> None:
    first = Slice(prompts, ordered=True, attempt=1)
    for _ in range(STEPS_OF_AN_EPOCH):
        first.step()
    trainer = first.trainer
    trainer._data_before = trainer.train_dataloader.state_dict()
    abandoned = first.step()
    trainer._run.step_began()
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=ignore)
    trainer._step_back(StopMode.ABORT_ROLLOUT)
    assert Slice(prompts, ordered=True, attempt=2, resume=STEPS_OF_AN_EPOCH).step() == abandoned


def test_of_a_step_with_prompts_in_flight_the_place_in_the_data_is_not_taken(prompts: Path) -> None:
    import torch

    from rljob_runtime.verl_plugin.trainer import prompt_loader

    first = Slice(prompts, ordered=False, attempt=1)
    begin, _ = first.step(), first.step()
    first.trainer._save_checkpoint()
    file = prompts / "saved/global_step_2/data.pt"
    torch.save({**torch.load(file, weights_only=False), prompt_loader.STATE: {"epoch": 0, "drawn": 8}}, file)
    second = Slice(prompts, ordered=False, attempt=2, resume=2)
    assert second.step() == begin
    assert second.trainer._run.spool.progress().notes == (prompt_loader.BEGINS_AGAIN,)


def test_without_the_switch_verls_own_loader_remains(prompts: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    assert type(Slice(prompts, ordered=False, attempt=1).trainer.train_dataloader) is StatefulDataLoader
