"""Binds verl's workers to their device's CPUs before torch_npu is told of the device.

verl's `Worker.__init__` (single_controller/base/worker.py, 0.9.1) is where a worker names its device, and Ray tells the
device's id from then on. It is replaced by one that binds first; verl's own `set_numa_affinity` does nothing on NPUs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from rljob_runtime import core_binding

MARK = "_rljob"
RESOURCE = "NPU"


def install() -> None:
    """Replace it; once for each process. Raises TypeError if verl's worker looks different."""
    from verl.single_controller.base.worker import Worker

    original = Worker.__init__
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["self", "cuda_visible_devices"]:
        raise TypeError(f"verl's Worker takes {found}, expected self and cuda_visible_devices")

    @functools.wraps(original)
    def bind_first(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's signature
        bind_by_ray()
        original(self, *arguments, **options)

    setattr(bind_first, MARK, True)
    Worker.__init__ = bind_first


def bind_by_ray() -> None:
    """Bind this process to the CPUs of the device that Ray gave it; a worker without one stays where it is."""
    import ray

    try:
        ids = ray.get_runtime_context().get_accelerator_ids().get(RESOURCE, [])
        devices = [int(number) for number in ids]
    except Exception as error:  # noqa: BLE001 - whatever Ray raises: an unbound worker is slower, not wrong
        print(f"rljob: core binding: Ray does not tell this worker's device: {error}", file=sys.stderr)  # noqa: T201
        return
    if devices:
        core_binding.bind_device_worker(core_binding.Role.TRAINER, devices)
