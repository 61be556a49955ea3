"""verl's asynchronous replay buffer and its dataloader under the ledger of prompts, with a queue in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.checkpoints import prompt_ledger
from rljob_runtime.checkpoints.prompt_ledger import RETRIES, Dropped, LedgerMismatchError
from rljob_runtime.verl_plugin.trainer.discarded_tokens import DiscardedTokens

ROWS, SAMPLES, WAITS_MAX = 5, 2, 20
workers = pytest.mark.parametrize("workers", [0, 2])


class Queue:
    """TransferQueue's tags, without its actors."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        assert partition_id in (None, "train")
        return {"train": {key: dict(tag) for key, tag in self.items.items()}}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        assert partition_id == "train"
        for key in keys:
            self.items.pop(key, None)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> Any:
        import torch

        assert (partition_id, select_fields) == ("train", ["rm_scores"])
        scores = [torch.tensor([self.items[key]["score"]]) for key in keys]
        return {"rm_scores": scores}


class Rollout:
    """What the trainer and its agent loops do with prompts; each ends at once, as `outcomes` says."""

    def __init__(self, queue: Queue, **options: Any) -> None:
        from omegaconf import OmegaConf
        from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

        from rljob_runtime.verl_plugin.trainer.prompt_flow import PromptFlow

        self.queue, self.discarded = queue, DiscardedTokens()
        self.flow = PromptFlow(self.send, self.discarded)
        self.outcomes: dict[str, list[str]] = {}
        self.step = self.fetched = self.waits = 0
        settings: dict[str, Any] = {"max_off_policy_threshold": 2, "max_off_policy_strategy": "drop"}
        self.buffer = ReplayBufferAsync(
            trainer_mode="colocate_async",
            trainer_config=OmegaConf.create({}),
            sampler_kwargs=OmegaConf.create({}),
            refill_fn=self.fetch,
            **{**settings, **options},
        )
        self.buffer._wait_for_next_poll = self.no_wait
        self.discarded.watch(self.buffer)
        self.flow.watch(self.buffer)

    def no_wait(self, *_: Any) -> float:
        self.waits += 1
        assert self.waits < WAITS_MAX, "nothing ends any more"
        return 0.0

    def fetch(self, count: int) -> None:
        uids = [f"u{number}" for number in range(self.fetched, self.fetched + count)]
        self.flow.fetched(uids, 0, range(self.fetched, self.fetched + count))
        self.fetched += count
        for uid in uids:
            self.queue.items[uid] = {"is_prompt": True}
        self.send(uids)

    def send(self, uids: Any) -> None:
        for uid in uids:
            ends = self.outcomes.get(uid)
            status = ends.pop(0) if ends else "finished"
            self.queue.items[uid] |= {"status": status, "global_steps": self.step}
            for session in range(SAMPLES if status == "finished" else 1):
                tag = {"prompt_len": 1, "response_len": 10, "score": float(session)}
                self.queue.items[f"{uid}_{session}_0"] = tag

    def sample(self, count: int) -> list[str]:
        batch, _ = self.buffer.sample(global_steps=self.step, partition_id="train", batch_size=count)
        self.flow.trained(batch.keys)
        return sorted({key.split("_")[0] for key in batch.keys})


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    import transfer_queue

    queue = Queue()
    for name in ("kv_list", "kv_clear", "kv_batch_get"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    return queue


def test_what_is_sampled_is_trained_and_its_responses_stay_until_the_step_is_saved(
    queue: Queue, tmp_path: Path
) -> None:
    rollout = Rollout(queue)
    rollout.fetch(4)
    trained = rollout.sample(3)
    (left,) = {"u0", "u1", "u2", "u3"} - set(trained)
    (tmp_path / "data.pt").touch()
    rollout.flow.seal(tmp_path, drawn=4)
    kept = prompt_ledger.read(tmp_path)
    assert (kept.fetched, kept.trained, list(kept.in_flight)) == (4, 3, [left])
    assert len(queue.items) == 3 * SAMPLES + 1 + SAMPLES
    resumed = Rollout(queue)
    resumed.flow.resume(tmp_path, drawn=4)
    assert sorted(queue.items) == [left, f"{left}_0_0", f"{left}_1_0"]
    with pytest.raises(LedgerMismatchError, match="the loader has given 3 prompts, and the ledger has 4"):
        resumed.flow.resume(tmp_path, drawn=3)
    resumed.fetched = 4
    resumed.fetch(1)
    assert resumed.sample(2) == [left, "u4"]
    assert resumed.flow.ledger.problems((), (), 5) == []


def test_responses_that_belong_to_nobody_keep_a_step_from_being_completed(queue: Queue, tmp_path: Path) -> None:
    rollout = Rollout(queue)
    rollout.fetch(2)
    rollout.sample(1)
    rollout.flow.begin_step()
    with pytest.raises(LedgerMismatchError, match=r"2 responses in the queue belong to no prompt: u\d_0_0, u\d_1_0"):
        rollout.flow.seal(tmp_path, drawn=2)
    assert not (tmp_path / prompt_ledger.LEDGER_FILE).exists()


def test_a_failed_prompt_is_tried_again_with_the_same_row_before_another_takes_its_place(queue: Queue) -> None:
    rollout = Rollout(queue)
    rollout.outcomes = {"u0": ["failure"], "u1": ["failure"] * (1 + RETRIES)}
    rollout.fetch(2)
    assert rollout.sample(2) == ["u0", "u2"]
    ledger = rollout.flow.ledger
    assert (ledger.fetched, ledger.trained, ledger.retried) == (3, 2, 1 + RETRIES)
    assert ledger.dropped == {Dropped.FAILED: 1}
    assert ledger.dropped_rows == [(0, 1, "failed")]
    assert rollout.flow.lost == 1
    assert rollout.discarded.take().response == 10 * (2 + RETRIES)
    rollout.flow.begin_step()
    assert rollout.flow.lost == 0
    rollout.queue.kv_clear([key for key in queue.items if key.startswith(("u0_", "u2_"))], "train")
    assert queue.items == {}


def test_a_prompt_that_is_too_old_is_dropped_as_stale(queue: Queue) -> None:
    rollout = Rollout(queue)
    rollout.fetch(2)
    rollout.step = 2
    assert rollout.sample(2) == ["u2", "u3"]
    assert rollout.flow.ledger.dropped == {Dropped.STALE: 2}
    assert rollout.flow.ledger.unaccounted((), drawn=4) == 0


def test_a_group_of_equal_scores_is_dropped_as_filtered(queue: Queue) -> None:
    rollout = Rollout(queue, filter_groups_metric="reward")
    rollout.fetch(1)
    queue.items["u0_1_0"]["score"] = 0.0
    assert rollout.sample(1) == ["u1"]
    assert rollout.flow.ledger.dropped == {Dropped.FILTERED: 1}


def test_a_step_reports_its_prompts(queue: Queue) -> None:
    rollout = Rollout(queue)
    rollout.fetch(2)
    rollout.sample(1)
    batch: Any = SimpleNamespace(tags=[{"min_global_steps": 3, "max_global_steps": 4}])
    figures = rollout.flow.figures(batch, 5, drawn=2)
    assert (figures["rljob/staleness/1"], figures["rljob/mixed_versions_ratio"]) == (1, 1)
    assert (figures["rljob/queue/finished"], figures["rljob/prompts/unaccounted"]) == (1, 0)
    assert rollout.flow.figures(batch, 5, drawn=3)["rljob/prompts/unaccounted"] == 1


# The loader.


class Dataset(list[dict[str, Any]]):
    """Prompts whose text is their row."""

    def __init__(self) -> None:
        super().__init__({"raw_prompt": str(row)} for row in range(ROWS))


class Data:
    """The data of one attempt, which verl's trainer draws prompt by prompt."""

    def __init__(self, workers: int, shuffle: bool) -> None:
        from omegaconf import OmegaConf
        from torchdata.stateful_dataloader import StatefulDataLoader
        from verl.trainer.ppo.utils import create_rl_sampler
        from verl.utils.dataset.rl_dataset import collate_fn

        from rljob_runtime.verl_plugin.trainer.prompt_loader import PromptLoader

        dataset, self.notes = Dataset(), list[str]()
        verls = StatefulDataLoader(
            dataset=dataset,
            batch_size=1,
            num_workers=workers,
            drop_last=True,
            collate_fn=collate_fn,
            sampler=create_rl_sampler(OmegaConf.create({"shuffle": shuffle, "seed": 7}), dataset),
        )
        self.trainer: Any = SimpleNamespace(
            train_dataloader=PromptLoader(verls, self.notes.append), train_dataloader_it=None
        )
        self.loader = self.trainer.train_dataloader

    def draw(self) -> tuple[int, int]:
        from verl.trainer.ppo.v1 import PPOTrainer

        batch = PPOTrainer._fetch_one_gen_batch(self.trainer)
        (row,) = self.loader.take_rows(batch)
        assert batch["raw_prompt"][0] == str(row)
        assert "rljob_row" not in batch.keys()  # noqa: SIM118 - a TensorDict iterates over its rows
        return self.loader.epoch, row

    def saved(self) -> Any:
        """Return what verl reads from data.pt."""
        import torch

        file = io.BytesIO()
        torch.save(self.loader.state_dict(), file)
        file.seek(0)
        return torch.load(file, weights_only=False)


def drawn_over_attempts(workers: int, shuffle: bool, ends: list[int]) -> Iterator[tuple[int, int]]:
    state = None
    for count in ends:
        data = Data(workers, shuffle)
        if state is not None:
            data.loader.load_state_dict(state)
        yield from (data.draw() for _ in range(count))
        state = data.saved()
        assert state["rljob_prompts"]["drawn"] == data.loader.drawn


@workers
@pytest.mark.parametrize("shuffle", [False, True])
def test_attempts_draw_what_one_would_and_each_row_once_an_epoch(workers: int, shuffle: bool) -> None:
    # Within an epoch, at its very end, and over it.
    places = list(drawn_over_attempts(workers, shuffle, [2, 3, 4, 3 * ROWS]))
    assert places == list(drawn_over_attempts(workers, shuffle, [len(places)]))
    assert [epoch for epoch, _ in places] == [number // ROWS for number in range(len(places))]
    for epoch in range(len(places) // ROWS):
        assert sorted(row for of, row in places if of == epoch) == list(range(ROWS))


def test_with_the_place_of_another_mode_the_data_begins_again() -> None:
    data = Data(0, shuffle=False)
    data.draw()
    state = data.saved()
    del state["rljob_prompts"]
    other = Data(0, shuffle=False)
    other.loader.load_state_dict(state)
    assert other.notes == [
        "the step was saved in another trainer.mode: the run begins with the first prompts of data.train"
    ]
    assert other.draw() == (0, 0)
