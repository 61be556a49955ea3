"""How long a decoding step takes, by the batch size that the graph was captured for and the tokens in the cache.

All ranks of an engine with expert parallelism wait for each other in every layer, so a step has one duration: that of
the largest captured size (gear) among the ranks. Each model says in `origin` where its values are from.
"""

from __future__ import annotations

import bisect
import enum
from dataclasses import dataclass
from typing import Protocol

MILLISECOND = 1e-3
THOUSAND = 1000


class Origin(enum.Enum):
    """Where a number comes from."""

    MEASURED = "measured"
    """By a run of the job itself."""
    PUBLISHED = "published"
    """Published by the source that is named with it."""
    MODELLED = "modelled"
    """Computed from published values and assumptions."""


class StepTime(Protocol):
    """The duration of decoding steps."""

    @property
    def origin(self) -> Origin:
        """Where the values come from."""

    @property
    def source(self) -> str:
        """The same in words, with what was fitted or assumed."""

    def seconds(self, gear: int, context: int, cached: float, steps: int) -> float:
        """Return the seconds of consecutive steps with one gear.

        `context` are the tokens of the longest running response before the first step, `cached` the mean number of
        tokens in the cache of the fullest rank during the steps.
        """


@dataclass(frozen=True)
class TableStepTime:
    """Published values: one for each small gear, and for the largest one a row by thousands of tokens."""

    small: tuple[tuple[int, float], ...]
    """(gear, milliseconds), ascending. They do not depend on the context. Gears between them are interpolated, and
    larger ones than `largest` extrapolated."""
    largest: int
    by_context: tuple[float, ...]
    """Milliseconds of the largest gear at 0, 1,000, 2,000, ... tokens of context; interpolated."""
    source: str
    origin: Origin = Origin.PUBLISHED

    def seconds(self, gear: int, context: int, cached: float, steps: int) -> float:
        """Return the integral of the interpolated rows."""
        del cached
        top, below = self.small[-1]
        if gear <= top:
            return steps * self._small(gear) * MILLISECOND
        share = (gear - top) / (self.largest - top)
        rising = self._integral(context + steps) - self._integral(context)
        return ((1 - share) * below * steps + share * rising) * MILLISECOND

    def _small(self, gear: int) -> float:
        index = bisect.bisect_left(self.small, gear, key=lambda row: row[0])
        above, slow = self.small[index]
        if index == 0 or above == gear:
            return slow
        under, fast = self.small[index - 1]
        return fast + (slow - fast) * (gear - under) / (above - under)

    def _integral(self, context: int) -> float:
        """Return the milliseconds of the largest gear from 0 to a context, which may lie beyond the last row."""
        rows = self.by_context
        whole = min(context // THOUSAND, len(rows) - 1)
        total = THOUSAND * (sum(rows[: whole + 1]) - (rows[0] + rows[whole]) / 2)
        rest = context - THOUSAND * whole
        if whole + 1 < len(rows):
            return total + rest * rows[whole] + rest * rest * (rows[whole + 1] - rows[whole]) / (2 * THOUSAND)
        return total + rest * rows[-1]


@dataclass(frozen=True)
class LinearStepTime:
    """A fixed part, a part for each row of the captured batch, and the time to read the cache of the fullest rank."""

    fixed: float
    """Milliseconds of a step."""
    row: float
    """Milliseconds for each row of the gear."""
    cached_million: float
    """Milliseconds for a million tokens in the cache of the fullest rank."""
    source: str
    origin: Origin = Origin.MODELLED

    def seconds(self, gear: int, context: int, cached: float, steps: int) -> float:
        """Return the seconds with the mean number of tokens in the cache."""
        del context
        return steps * (self.fixed + self.row * gear + self.cached_million * cached / 1e6) * MILLISECOND
