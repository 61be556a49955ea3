"""An NPU in the memory of the host: what the real torch_npu, triton-ascend and vllm-ascend find in the place of CANN.

A `.pth` file calls `install` when a process of the environment starts. Nothing happens until one of the modules of
`AROUND` is imported. Each module that is named there has `before` and `after`, which run around that import.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

AROUND = {
    "torch_npu": "torch_npu_start",
    "triton.backends": "triton_driver",
    "triton.runtime.interpreter": "triton_interpreter",
    "vllm_ascend.ops.triton.triton_utils": "triton_slices",
    "vllm_ascend.vllm_ascend_C": "vllm_operators",
}


class Loader(importlib.abc.Loader):
    """The real loader of a module, with the functions around it."""

    def __init__(self, real: Any, name: str) -> None:
        self.real, self.name = real, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return what the real loader creates."""
        created: ModuleType | None = self.real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Import the module."""
        # As torch_npu does itself: torch, which is imported here, would otherwise import it again.
        autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        around = importlib.import_module(f"emulated_npu.{self.name}")
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = autoload
        around.before()
        self.real.exec_module(module)
        around.after(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `AROUND` only."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec with another loader."""
        del target
        if fullname not in AROUND:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None:
            spec.loader = Loader(spec.loader, AROUND[fullname])
        return spec


def install() -> None:
    """Watch this process's imports."""
    sys.meta_path.insert(0, Finder())
