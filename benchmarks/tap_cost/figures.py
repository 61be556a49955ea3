"""From measured steps to the cost of the taps: which step has them on, paired differences, and their spread. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

WARM_UP_PAIRS = 2
"""The first steps compile and fill caches."""
RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 1


def is_on(index: int) -> bool:
    """Tell whether the taps are on in a step: steps come in pairs, and each pair begins with the other arm.

    On, off, off, on: every pair holds one of each, and a drift of the step time cancels from pair to pair.
    """
    pair, second = divmod(index, 2)
    return (pair + second) % 2 == 0


@dataclass(frozen=True)
class Step:
    """One measured step."""

    index: int
    on: bool
    seconds: float
    hooks: float
    stop_requests: float
    router: float
    requests: float
    processor: float
    """Processor seconds of everything in the container: all of verl, Ray and vLLM, the exporter, and who scrapes it."""
    holders: float
    """Processor seconds of the processes that taps are in: trainer, router and exporter, with all else they do."""

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """Read a line of the file; steps are counted from 1 there."""
        return cls(
            index=int(told["step"]) - 1,
            on=bool(told["on"]),
            seconds=float(told["seconds"]),
            hooks=float(told["hooks"]),
            stop_requests=float(told["stop_requests"]),
            router=float(told["router"]),
            requests=float(told["requests"]),
            processor=float(told["processor"]),
            holders=float(told["holders"]),
        )

    @property
    def others(self) -> float:
        """Processor seconds of the processes without taps: equal work in every step, it tells the machine's pace."""
        return self.processor - self.holders

    @property
    def within(self) -> float:
        """Seconds within our code, as if nothing of it ran beside the step."""
        return self.hooks + self.stop_requests + self.router


@dataclass(frozen=True)
class Estimate:
    """A mean with its spread."""

    mean: float
    low: float
    """Of the 95 % interval."""
    high: float
    count: int

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Write it."""
        low, high = (f"{value * scale:.{digits}f}" for value in (self.low, self.high))
        return f"{self.mean * scale:.{digits}f} [{low} … {high}]"


def bootstrap(values: Sequence[float], statistic: Callable[[Sequence[float]], float] = statistics.fmean) -> Estimate:
    """Estimate a statistic and its interval by drawing the values anew (percentile bootstrap)."""
    draw = random.Random(SEED)  # noqa: S311 - resampling
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Estimate(
        statistic(values), drawn[int(tail * RESAMPLES)], drawn[int((1 - tail) * RESAMPLES) - 1], len(values)
    )


def pairs(steps: Iterable[Step]) -> list[tuple[Step, Step]]:
    """Give the pairs (on, off) that are complete, without the first ones."""
    by_index = {step.index: step for step in steps}
    found = []
    for pair in range(WARM_UP_PAIRS, max(by_index, default=0) // 2 + 1):
        both = [by_index[index] for index in (2 * pair, 2 * pair + 1) if index in by_index]
        if sorted(step.on for step in both) == [False, True]:
            on, off = sorted(both, key=lambda step: not step.on)
            found.append((on, off))
    return found


@dataclass(frozen=True)
class Cost:
    """What the taps cost."""

    off_seconds: float
    """Median step without taps."""
    difference: Estimate
    """On less off, as a share of the mean step without taps."""
    processor: Estimate
    """The same of processor time: waits and a neighbour's turn on a core are not in it."""
    holders: Estimate
    """Processor time of the processes that taps are in, on less off, as a share of the mean step without taps."""
    paced: Estimate
    """The same, each step's at the mean pace of the machine: what makes the others slower makes the holders slower."""
    holders_seconds: float
    """Median of it in a step without taps."""
    within: Estimate
    """Seconds in our code a step with taps, as a share of that step."""
    within_seconds: float
    """Median."""
    parts: Mapping[str, float]
    """Mean seconds a step with taps, by part."""
    requests: float
    """Median requests a step."""


def cost(measured: Sequence[tuple[Step, Step]]) -> Cost:
    """Compute the cost from pairs of steps."""
    usual = statistics.fmean(off.seconds for _, off in measured)
    worked = statistics.fmean(off.processor for _, off in measured)
    ons = [on for on, _ in measured]
    pace = statistics.fmean(step.others for pair in measured for step in pair)
    paced = [pace * (on.holders / on.others - off.holders / off.others) for on, off in measured]
    return Cost(
        off_seconds=statistics.median(off.seconds for _, off in measured),
        difference=bootstrap([(on.seconds - off.seconds) / usual for on, off in measured]),
        processor=bootstrap([(on.processor - off.processor) / worked for on, off in measured]),
        holders=bootstrap([(on.holders - off.holders) / usual for on, off in measured]),
        paced=bootstrap([seconds / usual for seconds in paced]),
        holders_seconds=statistics.median(off.holders for _, off in measured),
        within=bootstrap([on.within / on.seconds for on in ons]),
        within_seconds=statistics.median(on.within for on in ons),
        parts={
            "hooks of the trainer": statistics.fmean(on.hooks for on in ons),
            "looks for stop requests": statistics.fmean(on.stop_requests for on in ons),
            "clock of the router": statistics.fmean(on.router for on in ons),
        },
        requests=statistics.median(on.requests for on in ons),
    )
