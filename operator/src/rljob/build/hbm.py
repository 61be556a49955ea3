"""Memory of a die by accelerator class: what npu-smi shows, and what the driver leaves to processes.

65,536 MB a die on A3 and on A2: the tables of npu-smi in vllm-ascend issues 2035 (A3) and 7123 (A2); nodes of A2 with
32 GB exist (label mind-cluster/npu-chip-memory=32G) and are not this class. What torch_npu can allocate stands in its
errors: 61.27 GiB on A3 (sglang issue 29838), 60.97 GiB on A2 (vllm-ascend issue 19).
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob.api.v1alpha1 import AcceleratorClass

GIB = 1 << 30


@dataclass(frozen=True)
class DieMemory:
    """One row."""

    total_bytes: int
    visible_bytes: int
    """Without what the driver keeps."""


HBM: dict[AcceleratorClass, DieMemory] = {
    AcceleratorClass.ATLAS_A3_SUPERPOD: DieMemory(64 * GIB, int(61.27 * GIB)),
    AcceleratorClass.ATLAS_A2: DieMemory(64 * GIB, int(60.97 * GIB)),
}
"""The class `cpu` is not here: it has no memory of its own."""
