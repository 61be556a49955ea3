"""Around the import of Triton's interpreter, which does not know the options that triton-ascend's autotuner passes."""

from __future__ import annotations

import inspect
from typing import Any


def before() -> None:
    """Do nothing."""


def after(module: Any) -> None:
    """Ignore them, as it does those of other compilers."""
    from triton.runtime.autotuner import Config

    module.RESERVED_KWS += inspect.signature(Config.__init__).parameters
