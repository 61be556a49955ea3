"""The order of a batch with verl's own balancing, dispatch and mini-batches."""

from __future__ import annotations

import functools
import random
import time
import types
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rljob_runtime.planning import update_balance

PREFIX = "global_seqlen"


def configuration(prompts: int, *, shuffle: bool = False, warmup: int = 0, critic: int | None = None) -> Any:
    actor = {"ppo_mini_batch_size": prompts, "shuffle": shuffle}
    return OmegaConf.create(
        {
            "trainer": {"critic_warmup": warmup},
            "actor_rollout_ref": {"actor": actor, "rollout": {"n": 2}},
            "critic": {"ppo_mini_batch_size": critic or prompts, "shuffle": False},
        }
    )


def batch_of(lengths: list[int]) -> Any:
    from transfer_queue import KVBatchMeta

    tags = [{"seq_len": length} for length in lengths]
    return KVBatchMeta(keys=[str(n) for n in range(len(lengths))], tags=tags, partition_id="train")


def trained(ranks: int, config: Any, lengths: list[int], *, balances: bool, critic: bool = False) -> tuple[Any, Any]:
    """Return the batch as our trainer orders it, by verl's method and ours, and the metrics."""
    from verl.trainer.ppo.v1 import PPOTrainerSync

    from rljob_runtime.contract import Optimizations
    from rljob_runtime.verl_plugin.trainer.optimized_trainer import OptimizedTrainer

    class Trainer(OptimizedTrainer, PPOTrainerSync):  # type: ignore[misc] # verl ships no types
        """Without what saves and stops."""

    trainer: Any = object.__new__(Trainer)
    trainer._run = types.SimpleNamespace(job=types.SimpleNamespace(optimizations=Optimizations(batch_balance=balances)))
    trainer.config, trainer.global_steps, trainer.use_critic = config, 1, critic
    # Two devices share each sample, as with Megatron's tensor parallelism: ranks are not devices.
    dispatch = {"actor": [rank for rank in range(ranks) for _ in range(2)]}
    trainer.__dict__["actor_rollout_wg"] = types.SimpleNamespace(_dispatch_info=dispatch)
    trainer.tokenizer = types.SimpleNamespace(eos_token_id=0)
    metrics: dict[str, Any] = {}
    return trainer._balance_batch(batch_of(lengths), metrics), metrics


def lengths_of_answers(count: int, seed: int = 0) -> list[int]:
    drawn = random.Random(seed)  # noqa: S311 - a fixed trace
    return [max(1, int(min(drawn.lognormvariate(8.63, 0.73), 32_768))) for _ in range(count)]


def cost(batch: Any, ranks: int, updates: int) -> update_balance.Times:
    lengths = [tag["seq_len"] for tag in batch.tags]
    placement = update_balance.cut(range(len(lengths)), ranks, updates)
    return update_balance.times(placement, [24576 * length + length**2 for length in lengths])


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """Draw ranks, updates and lengths."""
    ranks, updates, share = (
        draw(st.integers(1, 6)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 8).map(lambda n: 2 * n)),
    )
    length = st.one_of(st.integers(1, 32_768), st.sampled_from([1, 128, 32_768]))
    count = ranks * updates * share
    return ranks, updates, draw(st.lists(length, min_size=count, max_size=count))


