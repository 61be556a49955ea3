"""The trainer of mode Sync: what a step trains was generated in the same step.

A step that is abandoned has drawn prompts for nothing, so the data's position is saved from before it. ReMax has a
greedy response to each prompt, which is collected while the replicas are awake; see remax_baselines.py.
"""

from __future__ import annotations

import types
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils

from rljob_runtime.contract import TrainerMode
from rljob_runtime.launcher_overrides import TRAINERS
from rljob_runtime.verl_plugin.trainer import prompt_loader, remax_baselines
from rljob_runtime.verl_plugin.trainer.trainer import RLJobTrainer

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tensordict import TensorDict


class SyncSteps(RLJobTrainer):
    """Our trainer for steps that end with an empty queue."""

    VERL_MODE = "sync"

    def __init__(self, config: DictConfig) -> None:
        self._data_before: dict[str, Any] = {}
        self._baseline_of: dict[str, str] = {}
        super().__init__(config)

    def _take_over(self, config: DictConfig) -> None:
        self._greedy_baselines = config.algorithm.adv_estimator == remax_baselines.REMAX
        if self._greedy_baselines:
            with open_dict(config):
                config.algorithm.adv_estimator = remax_baselines.ESTIMATOR
        super()._take_over(config)

    def _load_place(self, load: Callable[[dict[str, Any]], None], state: dict[str, Any]) -> None:
        """Leave out the place in the data of a step with prompts in flight: it counts prompts, not batches."""
        if prompt_loader.STATE in state:
            self._run.note(prompt_loader.BEGINS_AGAIN)
        else:
            super()._load_place(load, state)

    def on_step_begin(self) -> None:
        """Record the data's position before this step's prompts are drawn."""
        self._data_before = self.train_dataloader.state_dict()
        super().on_step_begin()

    def _save_step_before(self) -> None:
        """Save step k-1. The next attempt must draw step k's prompts again."""
        dataloader = self.train_dataloader
        self.train_dataloader = types.SimpleNamespace(state_dict=lambda: self._data_before)
        try:
            super()._save_step_before()
        finally:
            self.train_dataloader = dataloader

    # ReMax: each prompt again, sampled greedily.

    def _waits_for_a_rollout(self, partition_id: str) -> bool:
        return super()._waits_for_a_rollout(partition_id) or bool(self._baseline_of)

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        count: int = super()._submit_batch_to_rollout(batch)
        if self._greedy_baselines:
            self._submit_baselines(batch.clone(recurse=False))
        return count

    def _submit_baselines(self, batch: TensorDict) -> None:
        names = [str(uuid.uuid4()) for _ in range(len(batch))]
        self._baseline_of |= dict(zip(names, [str(uid) for uid in batch["uid"]], strict=True))
        tensordict_utils.assign_non_tensor_stack(batch, "uid", names)
        tensordict_utils.assign_non_tensor(batch, validate=True)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.global_steps} for _ in names]
        tq.kv_batch_put(keys=names, partition_id="val", tags=tags)
        self.agent_loop_manager.generate_sequences(batch)

    def on_sample_end(self) -> None:
        """Collect the baselines while the replicas are still awake."""
        if self._baseline_of:
            self._collect_baselines()
        super().on_sample_end()

    def _collect_baselines(self) -> None:
        count = len(self._baseline_of)
        batch, _ = self.replay_buffer.sample(global_steps=self.global_steps, partition_id="val", batch_size=count)
        data = tq.kv_batch_get(keys=batch.keys, partition_id="val", select_fields=["uid", "rm_scores"])
        scores: dict[str, list[float]] = {}
        for name, score in zip(data["uid"], data["rm_scores"], strict=True):
            scores.setdefault(self._baseline_of[str(name)], []).append(float(score.sum()))
        remax_baselines.set_scores({uid: sum(values) / len(values) for uid, values in scores.items()})
        self._discarded.add(batch.tags)
        tq.kv_clear(keys=batch.keys, partition_id="val")
        self._baseline_of.clear()


@register_trainer(TRAINERS[TrainerMode.SYNC])
class SyncTrainer(SyncSteps, PPOTrainerSync):  # type: ignore[misc] # verl ships no types
    """verl's synchronous trainer with ours before it."""
