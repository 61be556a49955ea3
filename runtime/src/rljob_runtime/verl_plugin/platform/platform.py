"""verl's platform `cpu`: its hybrid engine on CPUs with gloo collectives, but with the Ray resource NPU.

The same manifest, operator and Ray scheduling therefore work on a laptop and on a cluster of NPUs. Importing this
module registers the platform and uses no device.
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
"""Result of `mem_get_info`. verl only logs the difference between two readings."""


class CpuDeviceModule(types.ModuleType):
    """Replaces `torch.cuda`: has the attributes that a CPU lacks, and delegates others to `torch.cpu`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        """Return False: there is no accelerator."""
        return False

    def device_count(self) -> int:
        """Return 1: one device per process."""
        return 1

    def current_device(self) -> str:
        """Return the device's name."""
        return "cpu"

    def get_device_name(self, *_: object) -> str:
        """Return the hardware's name."""
        return "CPU"

    def set_device(self, *_: object) -> None:
        """Do nothing: there is only one device."""

    def synchronize(self, *_: object) -> None:
        """Do nothing: everything is synchronous."""

    def empty_cache(self) -> None:
        """Do nothing: there is no caching allocator."""

    def ipc_collect(self) -> None:
        """Do nothing: memory is not shared through handles."""

    def mem_get_info(self, *_: object) -> tuple[int, int]:
        """Return free and total memory."""
        return ASSUMED_MEMORY_BYTES, ASSUMED_MEMORY_BYTES

    def _no_memory(self, *_: object) -> int:
        return 0

    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _no_memory

    def reset_peak_memory_stats(self, *_: object) -> None:
        """Do nothing: memory is not measured."""

    def manual_seed(self, seed: int) -> None:
        """Seed the generator."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, *_: object) -> Any:  # noqa: ANN401 - a tensor
        """Return the generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: Any, *_: object) -> None:  # noqa: ANN401 - a tensor
        """Restore the generator's state."""
        torch.set_rng_state(state)


@PlatformRegistry.register(platform=NAME)
class CpuPlatform(PlatformBase):  # type: ignore[misc] # verl ships no types
    """Implements the methods that verl calls on a platform."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CpuDeviceModule("torch.cpu")

    def is_available(self) -> bool:
        """Return True: a CPU is always available."""
        return True

    def current_device(self) -> str:
        """Return the device's name. torch would interpret an index as an accelerator."""
        return "cpu"

    def device_count(self) -> int:
        """Return 1: one device per process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing: there is only one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: everything is synchronous."""

    def manual_seed(self, seed: int) -> None:
        """Seed the generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: there is no caching allocator."""

    def empty_cache(self) -> None:
        """Do nothing: there is no caching allocator."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:  # noqa: ARG002 - verl's signature
        """Return None: the capability is defined for NVIDIA devices only."""
        return None, None

    def communication_backend_name(self) -> str:
        """Return the name of the collectives' backend."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return the variable that Ascend's device plug-in sets."""
        return "ASCEND_RT_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002 - verl's signature
        """Do nothing."""
        yield

    def profiler_start(self) -> None:
        """Do nothing: there is no device profiler."""

    def profiler_stop(self) -> None:
        """Do nothing: there is no device profiler."""

    def ray_resource_name(self) -> str:
        """Return the resource that the worker pods offer. verl's resource pool supports only GPU and NPU."""
        return "NPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return an empty list: Ray does not manage visible CPUs."""
        return []

    def is_ipc_supported(self) -> bool:
        """Return False: weights are sent through shared memory, not device handles."""
        return False

    def cudart(self) -> None:
        """Return None: there is no CUDA runtime."""
        return
