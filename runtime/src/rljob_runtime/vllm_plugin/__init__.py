"""The entry point of group `vllm.general_plugins`: vLLM calls `register` in each of its processes.

Each is to tell its stacks when a run hangs; engine processes are vLLM's own children and no workers of Ray.

On CPUs two things more. vLLM packs a linear layer's weight for oneDNN after loading and drops the original, so that the
weights of the next step find nothing to load into. Keeping the original is the whole fix: verl calls
`process_weights_after_loading` after each update, and that packs again. It costs a second copy of the linear weights.
And its workers spin for a second after each message, which takes the cores that others compute on; they sleep at once.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from rljob_runtime.stacks import register as stack_register

MARK = "_rljob"


def register() -> None:
    """Let the process tell its stacks; keep weights reloadable on CPUs. vLLM may call this more than once."""
    stack_register.register()
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    _keep_weights()
    _sleep_between_messages()


def _keep_weights() -> None:
    from vllm.model_executor.layers import utils

    original = utils.dispatch_cpu_unquantized_gemm
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["layer", "remove_weight"]:
        raise TypeError(f"vllm's dispatch_cpu_unquantized_gemm takes {found}, expected layer and remove_weight")

    @functools.wraps(original)
    def keep_weight(layer: Any, remove_weight: bool) -> None:  # noqa: ANN401, FBT001, ARG001 - vLLM's signature
        original(layer, remove_weight=False)

    setattr(keep_weight, MARK, True)
    utils.dispatch_cpu_unquantized_gemm = keep_weight


def _sleep_between_messages() -> None:
    """Let readers of vLLM's message queue (shm_broadcast.py, 0.23.0) wait for the ping that ends their idle mode."""
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    found = list(inspect.signature(SpinCondition.__init__).parameters)
    if found != ["self", "is_reader", "context", "notify_address", "busy_loop_s"]:
        raise TypeError(f"vllm's SpinCondition takes {found}, expected busy_loop_s last")
    SpinCondition.__init__.__defaults__ = (0,)
