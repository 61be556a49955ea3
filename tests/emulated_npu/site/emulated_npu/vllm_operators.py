"""Around the import of vllm-ascend's extension module, which registers its own operators."""

from __future__ import annotations

from types import ModuleType

from emulated_npu import operators


def before() -> None:
    """Do nothing."""


def after(module: ModuleType) -> None:
    """Replace them."""
    del module
    operators.install("_C_ascend")
