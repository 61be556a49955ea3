"""The entry point of group `vllm.general_plugins`: vLLM calls `register` in each of its processes.

On CPUs, vLLM packs a linear layer's weight for oneDNN after loading and drops the original, so that the weights of the
next step find nothing to load into. Keeping the original is the whole fix: verl calls `process_weights_after_loading`
after each update, and that packs again. It costs a second copy of the linear weights.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

MARK = "_rljob"


def register() -> None:
    """Keep weights reloadable on CPUs; do nothing elsewhere. vLLM may call this more than once."""
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
