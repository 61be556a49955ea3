"""The reward functions that the runtime brings, and how verl finds them."""

from __future__ import annotations

import enum

PACKAGE = "pkg://rljob_runtime.rewards."
"""Start of the location of a module, in verl's notation (load_module, verl/utils/import_utils.py:154-180 of 0.9.1)."""


class BuiltinReward(enum.StrEnum):
    """verl's own functions for mathematics, whatever the column data_source contains."""

    GSM8K = "GSM8K"
    """1 if the number after the last #### is the answer, otherwise 0."""
    MATH = "MATH"
    """1 if the content of the last \\boxed{} is the answer, otherwise 0. For MATH-lighteval and DeepScaleR."""
    DAPO_MATH = "DAPOMath"
    """1 if the text after the last Answer: is the answer, otherwise -1, with the key acc by which DAPO filters."""

    @property
    def location(self) -> str:
        """Return where verl finds the module; its function is compute_score."""
        return PACKAGE + {"GSM8K": "gsm8k", "MATH": "math", "DAPOMath": "dapo_math"}[self.value]
