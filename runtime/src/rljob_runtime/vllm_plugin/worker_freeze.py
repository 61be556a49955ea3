"""Freeze the objects of vLLM's workers when their model is warm; see gc_freeze.py.

A worker's class is known only when its wrapper has created it, and the same call loads the plug-ins
(`WorkerWrapperBase.init_worker`, vLLM 0.23). The wrapper's next call initialises the device, and its last one before
requests compiles or warms up the model, which it passes on to the worker.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from rljob_runtime import gc_freeze

MARK = "_rljob_freeze"


def install() -> None:
    """Replace `init_device`, once per process. Raises TypeError if vLLM's wrapper has another signature."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    original = WorkerWrapperBase.init_device
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["self"]:
        raise TypeError(f"vLLM's WorkerWrapperBase.init_device has the parameters {found}, expected self")

    @functools.wraps(original)
    def init_device(self: Any) -> Any:  # noqa: ANN401 - vLLM's signature
        freeze_when_warm(self.worker)
        return original(self)

    setattr(init_device, MARK, True)
    WorkerWrapperBase.init_device = init_device


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
