"""What became of settings of the transformer that were tried on the emulated NPU. Data, which its suite compares.

tests/emulated_npu/suite/flags.json has them: each row is a start of verl's trainer with MindSpeed, and one step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import OverrideValue

FILE = Path(__file__).parents[2] / "tests/emulated_npu/suite/flags.json"
TRAINS = "trains"


@dataclass(frozen=True)
class Tried:
    """Settings that were tried together."""

    model: str
    """A folder that tests/emulated_npu/suite/models.py writes."""
    override: dict[str, OverrideValue]
    """Fields of override_transformer_config."""
    found: str
    """`trains`, or the error."""
    recipes: tuple[str, ...] = ()
    """Built-in recipes whose settings these are, but for the numbers of layers."""
    trust: bool = False
    """Whether the code of the model's folder is used."""
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    emulation: str = ""
    """Why only hardware can show it, where the error is the emulation's."""

    @property
    def ranks(self) -> str:
        """The processes by what they share, for a page."""
        sizes = {name: getattr(self, name) for name in ("tensor", "pipeline", "context")}
        return ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)


def load_tried() -> tuple[Tried, ...]:
    """Return all rows."""
    return tuple(Tried(**row | {"recipes": tuple(row.get("recipes", ()))}) for row in json.loads(FILE.read_text()))
