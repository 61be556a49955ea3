"""Bind verl's workers to their device's CPUs before torch_npu learns the device.

verl's `Worker.__init__` (single_controller/base/worker.py, 0.9.1) selects a worker's device, whose id Ray already
knows. It is replaced by a function that binds first. verl's own `set_numa_affinity` does nothing on NPUs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from rljob_runtime.node import core_binding

MARK = "_rljob"
RESOURCE = "NPU"


def install() -> None:
    """Replace it, once per process. Raises TypeError if verl's worker has another signature."""
    from verl.single_controller.base.worker import Worker

    original = Worker.__init__
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["self", "cuda_visible_devices"]:
        raise TypeError(f"verl's Worker has the parameters {found}, expected self and cuda_visible_devices")

    @functools.wraps(original)
    def bind_first(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's signature
        bind_by_ray()
        original(self, *arguments, **options)

    setattr(bind_first, MARK, True)
    Worker.__init__ = bind_first


def bind_by_ray() -> None:
    """Bind this process to the CPUs of the device that Ray assigned. A worker without a device is not bound again."""
    import ray

    try:
        ids = ray.get_runtime_context().get_accelerator_ids().get(RESOURCE, [])
        devices = [int(number) for number in ids]
    except Exception as error:  # noqa: BLE001 - on any error of Ray, the worker continues unbound and slower
        print(f"rljob: core binding: cannot get this worker's device from Ray: {error}", file=sys.stderr)  # noqa: T201
        return
    if devices:
        core_binding.bind_device_worker(core_binding.Role.TRAINER, devices)
