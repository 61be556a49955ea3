"""Definition of an override row, and the conditions under which rows apply."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rljob.api.training import ASYNC_MODES, COLOCATE_ASYNC, SEPARATE_ASYNC, TrainerBackend
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.algorithms import WITH_CRITIC, WITH_FILTER, algorithm_of, has_critic
from rljob.launchers.verl.sizes import uses_megatron
from rljob.render.accelerators import facts_of
from rljob_runtime.contract import OverrideValue

ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"


@dataclass(frozen=True)
class RowCondition:
    """When a row applies."""

    text: str
    """Shown in the reference."""
    holds: Callable[[RLJobSpec], bool]


ALWAYS = RowCondition("", lambda _: True)
FSDP2 = RowCondition("FSDP2", lambda s: s.trainer.backend is TrainerBackend.FSDP2)
MEGATRON = RowCondition("Megatron, MindSpeed", uses_megatron)
DYNAMIC = RowCondition("maxTokensPerDevice is set", lambda s: s.trainer.max_tokens_per_device is not None)
DAPO = RowCondition(WITH_FILTER, lambda s: algorithm_of(s).filters)
PPO = RowCondition(WITH_CRITIC, has_critic)
ATLAS = RowCondition("Atlas classes", lambda s: facts_of(s).is_npu)
CPUS = RowCondition("class cpu", lambda s: not facts_of(s).is_npu)
EVALUATE = RowCondition("trainer.mode Evaluate", lambda s: s.trainer.mode == "Evaluate")
ASYNC = RowCondition(f"trainer.mode {' or '.join(ASYNC_MODES)}", lambda s: s.trainer.mode in ASYNC_MODES)
COLOCATE = RowCondition(f"trainer.mode {COLOCATE_ASYNC}", lambda s: s.trainer.mode == COLOCATE_ASYNC)
SEPARATE = RowCondition(f"trainer.mode {SEPARATE_ASYNC}", lambda s: s.trainer.mode == SEPARATE_ASYNC)


def both(first: RowCondition, second: RowCondition) -> RowCondition:
    """Return the condition that holds when both hold."""
    return RowCondition(f"{first.text}; {second.text}", lambda s: first.holds(s) and second.holds(s))


@dataclass(frozen=True)
class OverrideRow:
    """One Hydra key: which field decides it, and how."""

    key: str
    """In Hydra's grammar: with a leading `+` where verl's schema lacks the key and its code reads it."""
    field: str
    """Path of the manifest's field, for messages."""
    source: str
    """File of verl 0.9.1, below verl/, that defines or reads the key."""
    value: Callable[[RLJobSpec], OverrideValue]
    """Returns None where the field is not set, so that verl's default applies."""
    when: RowCondition = ALWAYS
    own: bool = True
    """False for a default that follows the field; `verl.overrides` may set the key as well."""
    free_elsewhere: bool = False
    """Whether `verl.overrides` may set a key of its own where the condition does not hold."""


def number(text: str | None) -> float | None:
    """Return the value of a decimal string that may be absent."""
    return None if text is None else float(text)


def whole(text: str | None) -> int | None:
    """Return the value of a decimal string that is a whole number; None for one too large for a number."""
    return None if text is None or not math.isfinite(float(text)) else int(float(text))
