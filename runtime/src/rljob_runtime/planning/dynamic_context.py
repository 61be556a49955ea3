"""The setting that changes the size of context-parallel groups from one micro-batch to the next.

Validation refuses it with this text, because the pinned Megatron-Core cannot do it.
"""

from __future__ import annotations

SETTING = "dynamic_context_parallel"
"""verl's key below a `megatron` section, and the parameter of `initialize_model_parallel` that it asks for (verl 0.9.1,
verl/workers/engine/megatron/transformer_impl.py:261)."""
NEEDS = (
    "a Megatron-Core that contains NVIDIA/Megatron-LM#5154 (merge commit d2e7ec5b of its dev branch); the pinned "
    "0.16 does not, nor does any release on PyPI up to 0.16.1"
)
"""The change that verl 0.9.1 names (verl/utils/dynamic_cp_scheduler.py:38)."""
