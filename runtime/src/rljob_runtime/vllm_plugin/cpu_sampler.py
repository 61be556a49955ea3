"""Replace two kernels of vLLM's rejection sampler that are wrong on CPUs, so that drafts keep the distribution.

vLLM 0.23.0 replaces the sampler's Triton kernels on CPUs (utils/cpu_triton_utils.py). Two of the replacements differ
from the kernels that they stand for (v1/sample/rejection_sampler.py):

- `sample_recovered_tokens_kernel` (:293) lacks the parameter USE_FP64_GUMBEL, which the sampler passes (:708), so that
  the first drafted token of a request with a temperature ends the engine.
- `expand_kernel` (:276) converts its operands to int64. It is also called with the temperatures and with top-p, which
  are floats: they are rounded, the results are written into a copy, and the caller reads uninitialised memory.

The runner takes the kernels from the module when it is created, after plug-ins have been loaded.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

MARK = "_rljob"
EXPAND = ["output", "input_val", "cu_num_tokens", "replace_from", "replace_to", "MAX_NUM_TOKENS"]
RECOVER = [
    *("output_token_ids", "cu_num_draft_tokens", "draft_token_ids", "draft_probs", "target_probs", "inv_q"),
    *("vocab_size", "BLOCK_SIZE", "NO_DRAFT_PROBS"),
]


def install() -> None:
    """Replace them, once per process. Raises TypeError if vLLM's have other parameters."""
    from vllm.utils import cpu_triton_utils as kernels

    if hasattr(kernels, MARK):
        return
    expand, recover = kernels.expand_kernel, kernels.sample_recovered_tokens_kernel
    _require(expand.func, EXPAND)
    _require(recover.func, RECOVER)
    kernels.expand_kernel = type(expand)(expand_to_tokens)
    kernels.sample_recovered_tokens_kernel = type(recover)(without_double_precision(recover.func))
    setattr(kernels, MARK, True)


def _require(function: Any, expected: list[str]) -> None:  # noqa: ANN401 - vLLM ships no types
    found = list(inspect.signature(function).parameters)
    if found != expected:
        raise TypeError(f"vLLM's {function.__name__} on CPUs has the parameters {found}, expected {expected}")


def expand_to_tokens(
    output: Any,  # noqa: ANN401 - a tensor
    input_val: Any,  # noqa: ANN401
    cu_num_tokens: Any,  # noqa: ANN401
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803, ARG001 - the kernel's parameters
) -> None:
    """Write the value of each request, [batch], to each of its tokens, [tokens]; `cu_num_tokens` are their ends."""
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1)).long()
    values = torch.where(input_val == replace_from, torch.full_like(input_val, replace_to), input_val)
    output.copy_(torch.repeat_interleave(values, counts))


def without_double_precision(original: Any) -> Any:  # noqa: ANN401 - vLLM ships no types
    """Return the kernel with the parameter that it lacks. The C++ code reads the noise as float32."""

    @functools.wraps(original)
    def sample_recovered_tokens(*arguments: Any, USE_FP64_GUMBEL: bool = False, **options: Any) -> None:  # noqa: ANN401, N803
        if USE_FP64_GUMBEL:
            raise NotImplementedError("vLLM's sampler on CPUs has no double precision; set use_fp64_gumbel to false")
        original(*arguments, **options)

    return sample_recovered_tokens
