"""Numbers that messages suggest as valid values. Fast for every input."""

from __future__ import annotations

import math

from rljob_runtime.planning.arithmetic import divisors

__all__ = ["divisors", "next_factor", "next_multiple"]


def next_multiple(number: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not less than `number`."""
    return -(-number // unit) * unit


def next_factor(number: int, other: int, unit: int) -> int:
    """Return the smallest value, at least `number`, whose product with `other` is a multiple of `unit`."""
    return next_multiple(number, unit // math.gcd(other, unit))
