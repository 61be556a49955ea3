"""Which loads to plan for, if there are counts of several windows.

Drift decides more than the packing: a plan that is exact for one window is off by a tenth and more in the next one if
the loads drift. Here each way to combine the windows is tried on earlier ones, and the way whose plans fit the window
after them best is used. Its score is what to expect of the map.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rljob.planner.experts.placement import Counts, Loads, device_loads, imbalance, place

TRIALS_MAX = 4
"""Windows that the ways are tried on; each costs a plan per way."""
SCALE = 1 << 20
"""Largest load after flattening, because loads are integers."""


@dataclass(frozen=True)
class Way:
    """How windows become the loads of a plan."""

    last: bool
    """Only the last window, instead of the sum of all."""
    exponent: float
    """Loads are raised to it: below 1, an expert that is far from the mean is expected to return towards it."""

    def __str__(self) -> str:
        which = "the last window" if self.last else "the sum of the windows"
        return which if self.exponent == 1 else f"{which}, to the power of {self.exponent}"

    def loads(self, windows: Counts) -> Loads:
        """Return (layers, experts) loads from (windows, layers, experts) counts, oldest first."""
        loads = windows[-1] if self.last else windows.sum(axis=0)
        if self.exponent == 1:
            return loads
        largest = np.maximum(loads.max(axis=1, keepdims=True), 1)
        return np.rint((loads / largest) ** self.exponent * SCALE).astype(np.int64)


WAYS = tuple(Way(last, exponent) for exponent in (1.0, 0.8, 0.5) for last in (False, True))
"""In the order of preference when scores are equal."""


@dataclass(frozen=True)
class Choice:
    """The way to combine the windows, and what its plans achieved."""

    way: Way
    expected: float | None
    """Largest load of a device over the mean in the window after the plan, on average; None without a trial."""


def choose_way(windows: Counts, devices: int, replicas: int) -> Choice:
    """Return the way whose plans fit the following windows best."""
    if len(windows) < 2:
        return Choice(WAYS[0], None)
    ends = range(max(1, len(windows) - TRIALS_MAX), len(windows))
    scores = {
        way: sum(_score(way, windows[:end], windows[end], devices, replicas) for end in ends) / len(ends)
        for way in WAYS
    }
    best = min(WAYS, key=lambda way: scores[way])
    return Choice(best, scores[best])


def _score(way: Way, before: Counts, after: Loads, devices: int, replicas: int) -> float:
    placement = place(way.loads(before), devices, replicas)
    return float(imbalance(device_loads(after, placement)).mean())
