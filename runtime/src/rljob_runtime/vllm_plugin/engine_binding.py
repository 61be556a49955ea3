"""Bind vLLM's workers to their device's CPUs before they use the device.

A worker's device is known only when its wrapper initialises it (`WorkerWrapperBase.init_device`, vLLM 0.23): the local
rank is its index in the list of visible devices that verl and vLLM set. vLLM's other processes stay on the CPUs for
processes without a device, as does verl's server, so that scheduler and front end do not disturb workers.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from rljob_runtime.node import core_binding

MARK = "_rljob"


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
    def bind_first(self: Any) -> Any:  # noqa: ANN401 - vLLM's signature
        bind_by_rank(self.worker.local_rank)
        return original(self)

    setattr(bind_first, MARK, True)
    WorkerWrapperBase.init_device = bind_first


def bind_by_rank(local_rank: int) -> None:
    """Bind this process to the CPUs of the visible device with its rank."""
    visible = core_binding.visible_devices()
    if not 0 <= local_rank < len(visible):
        message = f"rank {local_rank} of a rollout engine has no device among {visible}"
        print(f"rljob: core binding: {message}", file=sys.stderr, flush=True)  # noqa: T201
        return
    core_binding.bind_device_worker(core_binding.Role.ROLLOUT, [visible[local_rank]])
