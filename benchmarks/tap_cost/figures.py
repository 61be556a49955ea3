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
    """Return whether the taps are on in a step. Steps come in pairs, and pairs alternate in the arm that comes first.

    On, off, off, on: every pair has one of each, and a drift of the step time cancels out from pair to pair.
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
    samples: float
    """Seconds that recording answers of the model takes, which the run does in every step instead of each tenth."""
    router: float
    requests: float
    processor: float
    """CPU seconds of everything in the container: verl, Ray, vLLM, the exporter, and the scraper."""
    holders: float
    """CPU seconds of the processes with taps (trainer, router and exporter), including their other work."""

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """Read a line of the file, in which steps are counted from 1."""
        return cls(
            index=int(record["step"]) - 1,
            on=bool(record["on"]),
            seconds=float(record["seconds"]),
            hooks=float(record["hooks"]),
            stop_requests=float(record["stop_requests"]),
            samples=float(record["samples"]),
            router=float(record["router"]),
            requests=float(record["requests"]),
            processor=float(record["processor"]),
            holders=float(record["holders"]),
        )

    @property
    def others(self) -> float:
        """CPU seconds of the processes without taps.

        Their work is equal in every step, so it shows the machine's pace.
        """
        return self.processor - self.holders

    @property
    def within(self) -> float:
        """Seconds within our code without the answers, as if none of it ran concurrently with the step."""
        return self.hooks + self.stop_requests + self.router


@dataclass(frozen=True)
class Estimate:
    """A mean with its spread."""

    mean: float
    low: float
    """Lower bound of the 95 % interval."""
    high: float
    count: int

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Format it."""
        low, high = (f"{value * scale:.{digits}f}" for value in (self.low, self.high))
        return f"{self.mean * scale:.{digits}f} [{low} … {high}]"


def bootstrap(values: Sequence[float], statistic: Callable[[Sequence[float]], float] = statistics.fmean) -> Estimate:
    """Estimate a statistic and its interval by resampling (percentile bootstrap)."""
    draw = random.Random(SEED)  # noqa: S311 - resampling
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Estimate(
        statistic(values), drawn[int(tail * RESAMPLES)], drawn[int((1 - tail) * RESAMPLES) - 1], len(values)
    )


def pairs(steps: Iterable[Step]) -> list[tuple[Step, Step]]:
    """Return the complete pairs (on, off), without the first ones."""
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
    """The cost of the taps."""

    off_seconds: float
    """Median step without taps."""
    difference: Estimate
    """On minus off, as a fraction of the mean step without taps."""
    processor: Estimate
    """The same for CPU time, which excludes waiting and time that other processes use a core."""
    holders: Estimate
    """CPU time of the processes with taps, on minus off, as a fraction of the mean step without taps."""
    paced: Estimate
    """The same, with each step scaled to the machine's mean pace: what slows down the others slows down the holders."""
    holders_seconds: float
    """Median of it in a step without taps."""
    within: Estimate
    """Seconds in our code per step with taps, as a fraction of that step."""
    within_seconds: float
    """Median."""
    parts: Mapping[str, float]
    """Mean seconds per step with taps, by part."""
    requests: float
    """Median requests per step."""


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
            "polling for stop requests": statistics.fmean(on.stop_requests for on in ons),
            "clock of the router": statistics.fmean(on.router for on in ons),
            "recording answers, of a step that does": statistics.fmean(on.samples for on in ons),
        },
        requests=statistics.median(on.requests for on in ons),
    )
