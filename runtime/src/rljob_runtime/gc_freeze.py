"""Exempt what a process created during its start from Python's garbage collection.

A full collection pauses a process while it looks at every object: those of modules, a model and graphs live as long as
the process, and it looks at them again and again. After `gc.freeze` it ignores them. Objects that are created later are
collected as before; the collector is never disabled.

vLLM 0.23.0 freezes its front end, its engine and its worker on GPUs (vllm/v1/worker/gpu_worker.py:744), but not its
worker on CPUs (vllm/v1/worker/cpu_worker.py:228), and vllm-ascend 0.23.0 not its worker on NPUs
(vllm_ascend/worker/worker.py:706). verl freezes nothing. `vllm_plugin.worker_freeze` and the trainer call this.
"""

from __future__ import annotations

import gc

VARIABLE = "RLJOB_GC_FREEZE"
"""Set for every process of a run whose engines and trainer freeze."""


def freeze() -> None:
    """Collect what is garbage already, and freeze the rest."""
    gc.collect()
    gc.freeze()


def freeze_rank(rank: object) -> None:
    """Freeze the process of an actor, which Ray calls with the actor itself."""
    del rank
    freeze()
