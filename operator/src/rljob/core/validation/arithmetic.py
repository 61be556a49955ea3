"""Numbers that messages suggest as valid values. Fast for every input."""

from __future__ import annotations

import math

SEARCHED = 4096
"""Largest divisor that is searched for; no parallel size is larger."""
SHOWN = 8


def divisors(number: int) -> str:
    """Return the largest divisors of a number, as a list in text."""
    found = [candidate for candidate in range(1, min(number, SEARCHED) + 1) if number % candidate == 0]
    return ", ".join(str(candidate) for candidate in found[-SHOWN:])


def next_multiple(number: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not less than `number`."""
    return -(-number // unit) * unit


def next_factor(number: int, other: int, unit: int) -> int:
    """Return the smallest value, at least `number`, whose product with `other` is a multiple of `unit`."""
    return next_multiple(number, unit // math.gcd(other, unit))
