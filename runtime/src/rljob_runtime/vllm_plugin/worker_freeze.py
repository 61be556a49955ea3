"""Freeze the objects of vLLM's workers when their model is warm; see gc_freeze.py.

A worker's class is known only when its wrapper creates it (`WorkerWrapperBase.init_worker`, vLLM 0.23). The engine then
asks the wrapper, which passes it on to the worker, to compile or warm up the model, as the last thing before requests.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from rljob_runtime import gc_freeze

MARK = "_rljob_freeze"


def install() -> None:
    """Replace `init_worker`, once per process. Raises TypeError if vLLM's wrapper has another signature."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    original = WorkerWrapperBase.init_worker
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["self", "all_kwargs"]:
        raise TypeError(
            f"vLLM's WorkerWrapperBase.init_worker has the parameters {found}, expected self and all_kwargs"
        )

    @functools.wraps(original)
    def init_worker(self: Any, all_kwargs: list[dict[str, Any]]) -> None:  # noqa: ANN401 - vLLM's class
        original(self, all_kwargs)
        freeze_when_warm(self.worker)

    setattr(init_worker, MARK, True)
    WorkerWrapperBase.init_worker = init_worker


def freeze_when_warm(worker: Any) -> None:  # noqa: ANN401 - vLLM's class, or vllm-ascend's
    """Let a worker freeze at the end of its warm-up. Raises TypeError if this takes arguments."""
    original = worker.compile_or_warm_up_model
    if found := list(inspect.signature(original).parameters):
        raise TypeError(f"{type(worker).__name__}.compile_or_warm_up_model has the parameters {found}, expected none")

    @functools.wraps(original)
    def warm_up_and_freeze() -> Any:  # noqa: ANN401 - vLLM's times
        times = original()
        gc_freeze.freeze()
        return times

    worker.compile_or_warm_up_model = warm_up_and_freeze
