"""The trainer's ranks, with copies of the policy that later updates do not change.

With several updates in a step, verl computes old log-probabilities by the policy from before the first one: a rank
keeps its parameters and restores them (trainer_separate_async.py:187-211, 0.9.1). Where they are in host memory, on
CPUs or with offload.parameters, verl keeps the parameters of FSDP2 themselves instead of a copy
(utils/fsdp_utils.py:1146-1185: `detach().cpu()`): the policy from before is then that of now, and a restore undoes
updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from verl.experimental.separation.engine_workers import DetachActorWorker
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

    @property
    def copy_handler(self) -> Callable[[Any], Any]:
        """Return what keeps the parameters of a module."""
        keep: Callable[[Any], Any] = super().copy_handler
        if self.config.actor.strategy not in SHARED:
            return keep

        def keep_copy(module: Any) -> Any:  # noqa: ANN401 - torch's module, and what verl keeps of it
            # Parameters that are on their way to host memory must have arrived (utils/fsdp_utils.py:196-209).
            get_torch_device().synchronize()
            return copied(keep(module))

        return keep_copy
