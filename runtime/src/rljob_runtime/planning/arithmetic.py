"""Numbers that messages suggest as valid values. Fast for every input."""

from __future__ import annotations

from collections.abc import Callable

SEARCHED = 4096
"""Largest value that is searched for; no parallel size is larger."""
SHOWN = 8


def divisors(number: int) -> str:
    """Return the largest divisors of a number, as a list in text."""
    return suggestions(number, lambda candidate: number % candidate == 0)


def suggestions(limit: int, holds: Callable[[int], bool]) -> str:
    """Return the largest values up to a limit for which a condition holds, as a list in text."""
    found = [candidate for candidate in range(1, min(limit, SEARCHED) + 1) if holds(candidate)]
    return ", ".join(str(candidate) for candidate in found[-SHOWN:])
