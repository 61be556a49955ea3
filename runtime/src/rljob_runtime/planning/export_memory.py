"""Memory of a process that converts FSDP's shards with verl's model_merger.

It holds rank 0's shard twice and all shards once in float32, then every tensor in bfloat16
(verl/model_merger/fsdp_model_merger.py, merge_and_save and _load_and_merge_state_dicts, 0.9.1).
"""

from __future__ import annotations

from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import BF16, FP32, Cut, model_elements

PROCESS_BYTES = 2 << 30
"""Python with torch, transformers and verl: 0.8 GB measured on CPUs, and buffers of the writer."""


def conversion_bytes(shape: Shape, ranks: int) -> int:
    """Return what the conversion of a model needs at most, trained on this many ranks."""
    parameters = int(model_elements(shape, Cut()).total)
    return PROCESS_BYTES + parameters * (FP32 + BF16) + -(-parameters * FP32 // ranks)


def conversion_bytes_of_checkpoint(total: int) -> int:
    """Return a bound by the size of a checkpoint.

    One with optimizer has twelve bytes a parameter, and the conversion needs ten; without, the shards count twice.
    """
    return PROCESS_BYTES + total
