"""Our trainer of the asynchronous modes: prompts are in flight across steps.

What a checkpoint must hold for this is verl's queue and the ledger of prompts (prompt_flow.py). A step that is
abandoned loses nothing: the weights are those of the step before, and its prompts stay in flight. Each fetch is counted
from then on, so the data's position is always that of now.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transfer_queue as tq
from verl.utils import tensordict_utils

from rljob_runtime.checkpoints import prompt_ledger, saved_steps
from rljob_runtime.checkpoints.prompt_ledger import LedgerMismatchError, prompts_to_add
from rljob_runtime.spool.step_metrics import RolloutWindow
from rljob_runtime.verl_plugin.trainer.prompt_flow import TRAINING, PromptFlow
from rljob_runtime.verl_plugin.trainer.prompt_loader import PromptLoader
from rljob_runtime.verl_plugin.trainer.trainer import RLJobTrainer

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tensordict import TensorDict
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta, ReplayBuffer


NOT_SAVED = "steps are not saved, because their prompts do not add up; the driver's log says what differs"


class TooManyFailuresError(RuntimeError):
    """More prompts failed in a step than it trains: each is replaced, so that the data would run through."""


class AsyncSteps(RLJobTrainer):
    """Our trainer for steps between which prompts stay in flight."""

    def __init__(self, config: DictConfig) -> None:
        self._loader: PromptLoader | None = None
        super().__init__(config)

    @property
    def _window_prompts(self) -> int:
        """Prompts that are in flight between steps: verl's window in front of a step's batch, in whole prompts."""
        section = self.config.trainer.v1[self.VERL_MODE]
        return math.floor(float(section.num_warmup_batches) * self._batch_prompts)

    @property
    def _batch_prompts(self) -> int:
        return int(self.config.data.train_batch_size)

    def _most_requests(self) -> int:
        """Return the most requests at once: all prompts in flight and those of a validation beside them."""
        rollout = self.config.actor_rollout_ref.rollout
        in_flight = (self._window_prompts + self._batch_prompts) * int(rollout.n)
        return in_flight + len(self.val_dataset) * int(rollout.val_kwargs.n)

    # The prompts.

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = super()._build_replay_buffer()
        self._flow = PromptFlow(self._resubmit, self._discarded)
        self._flow.watch(buffer)
        return buffer

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self._loader = self.train_dataloader = PromptLoader(self.train_dataloader, self._run.note)

    @property
    def _drawn(self) -> int:
        """Return how many prompts were fetched. While verl saves, `train_dataloader` is another object."""
        return 0 if self._loader is None else self._loader.drawn

    def _fetch_one_gen_batch(self) -> TensorDict:
        batch, loader = super()._fetch_one_gen_batch(), self.train_dataloader
        self._flow.fetched(batch["uid"], loader.epoch, loader.take_rows(batch))
        return batch

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0 and prompt_ledger.has_ledger(step := Path(self.config.trainer.resume_from_path)):
            self._flow.resume(step, self._drawn)

    def on_step_begin(self) -> None:
        """Begin the step's counts."""
        self._flow.begin_step()
        super().on_step_begin()

    def prepare_step(self) -> dict[str, Any]:
        """Fetch what the window and the batch lack, where verl fetches a batch."""
        wanted = self._window_prompts + self._batch_prompts
        count = prompts_to_add(wanted, len(self._flow.ledger.in_flight))
        if count == self._batch_prompts:
            prepared: dict[str, Any] = super().prepare_step()
            return prepared
        if count > 0:
            self._add_prompts_to_generate(count)
        return {}

    def _resubmit(self, uids: Sequence[str]) -> None:
        """Send prompts again, as verl does after a resume (_reissue_inflight_prompts)."""
        batch = tq.kv_batch_get(keys=list(uids), partition_id=TRAINING)
        tensordict_utils.assign_non_tensor(batch, global_steps=self.global_steps)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self.global_steps} for _ in uids]
        tq.kv_batch_put(keys=list(uids), partition_id=TRAINING, tags=tags)
        self.agent_loop_manager.generate_sequences(batch)

    def _abandon_if_stopped(self, partition_id: str) -> None:
        super()._abandon_if_stopped(partition_id)
        if partition_id == TRAINING and (lost := self._flow.lost) > self._batch_prompts:
            raise TooManyFailuresError(
                f"{lost} prompts failed in step {self.global_steps}, each several times, and a step trains "
                f"{self._batch_prompts}"
            )

    def _loss_of(self, failure: str) -> str:
        return f"prompts are tried again, because their rollout or reward raised {failure}"

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Train one step, and note what it trained."""
        batch = super().step(metrics, timing_raw)
        self._flow.trained(batch.keys)
        return batch

    # Saves and stops.

    def _sleep(self) -> None:
        """End the requests in flight, which would otherwise run in engines without weights."""
        self._abort_requests()
        super()._sleep()

    def _save_step_before(self) -> None:
        """Save step k-1 with the prompts of now, also if it is saved and responses have ended since then."""
        if self._save_is_due() or (self._may_save_again() and self._flow.has_news()):
            self._save_checkpoint()

    def _may_save_again(self) -> bool:
        """Return whether another step is left if the process is killed while one takes the place of the last."""
        folder = self._run.checkpoint_folder
        return folder is not None and len(saved_steps.complete_steps(folder)) > 1

    def _prepare_save(self) -> None:
        """Make room for the step. One that is saved again stays until its successor is complete."""
        if self._save_is_due():
            super()._prepare_save()
        else:
            self._run.check_owner()

    def _seal(self, made: Path) -> None:
        self._flow.seal(made, self._drawn)

    def _save_checkpoint(self) -> None:
        """Save, unless the prompts do not add up: then the run continues, and resumes from an earlier step."""
        try:
            super()._save_checkpoint()
        except LedgerMismatchError as error:
            text = f"rljob: step {self.global_steps} is not saved: its prompts do not add up: {error}"
            print(text, file=sys.stderr, flush=True)  # noqa: T201
            self._run.note(NOT_SAVED)

    # Metrics.

    def _take_window(self) -> RolloutWindow:
        """Return no times: replicas generate across steps, so that a step has no rollout that begins and ends.

        The router's are read nevertheless, because it keeps them until then.
        """
        super()._take_window()
        return RolloutWindow()

    def _figures_of_mode(self, batch: KVBatchMeta) -> dict[str, float]:
        return self._flow.figures(batch, self.global_steps, self._drawn)

    def _judged(self, step: int, metrics: dict[str, float]) -> dict[str, float]:
        """Leave out the first steps, except for what is NaN: they train the prompts with the shortest responses."""
        if step > math.ceil(self._window_prompts / self._batch_prompts):
            return metrics
        return {name: value for name, value in metrics.items() if math.isnan(value)}
