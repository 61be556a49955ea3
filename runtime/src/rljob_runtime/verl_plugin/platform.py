"""verl's platform `cpu`: its hybrid engine on CPUs, collectives by gloo, and still the Ray resource NPU.

So the same manifest, operator path and Ray scheduling serve a laptop and a cluster of NPUs. Importing this module
registers the platform; nothing here touches a device.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

NAME = "cpu"
ASSUMED_MEMORY_BYTES = 8 << 30
"""Answer to `mem_get_info`, of which verl only logs the difference between two readings."""


class CpuDeviceModule(types.ModuleType):
    """Stands in for `torch.cuda`: what an accelerator has and a CPU lacks, else `torch.cpu`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        """Tell that there is no accelerator."""
        return False

    def device_count(self) -> int:
        """One device for each process."""
        return 1

    def current_device(self) -> str:
        """Name the device."""
        return "cpu"

    def get_device_name(self, *_: object) -> str:
        """Name the hardware."""
        return "CPU"

    def set_device(self, *_: object) -> None:
        """Do nothing: there is one."""

    def synchronize(self, *_: object) -> None:
        """Do nothing: everything is synchronous."""

    def empty_cache(self) -> None:
        """Do nothing: there is no caching allocator."""

    def ipc_collect(self) -> None:
        """Do nothing: no memory is shared by handles."""

    def mem_get_info(self, *_: object) -> tuple[int, int]:
        """Give free and total memory."""
        return ASSUMED_MEMORY_BYTES, ASSUMED_MEMORY_BYTES

    def _no_memory(self, *_: object) -> int:
        return 0

    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _no_memory

    def reset_peak_memory_stats(self, *_: object) -> None:
        """Do nothing: nothing is counted."""

    def manual_seed(self, seed: int) -> None:
        """Seed."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, *_: object) -> Any:  # noqa: ANN401 - a tensor
        """Give the generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: Any, *_: object) -> None:  # noqa: ANN401 - a tensor
        """Restore the generator's state."""
        torch.set_rng_state(state)


@PlatformRegistry.register(platform=NAME)
class CpuPlatform(PlatformBase):  # type: ignore[misc] # verl ships no types
    """The answers that verl asks of a platform."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CpuDeviceModule("torch.cpu")

    def is_available(self) -> bool:
        """Tell that CPUs are always there."""
        return True

    def current_device(self) -> str:
        """Name the device; an index would mean an accelerator to torch."""
        return "cpu"

    def device_count(self) -> int:
        """One device for each process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing: there is one."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: everything is synchronous."""

    def manual_seed(self, seed: int) -> None:
        """Seed."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: there is no caching allocator."""

    def empty_cache(self) -> None:
        """Do nothing: there is no caching allocator."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:  # noqa: ARG002 - verl's signature
        """Give none: it is an NVIDIA figure."""
        return None, None

    def communication_backend_name(self) -> str:
        """Name the collectives."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Name the variable that Ascend's device plug-in sets."""
        return "ASCEND_RT_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002 - verl's signature
        """Mark nothing."""
        yield

    def profiler_start(self) -> None:
        """Do nothing: no device profiler."""

    def profiler_stop(self) -> None:
        """Do nothing: no device profiler."""

    def ray_resource_name(self) -> str:
        """Name the resource that the worker pods offer; verl's resource pool knows GPU and NPU only."""
        return "NPU"

    def ray_noset_envvars(self) -> list[str]:
        """Give none: Ray manages no visible CPUs."""
        return []

    def is_ipc_supported(self) -> bool:
        """Tell that weights travel through shared memory, not by device handles."""
        return False

    def cudart(self) -> None:
        """Give none."""
        return
