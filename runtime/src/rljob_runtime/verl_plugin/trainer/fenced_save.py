"""Fence verl's `_save_checkpoint` (0.9.1): before its mark `data.pt`, and instead of its tracker.

verl saves the models, requests the dataloader's state, writes `data.pt` and then the tracker, with a plain open. A
driver that is paused at any point in between must not publish when it resumes. During a save, verl therefore uses our
dataloader and is informed that the save is asynchronous: then it does not write the tracker but calls its checkpoint
callback. That callback is ours, which writes the tracker atomically if this attempt still owns the folder.

verl's workers open their files by name, one after the other, without any check. An attempt therefore saves in a
folder of its own (`default_local_dir` during the save), which is renamed to the step's final name when it is complete.

verl's own checkpoint retention is disabled: its workers delete an old step while they save the new one, long before the
new one is complete, and each process of verl knows only the steps that it saved itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime.checkpoints import data_identity, parallelism, saved_steps
from rljob_runtime.checkpoints.prompt_ledger import LedgerMismatchError
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.trainer import background_save

if TYPE_CHECKING:
    from omegaconf import DictConfig


def take_limit(config: DictConfig) -> int | None:
    """Return the configured number of checkpoints to keep and disable verl's own retention; None keeps all."""
    trainer = config.trainer
    keep: int | None = trainer.max_actor_ckpt_to_keep
    if trainer.get("remove_previous_ckpt_in_save"):
        # verl's older form of the same setting (trainer_base.py, _save_checkpoint, 0.9.1).
        keep, trainer.remove_previous_ckpt_in_save = 1, False
    trainer.max_actor_ckpt_to_keep = trainer.max_critic_ckpt_to_keep = None
    return keep


class FencedState:
    """Replaces the dataloader while verl saves. `data.pt` contains its state."""

    def __init__(self, dataloader: Any, run: TrainingAttempt, made: Path | None) -> None:  # noqa: ANN401 - torchdata's, or alike
        self._dataloader = dataloader
        self._run = run
        self._made = made

    def state_dict(self) -> Any:  # noqa: ANN401 - torchdata's
        """Return the state if the attempt may still write. What the step was is noted before the mark."""
        state = self._dataloader.state_dict()
        if self._made is not None:
            parallelism.note(self._made, self._run.split, self._run.check_owner)
            data_identity.note(self._made, self._run.data, self._run.check_owner)
        self._run.check_owner()
        return state


class Publisher:
    """Wraps the checkpoint callback that the job configured."""

    def __init__(self, inner: Any, run: TrainingAttempt, seal: Callable[[Path], None] = lambda _: None) -> None:  # noqa: ANN401 - verl's CheckpointCallback
        """Publish steps; `seal` completes the folder of one before it gets its name."""
        self._inner = inner
        self._run = run
        self._seal = seal
        self._publishes = self._behind = False
        self.deferred: Path | None = None
        """Folder of a step that is to be published later, once its callback was called."""

    @contextmanager
    def publishes(self, config: DictConfig, *, behind: bool = False) -> Iterator[Path | None]:
        """Yield the folder for one save, and take over the tracker; None if the job keeps no checkpoints.

        `behind`: the ranks write while the run continues, and `publish` follows when they have. A save that is
        asynchronous in verl is left alone: a worker writes the tracker later and supports no other folder.
        """
        settings, place = config.actor_rollout_ref.actor.checkpoint, self._run.new_place()
        if place is None or settings.async_save:
            yield self._run.checkpoint_folder
            return
        before = config.trainer.default_local_dir
        self._publishes, self._behind = True, behind
        if behind:
            background_save.request(place)
        settings.async_save, config.trainer.default_local_dir = True, str(place)
        try:
            yield place
        except LedgerMismatchError:
            saved_steps.discard(place)
            raise
        finally:
            settings.async_save, config.trainer.default_local_dir = False, before
            self._publishes = self._behind = False

    def publish(self, step: int, made: Path) -> Path:
        """Give a step its name. Raises FencedError if the folder has another owner."""
        return self._run.publish(step, made)

    def tell(self, trainer: Any, step: int) -> None:  # noqa: ANN401 - verl's
        """Call the job's own callback for a step that was published behind verl's back."""
        folder = saved_steps.step_folder(self._run.checkpoint_folder or Path(), step)
        self._inner.on_save(trainer=trainer, global_step=step, checkpoint_dir=str(folder), async_save=False)

    def on_save(
        self,
        trainer: Any,  # noqa: ANN401 - verl's
        global_step: int,
        checkpoint_dir: str,
        async_save: bool = False,  # noqa: FBT001, FBT002 - verl's
        **options: Any,  # noqa: ANN401 - verl's
    ) -> None:
        """Publish the step, then call the job's own callback as verl would have done."""
        if self._publishes:
            self._seal(made := Path(checkpoint_dir))
            if self._behind:
                self.deferred = made
                return
            checkpoint_dir, async_save = str(self.publish(global_step, made)), False
        self._inner.on_save(
            trainer=trainer, global_step=global_step, checkpoint_dir=checkpoint_dir, async_save=async_save, **options
        )
