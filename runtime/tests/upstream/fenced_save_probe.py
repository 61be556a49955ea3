"""verl's `_save_checkpoint` under our fence, in this process or in one of its own: `ROOT PLACE`.

The trainer is verl's with our overrides. Only its worker group, replicas and dataloader, which need devices, are
replaced by small ones. A process of its own prints PLACE when it gets there, and waits for the file ROOT/go.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

from rljob_runtime.checkpoints import claims
from rljob_runtime.checkpoints.parallelism import SIZES
from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE
from rljob_runtime.contract import (
    CONTRACT_VERSION,
    JobConfig,
    Phase,
    Platform,
    Progress,
    RuleCondition,
    StopMode,
    StopRule,
)
from rljob_runtime.outcomes import FencedError, StartGoneError
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.stop_rules import StopRules
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.trainer import fenced_save
from rljob_runtime.verl_plugin.trainer.sync_trainer import SyncTrainer
from rljob_runtime.verl_plugin.trainer.trainer import StepAbandonedError

FIRST = 4
"""The step that is saved first."""


def say(*words: object) -> None:
    """Print what happened."""
    print(*words, flush=True)


class Workers:
    """The actor's worker group, which saves and loads a folder."""

    remove_previous_save_local_path = BaseCheckpointManager.remove_previous_save_local_path

    def __init__(self, pauses: Pauses) -> None:
        self.previous_saved_paths: list[str] = []
        self._pauses = pauses

    def execute_all_async(self, method: str, *_: object, **__: object) -> None:
        raise AssertionError(f"{method} on ranks that do not exist")

    def load_checkpoint(self, local_path: str, del_local_after_load: bool) -> None:  # noqa: ARG002 - verl's names
        (Path(local_path).parent / "data.pt").unlink()

    def save_checkpoint(
        self,
        local_path: str,
        remote_path: str | None,  # noqa: ARG002 - verl's name
        global_step: int,
        max_ckpt_to_keep: int | None = None,
    ) -> None:
        BaseCheckpointManager.ensure_checkpoint_capacity(self, max_ckpt_to_keep)
        Path(local_path).mkdir(parents=True)
        BaseCheckpointManager.register_checkpoint(self, local_path, max_ckpt_to_keep)
        self._pauses.at("saving")
        self._pauses.at(f"saving-{global_step}")


class Callback:
    """The job's own callback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_save(self, trainer: object, global_step: int, checkpoint_dir: str, async_save: bool, **_: object) -> None:
        del trainer
        file = self._folder / TRACKER_FILE
        tracker = file.read_text() if file.exists() else None
        say(
            "told", global_step, checkpoint_dir == str(self._folder / f"global_step_{global_step}"), async_save, tracker
        )


class Pauses:
    """Waits at one place until a file exists."""

    def __init__(self, place: str, go: Path) -> None:
        self._place, self._go = place, go

    def at(self, here: str) -> None:
        if here == self._place:
            say(here)
            while not self._go.exists():
                time.sleep(0.001)


class Data:
    """The dataloader, whose state is the mark of a whole step."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses

    def state_dict(self) -> dict[str, int]:
        self._pauses.at("before-mark")
        return {"place": 7}

    def load_state_dict(self, state: dict[str, int]) -> None:
        say("loaded", state)


class Replicas:
    """The checkpoint manager of the rollout."""

    def abort_replicas(self) -> None:
        say("aborted")

    def sleep_replicas(self) -> None:
        say("asleep")


