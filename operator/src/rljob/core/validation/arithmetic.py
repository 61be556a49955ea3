"""Numbers that a message proposes: the values that would fit. Fast for every input."""

from __future__ import annotations

import math

SEARCHED = 4096
"""Divisors beyond are not looked for: no parallel size is larger."""
SHOWN = 8


def divisors(number: int) -> str:
    """List the largest divisors of a number that are worth naming."""
    found = [candidate for candidate in range(1, min(number, SEARCHED) + 1) if number % candidate == 0]
    return ", ".join(str(candidate) for candidate in found[-SHOWN:])


def next_multiple(number: int, unit: int) -> int:
    """Give the smallest multiple of `unit` that is not less than `number`."""
    return -(-number // unit) * unit


def next_factor(number: int, other: int, unit: int) -> int:
    """Give the smallest value from `number` on that, times `other`, is a multiple of `unit`."""
    return next_multiple(number, unit // math.gcd(other, unit))
