"""The trainer of mode Sync: what a step trains was generated in the same step.

A step that is abandoned has drawn prompts for nothing, so the data's position is saved from before it. ReMax has a
greedy response to each prompt, which is collected while the replicas are awake; see remax_baselines.py.
"""

from __future__ import annotations

import contextlib
import functools
import types
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray
import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils

from rljob_runtime.contract import TrainerMode
from rljob_runtime.launcher_overrides import TRAINERS
from rljob_runtime.verl_plugin.trainer import background_save, prompt_loader, remax_baselines
from rljob_runtime.verl_plugin.trainer.trainer import RLJobTrainer

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tensordict import TensorDict
    from verl.experimental.agent_loop import AgentLoopManager

SETTLE_SECONDS = 30.0
"""Wait for a save after an error of the run."""


class SyncSteps(RLJobTrainer):
    """Our trainer for steps that end with an empty queue."""

    VERL_MODE = "sync"
    _pending: background_save.PendingSave | None = None
    _copies: bool | None = None
    """Whether the ranks can copy what they save; None until the first save asks them."""

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
        """Record the data's position before this step's prompts are drawn, and a save that is complete by now."""
        self._settle(0.0)
        self._data_before = self.train_dataloader.state_dict()
        super().on_step_begin()

    # A save whose ranks write while the run continues.

    def _writes_behind(self) -> bool:
        """Return whether they do so: not for the last step, and not when the run stops, which would wait for them."""
        if not self._run.job.background_saves or self._run.checkpoint_folder is None:
            return False
        ends = self.global_steps >= self.total_training_steps or self._run.stop_mode() is not None
        if not ends and self._copies is None:
            self._copies = all(ray.get(self._in_ranks(background_save.install_in_rank)))
        return not ends and bool(self._copies)

    def _abandon_if_stopped(self, partition_id: str) -> None:
        """Report a save that has become complete during the rollout."""
        self._settle(0.0)
        super()._abandon_if_stopped(partition_id)

    def _in_ranks(self, function: Callable[[object], Any]) -> list[Any]:
        # A critic's ranks are those of the actor.
        return [rank.__ray_call__.remote(function) for rank in self.actor_rollout_wg.workers]

    def _prepare_save(self) -> None:
        """Let the save before end first: two never overlap."""
        self._settle(None)
        super()._prepare_save()

    def _save_is_due(self) -> bool:
        self._settle(None)
        return super()._save_is_due()

    def _finish_save(self, begun: float) -> None:
        """Leave a save to the ranks that write it, or report it."""
        made, self._publisher.deferred = self._publisher.deferred, None
        if made is None:
            super()._finish_save(begun)
            return
        names = [name for found in ray.get(self._in_ranks(background_save.begun_in_rank)) for name in found]
        publish = functools.partial(self._publisher.publish, self.global_steps, made)
        self._run.saves_behind(self.global_steps)
        self._pending = background_save.PendingSave(self.global_steps, made, names, publish, begun)

    def _settle(self, timeout: float | None) -> None:
        """Report the save that the ranks were writing, if it is complete. Raises what kept it from that."""
        if (pending := self._pending) is not None and pending.settled(timeout):
            self._pending = None
            self._publisher.tell(self, pending.step)
            self._interval.written(pending.seconds)
            self._run.saved(pending.step, pending.seconds, pending.completed)

    def _fit(self, agent_loop_manager: AgentLoopManager) -> None:
        try:
            super()._fit(agent_loop_manager)
        except BaseException:
            # The ranks may still complete it, as long as they live.
            with contextlib.suppress(Exception):
                self._settle(SETTLE_SECONDS)
            raise
        self._settle(None)

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
