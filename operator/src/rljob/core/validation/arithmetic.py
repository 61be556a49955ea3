"""Numbers in messages: which values would fit, and quantities of Kubernetes as numbers. Fast for every input."""

from __future__ import annotations

import math
from fractions import Fraction

SEARCHED = 4096
"""Divisors beyond are not looked for: no parallel size is larger."""
SHOWN = 8
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


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


def quantity(text: str) -> Fraction:
    """Read a quantity such as 500m or 12Gi in its own unit: cores, or bytes. The pattern of the type holds."""
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _SUFFIXES[text[len(digits) :]]
