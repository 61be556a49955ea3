"""Order a batch so that ranks finish each update together; see planning/update_balance.py for the plan.

The trainer calls it after verl's own `_balance_batch`, which pads the batch, orders it so that the lists of the ranks
are balanced as a whole, and records `global_seqlen/*`. verl's order stays wherever the plan would not be faster.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from verl.utils.seqlen_balancing import calculate_workload

from rljob_runtime.planning import update_balance
from rljob_runtime.spool.step_metrics import update_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omegaconf import DictConfig
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta

ACTOR, CRITIC = "actor", "critic"


def mini_batches(config: DictConfig, step: int, *, has_critic: bool) -> dict[str, int]:
    """Return the samples of an update of each model that the step trains, by model.

    A model whose ranks shuffle is left out: what one of its updates contains is drawn in the worker
    (verl/workers/engine_workers.py:277, 0.9.1). The batch is a multiple of each size (trainer_base.py:1589).
    """
    actor, samples = config.actor_rollout_ref.actor, int(config.actor_rollout_ref.rollout.n)
    sizes = {}
    if config.trainer.critic_warmup <= step and not actor.shuffle:
        sizes[ACTOR] = int(actor.ppo_mini_batch_size) * samples
    if has_critic and not config.critic.shuffle:
        sizes[CRITIC] = int(config.critic.ppo_mini_batch_size) * samples
    return sizes


def balance(batch: KVBatchMeta, ranks: int, sizes: dict[str, int], metrics: dict[str, Any], prefix: str) -> None:
    """Order a batch that verl has balanced by its updates, and correct verl's metrics of the result.

    `sizes` are the samples of an update of each model; if they differ, parts of which all of them consist are balanced.
    """
    if not sizes or any(size % ranks or len(batch.tags) % size for size in sizes.values()):
        return  # nothing to balance, or verl refuses the sizes (engine_workers.py:267)
    lengths = _lengths(batch)
    workloads = _workloads(lengths)
    parts = len(lengths) // math.gcd(*sizes.values())
    order = update_balance.joined(update_balance.place(workloads, ranks, parts))
    if _cost(order, ranks, sizes.values(), workloads) < _cost(range(len(order)), ranks, sizes.values(), workloads):
        batch.reorder(order)
        ends = update_balance.cut([lengths[sample] for sample in order], ranks, 1)[0]
        metrics[f"{prefix}/balanced_min"] = min(map(sum, ends))
        metrics[f"{prefix}/balanced_max"] = max(map(sum, ends))


def figures(batch: KVBatchMeta, ranks: int, size: int) -> dict[str, float]:
    """Return the metrics of updates of `size` samples in verl's own order, by verl's cost of a sample."""
    lengths = _lengths(batch)
    if size % ranks or len(lengths) % size:
        return {}
    placement = update_balance.cut(range(len(lengths)), ranks, len(lengths) // size)
    return update_metrics(placement, lengths, _workloads(lengths))


def _lengths(batch: KVBatchMeta) -> list[int]:
    return [int(tag["seq_len"]) for tag in batch.tags]


def _workloads(lengths: Sequence[int]) -> list[int]:
    found: list[int] = calculate_workload(torch.tensor(lengths, dtype=torch.int64)).tolist()
    return found


def _cost(order: Sequence[int], ranks: int, sizes: Iterable[int], workloads: Sequence[int]) -> int:
    """Return the cost of the step, summed over all models."""
    placements = [update_balance.cut(order, ranks, len(order) // size) for size in sizes]
    return sum(update_balance.times(placement, workloads).step for placement in placements)