def trainer_of(
    root: Path,
    place: str = "",
    *,
    asynchronous: bool = False,
    strategy: str = "fsdp2",
    step: int = FIRST,
    kind: Any = SyncTrainer,
) -> Any:
    """Return a trainer that has claimed ROOT/checkpoints and is about to save a step."""
    folder, spool, pauses = root / "checkpoints", Spool(root / "spool"), Pauses(place, root / "go")
    job = JobConfig(
        CONTRACT_VERSION,
        "team-a",
        "sums",
        "uid-1",
        "sums-uid01-1",
        1,
        Platform.CPU,
        1,
        2,
        2,
        40,
        {},
        checkpoint_path=str(folder),
    )
    claims.claim(folder, claims.Owner.of(job, 1))
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1))
    actor = {
        "checkpoint": {"async_save": asynchronous},
        "strategy": strategy,
        "megatron": dict.fromkeys(SIZES, 2),
    }
    settings = {
        "default_local_dir": str(folder),
        "default_hdfs_dir": None,
        "v1": {"trainer_mode": "rljob_sync"},
        "max_actor_ckpt_to_keep": 1,
        "max_critic_ckpt_to_keep": 1,
        "del_local_ckpt_after_load": False,
        "resume_mode": "resume_path",
        "resume_from_path": str(folder / f"global_step_{FIRST}"),
    }
    trainer: Any = kind.__new__(kind)
    trainer._run = TrainingAttempt(job, 1, spool)
    trainer.config = OmegaConf.create(
        {
            "trainer": settings,
            "algorithm": {"adv_estimator": "grpo"},
            "data": {"filter_overlong_prompts": True},
            "actor_rollout_ref": {"actor": actor},
        }
    )
    OmegaConf.set_struct(trainer.config, True)
    trainer._take_over(trainer.config)
    trainer._nan = None
    trainer.trainer_mode, trainer.use_critic, trainer.global_steps = kind.VERL_MODE, False, step
    trainer.actor_rollout_wg, trainer.train_dataloader = Workers(pauses), Data(pauses)
    trainer._publisher = trainer.checkpoint_callback = fenced_save.Publisher(
        Callback(folder), trainer._run, trainer._seal
    )
    return trainer


def save(trainer: Any, *more: int) -> None:
    """Save the step, and more of them."""
    try:
        trainer._save_checkpoint()
        say("saved", trainer.config.actor_rollout_ref.actor.checkpoint.async_save)
        for step in more:
            trainer.global_steps = step
            trainer._save_checkpoint()
    except FencedError:
        say("fenced")


def give_up(trainer: Any, *, begun: bool, rollout: bool) -> None:
    """Stop in a rollout, or at the begin of a step before which one was trained in this attempt or not."""
    trainer.checkpoint_manager, trainer._data_before = Replicas(), {"place": 6}
    trainer.abandoned_step = None
    if begun:
        trainer._run.step_began()
    if rollout:
        trainer._abandon_rollout()
    else:
        trainer._run.request_stop(StopMode.AFTER_STEP)
        try:
            trainer.on_step_begin()
        except StepAbandonedError:
            say("left")
    data = Path(trainer.config.trainer.default_local_dir) / f"global_step_{trainer.global_steps}" / "data.pt"
    place = torch.load(data, weights_only=False)["place"] if data.exists() else None
    say("given-up", trainer.abandoned_step, trainer.stopped_by, trainer.global_steps, place)


def reach_target(trainer: Any) -> None:
    """Let a stop rule match twice after the same step."""
    trainer.checkpoint_manager = Replicas()
    rule = StopRule("target", "critic/score/mean", RuleCondition.ABOVE, threshold=0.9)
    for _ in range(2):
        trainer._rules, trainer.total_training_steps, trainer._awake = StopRules([rule]), 40, True
        trainer._apply_stop_rules(FIRST, {"critic/score/mean": 0.95})
        say("matched", trainer.matched.step, trainer.total_training_steps)


def diverge(trainer: Any) -> None:
    """Train two steps, each with a gradient that is not a number. The caller replaces verl's step."""
    rule = StopRule("nan", "actor/grad_norm", RuleCondition.IS_NAN, for_steps=2)
    trainer._rules, trainer.total_training_steps = StopRules([rule]), 40
    for step in (FIRST, FIRST + 2):
        trainer.global_steps = step
        metrics: dict[str, float] = {}
        trainer.step(metrics, {})
        trainer._save_checkpoint()
        trainer._apply_stop_rules(step, metrics)
    say("matched", trainer.matched.step, trainer.total_training_steps)


def load(trainer: Any) -> None:
    """Save a step and load it, while it disappears."""
    trainer._save_checkpoint()
    try:
        trainer._load_checkpoint()
    except StartGoneError as error:
        say("told", error)


if __name__ == "__main__":
    # Each line: the folder of a save, and the place where it pauses.
    for line in sys.stdin:
        where, here = line.split()
        save(trainer_of(Path(where), here), FIRST + 2)
        say("done")
