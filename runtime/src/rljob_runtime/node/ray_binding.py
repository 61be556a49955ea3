"""Bind the workers of a command's Ray job to the CPUs of the devices that Ray gives them.

No plug-in is called when such a worker gets a device. Ray itself does: before the first task of a worker it calls the
device's accelerator manager, which may set ASCEND_RT_VISIBLE_DEVICES (ray/_private/utils.py,
set_visible_accelerator_ids, 2.60). That method is replaced by one that binds afterwards, before torch_npu learns the
device.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import MutableMapping, Sequence

from rljob_runtime.node import core_binding

VARIABLE = "RLJOB_BIND_BY_RAY"
"""Set for the workers of a command with core binding."""
MARK = "_rljob"


def variables() -> dict[str, str]:
    """Return the variable with which workers install it."""
    return {VARIABLE: "1"}


def install(environ: MutableMapping[str, str] = os.environ) -> None:
    """Replace the method, once per process, if the run asks for it."""
    if not environ.get(VARIABLE):
        return
    try:
        from ray._private.accelerators.npu import NPUAcceleratorManager
    except ImportError as error:
        print(f"rljob: core binding: this Ray has no manager of NPUs: {error}", file=sys.stderr)  # noqa: T201
        return
    original = NPUAcceleratorManager.set_current_process_visible_accelerator_ids
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def bind_afterwards(visible_npu_devices: Sequence[str]) -> None:
        original(visible_npu_devices)
        devices = [int(device) for device in visible_npu_devices if str(device).isdigit()]
        if devices:
            core_binding.bind_device_worker(core_binding.Role.TRAINER, devices)

    setattr(bind_afterwards, MARK, True)
    NPUAcceleratorManager.set_current_process_visible_accelerator_ids = staticmethod(bind_afterwards)
