"""What a simulated rollout comes to: its duration, where the time went, and how far it is from the best possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rljob.planner.rollout.traces import Trace

TAIL = 0.9
"""The tail begins when this share of the responses is finished, as in `rljob/rollout_tail_ratio`."""


@dataclass(frozen=True)
class GearChange:
    """From a step on, decoding uses another captured size."""

    step: int
    seconds: float
    gear: int


@dataclass
class Totals:
    """Sums over the windows of a simulation."""

    windows: int = 0
    """Intervals between events that were computed: the work of the simulation."""
    steps: int = 0
    seconds: float = 0.0
    idle_rank_seconds: float = 0.0
    """Time of ranks without a running response, which take part in every step."""
    row_seconds: float = 0.0
    """Rows of the captured batch × time, summed over all ranks."""
    padded_row_seconds: float = 0.0
    """The part of `row_seconds` without a response, on ranks that have responses."""
    prefill_seconds: float = 0.0
    move_seconds: float = 0.0
    """Exchange of loads and transfer of caches."""
    moves: int = 0
    moved_tokens: int = 0
    """Tokens of caches that were transferred."""
    preemptions: int = 0
    """Responses whose cache was dropped because the rank's was full."""
    recomputed_tokens: int = 0


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation. Times are seconds."""

    ranks: int
    responses: int
    tokens: int
    totals: Totals
    first_idle: float
    """Share of the rollout for which the rank that finished first was idle (the recipes' first-DP idle)."""
    idle: float
    """Share of all ranks' time without a response."""
    padding: float
    """Share of the rows of captured batches that ranks with responses left empty."""
    tail: float
    """Share of the rollout after nine tenths of the responses were finished."""
    floor: float
    """No order, placement or move can be faster: the longest response alone, or all tokens in the cheapest rows."""
    finishes: tuple[float, ...]
    """When each response finished, ascending."""
    gears: tuple[GearChange, ...]

    @property
    def makespan(self) -> float:
        """Duration of the rollout."""
        return self.totals.seconds

    @property
    def step_seconds(self) -> float:
        """Mean duration of a decoding step, with all that interrupts it."""
        return self.makespan / self.totals.steps

    @property
    def tokens_per_second(self) -> float:
        """Response tokens per second of all ranks together."""
        return self.tokens / self.makespan

    def finished_by(self, share: float) -> float:
        """Return when a share of the responses was finished."""
        return self.finishes[min(len(self.finishes), max(1, math.ceil(share * len(self.finishes)))) - 1]


def summarize(
    trace: Trace,
    totals: Totals,
    last_busy: Sequence[float],
    finishes: Sequence[float],
    gears: Sequence[GearChange],
    floor: float,
) -> Outcome:
    """Return the outcome; `last_busy` is when each rank had its last response."""
    seconds, ranks = totals.seconds, len(last_busy)
    tail_begin = finishes[math.ceil(TAIL * len(finishes)) - 1]
    return Outcome(
        ranks=ranks,
        responses=len(finishes),
        tokens=sum(request.tokens for request in trace.requests),
        totals=totals,
        first_idle=1 - min(last_busy) / seconds,
        idle=totals.idle_rank_seconds / (ranks * seconds),
        padding=totals.padded_row_seconds / totals.row_seconds,
        tail=1 - tail_begin / seconds,
        floor=floor,
        finishes=tuple(finishes),
        gears=tuple(gears),
    )
