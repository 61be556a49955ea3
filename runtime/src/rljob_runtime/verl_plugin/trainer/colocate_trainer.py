"""The trainer of mode ColocateAsync: prompts are in flight across steps, and pause while the devices train."""

from __future__ import annotations

from verl.trainer.ppo.v1 import PPOTrainerColocateAsync, register_trainer

from rljob_runtime.contract import TrainerMode
from rljob_runtime.launcher_overrides import TRAINERS
from rljob_runtime.verl_plugin.trainer.async_steps import AsyncSteps


@register_trainer(TRAINERS[TrainerMode.COLOCATE_ASYNC])
class ColocateAsyncTrainer(AsyncSteps, PPOTrainerColocateAsync):  # type: ignore[misc] # verl ships no types
    """verl's trainer of the mode with ours before it."""

    VERL_MODE = "colocate_async"
