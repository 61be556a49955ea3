"""Numbers that messages suggest as valid values. Fast for every input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Devices:
    """What the devices of a run require of a size that is suggested."""

    count: int | None
    """None where it is not known."""
    fit: Callable[[int], bool]

    def suggestions(self, limit: int, holds: Callable[[int], bool]) -> str:
        """Return sizes for which a condition holds and that fit the devices; if other sizes leave none, all of them."""
        if self.count is None:
            return suggestions(limit, holds)
        # No size is larger than the devices.
        fitting = suggestions(min(limit, self.count), lambda candidate: self.fit(candidate) and holds(candidate))
        return f"{fitting} on {self.count} devices" if fitting else suggestions(limit, holds)


def dividing(count: int | None, others: int = 1) -> Devices:
    """Return the condition that a size and the other sizes of its group divide the devices."""
    return Devices(count, lambda size: count is None or count % (size * others) == 0)
