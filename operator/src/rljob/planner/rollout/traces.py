"""Lengths of responses: how a trace is drawn from a distribution, its seed and the similarity within prompts."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from rljob.planner.rollout.step_time import Origin

KEPT = 8
"""Numbers of responses whose lengths a distribution keeps: all seeds of a batch have the same ones."""


@dataclass(frozen=True)
class RolloutRequest:
    """One response to generate."""

    prompt: int
    """Number of its prompt, which counts from 0 in the order of the trace."""
    tokens: int
    """Tokens of the response, at least 1."""
    prompt_tokens: int = 0


@dataclass(frozen=True)
class Trace:
    """Responses of one rollout. Those to one prompt are adjacent."""

    name: str
    requests: tuple[RolloutRequest, ...]
    origin: Origin
    source: str

    @property
    def mean(self) -> float:
        """Mean length."""
        return sum(request.tokens for request in self.requests) / len(self.requests)

    @property
    def size_biased_mean(self) -> float:
        """Mean length of the response that a random token belongs to."""
        return sum(request.tokens**2 for request in self.requests) / sum(request.tokens for request in self.requests)

    @property
    def longest(self) -> int:
        """Tokens of the longest response."""
        return max(request.tokens for request in self.requests)


@dataclass(frozen=True)
class TraceRecipe:
    """How a trace is drawn: a distribution of lengths, and how similar the responses to one prompt are.

    A Gaussian copula orders the responses; the lengths themselves are the distribution's quantiles, so every seed has
    exactly the same lengths and only their order differs.
    """

    name: str
    quantiles: Callable[[int], Sequence[int]]
    """The lengths of n responses, ascending."""
    group_correlation: float
    """Correlation of the responses to one prompt (rho)."""
    source: str
    neighbour_correlation: float = 0.0
    """Correlation of the means of neighbouring prompts, in blocks of `neighbours`."""
    neighbours: int = 1
    seed: int = 0
    prompt_tokens: int = 0
    origin: Origin = Origin.PUBLISHED

    def draw(self, prompts: int, samples: int, seed: int | None = None) -> Trace:
        """Return prompts × samples responses."""
        dice = random.Random(self.seed if seed is None else seed)  # noqa: S311 - a simulation
        values: list[float] = []
        own, shared = math.sqrt(1 - self.group_correlation), math.sqrt(self.group_correlation)
        alone, together = math.sqrt(1 - self.neighbour_correlation), math.sqrt(self.neighbour_correlation)
        block = 0.0
        for prompt in range(prompts):
            if prompt % self.neighbours == 0:
                block = dice.gauss(0, 1)
            mean = together * block + alone * dice.gauss(0, 1)
            values += [shared * mean + own * dice.gauss(0, 1) for _ in range(samples)]
        tokens = [0] * len(values)
        order = sorted(range(len(values)), key=values.__getitem__)
        for place, length in zip(order, self.quantiles(len(values)), strict=True):
            tokens[place] = length
        requests = tuple(RolloutRequest(i // samples, length, self.prompt_tokens) for i, length in enumerate(tokens))
        return Trace(self.name, requests, self.origin, self.source)


def from_survival(counts: Sequence[int], step: int, cap: int) -> Callable[[int], Sequence[int]]:
    """Return the quantiles of a published curve: `counts[k]` responses are longer than k × step tokens.

    Between two points the number of survivors falls exponentially. The last ones have `cap` tokens.
    """

    @functools.lru_cache(maxsize=KEPT)
    def lengths(responses: int) -> tuple[int, ...]:
        scale = counts[0] / responses
        ascending = []
        for index in range(responses):
            alive = (responses - index - 0.5) * scale
            k = next((k for k in range(1, len(counts)) if counts[k] < alive), len(counts))
            if k == len(counts):
                ascending.append(cap)
                continue
            share = math.log(counts[k - 1] / alive) / math.log(counts[k - 1] / counts[k])
            ascending.append(max(1, round(step * (k - 1 + share))))
        return tuple(ascending)

    return lengths


def lognormal(mean: float, sigma: float, cap: int) -> Callable[[int], Sequence[int]]:
    """Return the quantiles of a lognormal distribution that is cut at `cap` and has this mean after the cut."""

    @functools.lru_cache(maxsize=KEPT)
    def lengths(responses: int) -> tuple[int, ...]:
        normal = NormalDist()

        def cut_mean(mu: float) -> float:
            edge = (math.log(cap) - mu) / sigma
            body = math.exp(mu + sigma * sigma / 2) * normal.cdf(edge - sigma)
            return body + cap * (1 - normal.cdf(edge))

        low, high = 0.0, math.log(cap) + sigma
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if cut_mean(middle) < mean else (low, middle)
        points = ((index + 0.5) / responses for index in range(responses))
        return tuple(min(cap, max(1, round(math.exp(low + sigma * normal.inv_cdf(point))))) for point in points)

    return lengths
