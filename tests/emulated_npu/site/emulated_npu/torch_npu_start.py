"""Around the import of torch_npu, whose operators are replaced."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch.distributed as dist


def before() -> None:
    """Run operators where they are called: the queue's thread would run them without Python's lock."""
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")


def after(module: ModuleType) -> None:
    """Replace the operators and the process group."""
    del module
    import emulated_npu_operators

    from emulated_npu import attention, experts, layers, operators  # noqa: F401 - three fill the tables

    emulated_npu_operators.install()
    operators.install("npu")
    operators.install("atb")
    dist.Backend._plugins["HCCL"] = dist.Backend._BackendPlugin(_group, True)


def _group(options: Any, _: Any) -> Any:
    import emulated_npu_operators

    gloo = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, options.timeout)
    return emulated_npu_operators.Hccl(gloo)
