"""The entry point of group `vllm.general_plugins`: vLLM calls `register` in each of its processes.

Each is to tell its stacks when a run hangs; engine processes are vLLM's own children and no workers of Ray.

On CPUs, vLLM packs a linear layer's weight for oneDNN after loading and drops the original, so that the weights of the
next step find nothing to load into. Keeping the original is the whole fix: verl calls `process_weights_after_loading`
after each update, and that packs again. It costs a second copy of the linear weights.
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
