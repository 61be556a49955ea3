"""The effective configuration as the rules read it: values with their types, and facts of the model.

Keys below `engine_kwargs.vllm` stand for vLLM's arguments, which also the rollout's own keys set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import model_facts
from rljob.launchers.verl.effective import UNKNOWN, VLLM, Setting, effective
from rljob.launchers.verl.rows import ACTOR
from rljob.launchers.verl.values import has_delta_layers
from rljob.render.accelerators import facts_of

TRUE = ("true", "1", "yes", "on")
"""What OmegaConf converts to true, in lower case."""
VALUE_SHOWN = 64
"""Characters of a value that a message shows."""


class Settings:
    """What verl, Megatron and the engine are configured with."""

    def __init__(self, spec: RLJobSpec) -> None:
        self.spec = spec
        self.is_npu = facts_of(spec).is_npu
        self._seen = effective(spec)
        self.megatron = self._seen.megatron

    def get(self, key: str, default: object = None) -> object:
        """Return the value of a key; the default applies where verl's schema has none."""
        argument = _argument(key)
        value = self._seen.engine_value(argument) if argument else self._seen.value(key)
        return default if value is UNKNOWN else value

    def number(self, key: str, default: float = 0) -> float:
        """Return a number; the default also where the value is none, which verl's schema reports."""
        value = self.get(key, default)
        try:
            number = float(value) if isinstance(value, (int, float, str)) else default
        except (ValueError, OverflowError):
            return default
        return number if math.isfinite(number) else default

    def on(self, key: str, *, default: bool = False) -> bool:
        """Report whether a switch is on."""
        value = self.get(key, default)
        return value.lower() in TRUE if isinstance(value, str) else value == 1

    def listed(self, key: str) -> list[object]:
        """Return a list; empty where the value is none."""
        value = self.get(key)
        return value if isinstance(value, list) else []

    def below(self, section: str) -> Iterator[Setting]:
        """Yield everything that is set below a section."""
        yield from self._seen.below(section)

    def field(self, key: str) -> str:
        """Return the path in the manifest that sets a key, or the override by which it could be set."""
        found = self._setting(key)
        return found.field if found else self._seen.field(key)

    def shown(self, key: str) -> str:
        """Return a value for a message, as YAML would write it."""
        value = self.get(key)
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return text if len(text) <= VALUE_SHOWN else text[: VALUE_SHOWN - 1] + "…"

    def _setting(self, key: str) -> Setting | None:
        argument = _argument(key)
        return self._seen.engine(argument) if argument else self._seen.setting(key)

    @property
    def dynamic(self) -> bool:
        """Report whether verl cuts micro batches by tokens."""
        return self.on(f"{ACTOR}.use_dynamic_bsz")

    @property
    def has_delta_layers(self) -> bool:
        """Report whether the model's config.json names gated delta layers (Qwen3-Next, Qwen3.5)."""
        return has_delta_layers(self.spec)

    @property
    def has_experts(self) -> bool | None:
        """Report whether the model is a mixture of experts; None where the spec does not say."""
        experts = model_facts(self.spec).experts
        return None if experts is None else experts.value > 0


def _argument(key: str) -> str | None:
    """Return the argument of vLLM that a key stands for."""
    return key.removeprefix(f"{VLLM}.") if key.startswith(f"{VLLM}.") else None
