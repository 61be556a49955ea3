"""Replace functions of torch and verl that do not work on CPUs, before verl uses them.

Each replacement first checks the original's signature and raises TypeError if it has changed.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch.distributed
from torch.distributed import fsdp

MARK = "_rljob"


def apply() -> None:
    """Replace them, once per process."""
    # Not `__wrapped__`, because torch decorates the original itself.
    if not hasattr(torch.distributed.init_process_group, MARK):
        _one_backend_for_each_device()
    if not issubclass(fsdp.CPUOffloadPolicy, UnpinnedOffloadPolicy):
        fsdp.CPUOffloadPolicy = UnpinnedOffloadPolicy
    _critic_without_flash_attention()


def _one_backend_for_each_device() -> None:
    """Accept verl's backend "cpu:gloo,cpu:gloo" (utils/distributed.py, 0.9.1), which torch rejects as a duplicate."""
    original = torch.distributed.init_process_group
    first = next(iter(inspect.signature(original).parameters))
    if first != "backend":
        raise TypeError(f"torch.distributed.init_process_group has the first parameter {first!r}, expected 'backend'")

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(without_duplicates(backend), *args, **kwargs)

    setattr(init_process_group, MARK, True)
    torch.distributed.init_process_group = init_process_group


def _critic_without_flash_attention() -> None:
    """Load a critic's model with eager attention. verl (utils/model.py, 0.9.1) requests flash attention."""
    from verl.utils import model

    original = model.load_valuehead_model
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["local_path", "torch_dtype", "model_config", "trust_remote_code"]:
        raise TypeError(f"verl's load_valuehead_model has unexpected parameters: {found}")

    @functools.wraps(original)
    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:  # noqa: ANN401, FBT001
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="eager",
            trust_remote_code=trust_remote_code,
        )

    setattr(load_valuehead_model, MARK, True)
    model.load_valuehead_model = load_valuehead_model


def without_duplicates(backend: str | None) -> str | None:
    """Merge equal devices: "cpu:gloo,cpu:gloo" -> "gloo"."""
    if not backend or "," not in backend:
        return backend
    devices = dict(part.split(":", 1) for part in backend.split(","))
    if len(devices) == 1:
        return next(iter(devices.values()))
    return ",".join(f"{device}:{name}" for device, name in devices.items())


class UnpinnedOffloadPolicy(fsdp.CPUOffloadPolicy):  # type: ignore[misc] # torch is not typed here
    """Offloading without pinned memory. verl pins it for the reference model, and pinning needs an accelerator."""

    def __init__(self, pin_memory: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - torch's signature
        super().__init__(pin_memory=False)
