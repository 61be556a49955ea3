"""The trainer's ranks, with copies of the policy that later updates do not change.

With several updates in a step, verl computes old log-probabilities by the policy from before the first one: a rank
keeps its parameters and restores them (trainer_separate_async.py:187-211, 0.9.1). Where they are in host memory, on
CPUs or with offload.parameters, verl keeps the parameters of FSDP2 themselves instead of a copy
(utils/fsdp_utils.py:1146-1185: `detach().cpu()`): the policy from before is then that of now, and a restore undoes
updates.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.device import get_torch_device

SHARED = ("fsdp2", "veomni")
"""Strategies whose parameters verl keeps by `fsdp2_sharded_save_to_cpu` (experimental/separation/engine_workers.py)."""


def copied(kept: Any) -> Any:  # noqa: ANN401 - nested containers of tensors
    """Return a copy of what verl keeps whose tensors share no memory with it."""
    if isinstance(kept, torch.Tensor):
        return kept.clone()
    if isinstance(kept, dict):
        return {name: copied(value) for name, value in kept.items()}
    if isinstance(kept, (list, tuple)):
        return type(kept)(map(copied, kept))
    return kept


class PolicyKeeper(DetachActorWorker):  # type: ignore[misc] # verl ships no types
    """A rank of the trainer."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def save_model_to_cpu(self, n: int) -> None:
        """Keep a copy of the parameters, under a number."""
        # Parameters that are on their way to host memory must have arrived (utils/fsdp_utils.py:196-209).
        get_torch_device().synchronize()
        super().save_model_to_cpu(n)
        if self.config.actor.strategy in SHARED:
            self.cpu_saved_models[n] = copied(self.cpu_saved_models[n])
