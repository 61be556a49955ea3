"""What a job trains of its model: all of it, or a LoRA adapter, and in which precision its shards are kept.

Fields and overrides say it in the keys of two engines; checks, the planner, exports and evaluations ask here.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.effective import UNKNOWN, effective
from rljob.launchers.verl.rows import ACTOR, MODEL
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.values import OFF
from rljob_runtime.planning.on_policy import is_on, number

CRITIC_MODEL = "critic.model"
ADAPTER_PATHS = (f"{MODEL}.lora_adapter_path", f"{MODEL}.lora.adapter_path")
RANK_BOUND = 1 << 16
"""Above every rank that passes validation; a job may state a number of any size."""
HALF = frozenset({"bf16", "bfloat16", "fp16", "float16", "half"})
"""Names of verl for types of two bytes (utils/torch_dtypes.py, 0.9.1)."""


@dataclass(frozen=True)
class Trained:
    """What is trained."""

    rank: int = 0
    """Of the actor's adapter; 0 where the whole model is trained."""
    critic_rank: int = 0
    field: str | None = None
    """What makes the actor train an adapter, for messages."""
    by_override: bool = False
    merged: bool = False
    """Whether the rollout gets weights in which the adapter is merged, instead of the adapter itself."""
    element_bytes: int = 4
    """Size of an element of FSDP2's shards (trainer/config/engine/fsdp.yaml, model_dtype)."""


def rank_key(spec: RLJobSpec) -> str:
    """Return the key of the rank that the trainer's engine reads."""
    return f"{MODEL}.lora.rank" if uses_megatron(spec) else f"{MODEL}.lora_rank"


def trained(spec: RLJobSpec) -> Trained:
    """Return what a job trains.

    Each engine reads keys of its own, and verl's trainer and rollout read all of them
    (trainer/ppo/v1/trainer_base.py:234-237, 0.9.1), so the keys of either engine count.
    """
    seen = effective(spec)

    def rank(part: str) -> int:
        found = (number(seen.value(f"{part}.{name}")) or 0 for name in ("lora_rank", "lora.rank"))
        return int(min(max(0.0, *found), RANK_BOUND))

    keys = [key for key in (f"{MODEL}.lora_rank", f"{MODEL}.lora.rank") if (number(seen.value(key)) or 0) > 0]
    keys += [key for key in ADAPTER_PATHS if seen.value(key) not in (*OFF, UNKNOWN)]
    setting = seen.setting(keys[0]) if keys else None
    kept = str(seen.value(f"{ACTOR}.fsdp_config.model_dtype")).rpartition(".")[2]
    return Trained(
        rank=rank(MODEL),
        critic_rank=rank(CRITIC_MODEL),
        field=seen.field(keys[0]) if keys else None,
        by_override=setting is not None and setting.by_override,
        merged=is_on(seen.value(f"{MODEL}.lora.merge")),
        element_bytes=2 if kept in HALF else 4,
    )
