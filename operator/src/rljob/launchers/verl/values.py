"""Keys, values and facts that several checks read in the same way."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import layer_kinds
from rljob.launchers.verl.rows import MODEL

PACKING = f"{MODEL}.use_remove_padding"
"""Whether verl packs sequences instead of padding them (verl/workers/config/model.py:120, 0.9.1)."""
OFF = (None, False, 0, "", "0", "false", "False", "null", "None")
"""Values of a switch that leave it off, whichever way they are spelt."""


def whole(value: object) -> int | None:
    """Return a whole number; None for anything else, also for a switch, which Python counts as a number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def has_delta_layers(spec: RLJobSpec) -> bool:
    """Report whether the model's config.json, where the job states it, names gated delta layers (Qwen3-Next)."""
    return "linear_attention" in layer_kinds(spec)
