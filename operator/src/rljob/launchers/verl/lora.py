"""Rows of trainer.lora. FSDP2's engine and Megatron's read keys of their own for one thing."""

from __future__ import annotations

from collections.abc import Callable

from rljob.api.training import LoRA
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import ASYNC, FSDP2, MEGATRON, MODEL, OverrideRow, RowCondition, both
from rljob_runtime.contract import OverrideValue

SOURCE = "workers/config/model.py"
SET = RowCondition("trainer.lora is set", lambda s: s.trainer.lora is not None)


def _row(key: str, field: str, engine: RowCondition, value: Callable[[LoRA], OverrideValue]) -> OverrideRow:
    def of(spec: RLJobSpec) -> OverrideValue:
        return None if spec.trainer.lora is None else value(spec.trainer.lora)

    return OverrideRow(f"{MODEL}.{key}", f"trainer.lora.{field}", SOURCE, of, both(engine, SET), free_elsewhere=True)


def _targets(lora: LoRA) -> OverrideValue:
    return None if lora.targets is None else [*lora.targets]


def _alpha(lora: LoRA) -> int:
    return lora.alpha or lora.rank


ROWS = (
    _row("lora_rank", "rank", FSDP2, lambda lora: lora.rank),
    _row("lora_alpha", "alpha", FSDP2, _alpha),
    _row("target_modules", "targets", FSDP2, _targets),
    _row("lora_adapter_path", "path", FSDP2, lambda lora: lora.path),
    _row("lora.rank", "rank", MEGATRON, lambda lora: lora.rank),
    _row("lora.alpha", "alpha", MEGATRON, _alpha),
    _row("lora.target_modules", "targets", MEGATRON, _targets),
    _row("lora.adapter_path", "path", MEGATRON, lambda lora: lora.path),
    # An adapter beside the weights is not sent between prompts in flight (checks/asynchronous.py).
    OverrideRow(f"{MODEL}.lora.merge", "trainer.mode", SOURCE, lambda _: True, both(ASYNC, SET), own=False),
)