@given(steps())
@settings(deadline=None, max_examples=50)
def test_no_step_takes_longer_than_with_verls_order(step: tuple[int, int, list[int]]) -> None:
    ranks, updates, lengths = step
    config = configuration(len(lengths) // updates // 2)
    ours, metrics = trained(ranks, config, lengths, balances=True)
    theirs, verls = trained(ranks, config, lengths, balances=False)
    assert sorted(ours.keys, key=int) == [str(n) for n in range(len(lengths))]
    assert all(lengths[int(key)] == tag["seq_len"] for key, tag in zip(ours.keys, ours.tags, strict=True))
    assert cost(ours, ranks, updates).step <= cost(theirs, ranks, updates).step
    totals = [sum(tag["seq_len"] for tag in part.tags) for part in ours.chunk(ranks)]
    assert (metrics[f"{PREFIX}/balanced_min"], metrics[f"{PREFIX}/balanced_max"]) == (min(totals), max(totals))
    unchanged = {f"{PREFIX}/{name}" for name in ("min", "max", "minmax_diff", "mean")}
    assert {name: metrics[name] for name in unchanged} == {name: verls[name] for name in unchanged}


def test_a_worker_trains_the_updates_that_were_planned() -> None:
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils

    lengths, ranks, updates = lengths_of_answers(64), 4, 4
    batch, metrics = trained(ranks, configuration(8), lengths, balances=True)
    numbers = dict(zip(batch.keys, range(len(lengths)), strict=True))
    expected = update_balance.cut(range(len(lengths)), ranks, updates)
    for rank, part in enumerate(batch.chunk(ranks)):  # as make_nd_compute_dataproto_dispatch_fn does
        data = TensorDict({"sample": torch.tensor([numbers[key] for key in part.keys])}, batch_size=[len(part)])
        minis = tensordict_utils.make_iterator(
            data, mini_batch_size=16 // ranks, epochs=2, seed=42 + rank, dataloader_kwargs={"shuffle": False}
        )
        seen = [mini["sample"].tolist() for mini in minis]
        assert seen == 2 * [list(update[rank]) for update in expected]
    for index, update in enumerate(expected):
        tokens = [sum(batch.tags[sample]["seq_len"] for sample in share) for share in update]
        assert metrics[f"rljob/update/{index}/rank_tokens_max"] == max(tokens)
        assert metrics[f"rljob/update/{index}/rank_tokens_min"] == min(tokens)


def test_ranks_that_shuffle_keep_verls_order() -> None:
    lengths = lengths_of_answers(64)
    with_plan, metrics = trained(4, configuration(8, shuffle=True), lengths, balances=True)
    without, _ = trained(4, configuration(8, shuffle=True), lengths, balances=False)
    assert with_plan.keys == without.keys
    assert not [name for name in metrics if name.startswith("rljob/")]


def test_updates_of_actor_and_critic_are_both_balanced() -> None:
    lengths = lengths_of_answers(960)
    config = configuration(240, critic=160)  # samples: 480 and 320; both consist of parts of 160
    ours, _ = trained(4, config, lengths, balances=True, critic=True)
    theirs, _ = trained(4, config, lengths, balances=False, critic=True)
    for updates in (2, 3):
        assert cost(ours, 4, updates).waiting < 0.001 < cost(theirs, 4, updates).waiting


def test_before_the_actor_trains_the_updates_of_the_critic_are_balanced() -> None:
    config = configuration(240, critic=160, warmup=5)
    ours, metrics = trained(4, config, lengths_of_answers(960), balances=True, critic=True)
    assert cost(ours, 4, 3).waiting < 0.001
    assert not [name for name in metrics if name.startswith("rljob/")]


def test_a_step_that_trains_nothing_keeps_verls_order() -> None:
    config, lengths = configuration(8, warmup=5), lengths_of_answers(64)
    assert trained(4, config, lengths, balances=True)[0].keys == trained(4, config, lengths, balances=False)[0].keys


def test_a_caller_that_keeps_mini_batches_gets_verls_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from rljob_runtime.verl_plugin.trainer.optimized_trainer import OptimizedTrainer

    verls = OptimizedTrainer._balance_batch
    monkeypatch.setattr(OptimizedTrainer, "_balance_batch", functools.partialmethod(verls, keep_minibatch=True))
    kept, lengths = configuration(8), lengths_of_answers(64)
    assert trained(4, kept, lengths, balances=True)[0].keys == trained(4, kept, lengths, balances=False)[0].keys


def test_the_seed_of_a_shuffling_rank_is_its_own() -> None:
    # Otherwise launchers/verl/optimizations/batch_balance.py need not refuse it.
    import inspect

    from verl.workers.engine_workers import TrainingWorker

    assert "seed=seed + self.engine.get_data_parallel_rank()" in inspect.getsource(TrainingWorker.train_mini_batch)


SHAPES = {
    "code: 128 x 8, 16 ranks, 4 updates": (1024, 16, 4),
    "retool: 64 x 16, 4 ranks, 4 updates": (1024, 4, 4),
    "512 x 16, 32 ranks, 4 updates": (8192, 32, 4),
    "512 x 16, 128 ranks, 1 update": (8192, 128, 1),
    "235B: 512 x 16, 2 ranks, 1 update": (8192, 2, 1),
}


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_waiting_with_the_shapes_of_the_recipes_beside_verl(shape: str) -> None:
    samples, ranks, updates = SHAPES[shape]
    config = configuration(samples // updates // 2)
    found, seconds = [], []
    for seed in range(5):
        lengths = lengths_of_answers(samples, seed)
        ours, metrics = trained(ranks, config, lengths, balances=True)
        theirs, verls = trained(ranks, config, lengths, balances=False)
        assert cost(ours, ranks, updates).waiting <= 0.001
        assert max(metrics[f"rljob/update/{n}/waiting_ratio"] for n in range(updates)) <= 0.001
        assert metrics["rljob/updates_waiting_ratio"] == pytest.approx(cost(ours, ranks, updates).waiting)
        assert verls["rljob/updates_waiting_ratio"] == pytest.approx(cost(theirs, ranks, updates).waiting)
        found.append((cost(theirs, ranks, updates).waiting, cost(ours, ranks, updates).waiting))
        begun = time.process_time()
        update_balance.place([24576 * length + length**2 for length in lengths], ranks, updates)
        seconds.append(time.process_time() - begun)
    theirs_mean, ours_mean = (sum(column) / len(column) for column in zip(*found, strict=True))
    # For docs/benchmarks.md.
    print(f"{shape}: {100 * theirs_mean:.2f} % and {100 * ours_mean:.4f} %, {1000 * sorted(seconds)[2]:.1f} ms of CPU")
