"""Compile MindSpeed's operators into TORCH_EXTENSIONS_DIR, while the image is built.

PyTorch compiles such extensions at their first use, under one lock: at the start of a job every rank of a node would
wait for it. The list contains the operators of the recipes' options (use_fused_rotary_pos_emb,
use_fused_ring_attention_update, moe_grouped_gemm, the fused optimizer, gemm_gradient_accumulation_fusion). Needs CANN
but no NPU. Run it with the image's own Python.
"""

from __future__ import annotations

import importlib
import sys

OPERATORS = (
    "RotaryPositionEmbeddingOpBuilder",
    "RingAttentionUpdateOpBuilder",
    "GMMOpBuilder",
    "GMMV2OpBuilder",
    "FusedAdamWV2OpBuilder",
    "MatmulAddOpBuilder",
    "GroupMatmulAddOpBuilder",
)
"""Classes of MindSpeed's op_builder. A test checks that they exist in its sources."""


def module_of(name: str) -> str:
    """Return the module that defines an operator's builder."""
    places = {"FusedAdamWV2OpBuilder": "mindspeed.op_builder.fused_adamw_v2_builder"}
    return places.get(name, "mindspeed.op_builder")


def main() -> None:
    """Compile the operators one by one. The first failure ends the build."""
    for name in OPERATORS:
        sys.stdout.write(f"operators: {name}\n")
        sys.stdout.flush()
        builder = getattr(importlib.import_module(module_of(name)), name)
        builder().load(verbose=False)


if __name__ == "__main__":
    main()
