"""Memory of a die: what npu-smi shows (the accelerator table), and what the driver leaves for processes.

Errors of torch_npu show how much of 64 GiB it can allocate: 61.27 GiB on A3 (sglang issue 29838), 60.97 GiB on A2
(vllm-ascend issue 19).
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob.api.accelerators import AcceleratorFacts

GIB = 1 << 30
A2_KEPT_GIB, A3_KEPT_GIB = 64 - 60.97, 64 - 61.27


@dataclass(frozen=True)
class DieMemory:
    """Memory of one die, in bytes."""

    total_bytes: int
    visible_bytes: int
    """Without the part that the driver reserves."""


def die_memory(facts: AcceleratorFacts) -> DieMemory | None:
    """Return the memory of a die of this hardware; None if it is unknown or the hardware has no memory of its own."""
    if facts.hbm_gib_per_die is None or not facts.is_npu:
        return None
    # A2 has one die per card, A3 two.
    kept = A2_KEPT_GIB if facts.dies_per_card == 1 else A3_KEPT_GIB
    return DieMemory(facts.hbm_gib_per_die * GIB, int((facts.hbm_gib_per_die - kept) * GIB))
