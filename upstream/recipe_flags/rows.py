"""Types of the rows about published recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rljob_runtime.contract import OverrideValue

DEEPSEEK = "deepseek-v3-671b-grpo-a3"
QWEN235 = "qwen3-235b-a22b-grpo-32k-a3"
DAPO = "qwen3-235b-a22b-dapo-a3"
QWEN32 = "qwen3-32b-grpo-a3"
FLAGSHIPS = (DEEPSEEK, QWEN235, DAPO, QWEN32)

Values = Mapping[str, OverrideValue]
WORDS = ("override", "launcher", "verl's default", "left out")
"""Places that are not fields."""


@dataclass(frozen=True)
class Flag:
    """One Hydra flag of the published scripts."""

    name: str
    """Name in the scripts."""
    place: str
    """Field of the spec, `override`, `launcher`, `verl's default`, or `left out`."""
    values: Values
    """Recipe -> value in job.json; empty if the flag is not rendered."""
    key: str = ""
    """Key in job.json. Defaults to the name."""
    note: str = ""
    """Why it differs, or why it is left out."""

    @property
    def rendered(self) -> str:
        """The key in job.json."""
        return self.key or self.name


@dataclass(frozen=True)
class EnvironmentFlag:
    """One variable of the published scripts."""

    name: str
    place: str
    """`operator`, `recipe`, `verl`, `image`, or `left out`."""
    values: Mapping[str, str]
    """Recipe -> value in the workers' Ray container; empty if it is not set there."""
    note: str = ""


def same(value: OverrideValue) -> Values:
    """Return the same value for all flagship recipes."""
    return dict.fromkeys(FLAGSHIPS, value)


def each(values: tuple[OverrideValue, ...]) -> Values:
    """Return a value for each of DeepSeek, Qwen3-235B, its DAPO and Qwen3-32B; None: not set there."""
    return {recipe: value for recipe, value in zip(FLAGSHIPS, values, strict=True) if value is not None}
