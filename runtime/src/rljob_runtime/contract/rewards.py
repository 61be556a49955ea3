"""The reward functions that the runtime brings, and how verl finds them."""

from __future__ import annotations

import enum

PACKAGE = "pkg://rljob_runtime.rewards."
"""Start of the location of a module, in verl's notation (load_module, verl/utils/import_utils.py:154-180 of 0.9.1)."""


class BuiltinReward(enum.StrEnum):
    """verl's own functions for mathematics. All but one take no notice of the column data_source."""

    GSM8K = "GSM8K"
    """1 if the number after the last #### is the answer, otherwise 0."""
    MATH = "MATH"
    """1 if the content of the last \\boxed{} is the answer, otherwise 0. For MATH-lighteval and DeepScaleR."""
    DAPO_MATH = "DAPOMath"
    """1 if the text after the last Answer: is the answer, otherwise -1, with the key acc by which DAPO filters."""
    BY_DATA_SOURCE = "ByDataSource"
    """What verl's default function chooses for the column data_source."""

    @property
    def location(self) -> str:
        """Return where verl finds the module; its function is compute_score."""
        return PACKAGE + _MODULES[self]


_MODULES = {
    BuiltinReward.GSM8K: "gsm8k",
    BuiltinReward.MATH: "math",
    BuiltinReward.DAPO_MATH: "dapo_math",
    BuiltinReward.BY_DATA_SOURCE: "by_data_source",
}
