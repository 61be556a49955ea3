"""One job's rollout, ready to be simulated: its engine, its batch, and lengths of responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rljob.planner.rollout import published
from rljob.planner.rollout.outcome import Outcome
from rljob.planner.rollout.policies import Policy, policies
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.simulation import simulate
from rljob.planner.rollout.step_time import Origin
from rljob.planner.rollout.traces import Trace, TraceRecipe, lognormal
from rljob_runtime.contract.response_lengths import RESPONSES_MAX

MEAN_SHARE = 7345 / published.LONGEST
"""Mean length as a share of the longest allowed one, of deepscaler with Qwen3-235B."""
SIGMA, GROUP_CORRELATION = 0.7, 0.86
"""As fitted for deepscaler."""
DEVICES_MAX = 1 << 17
WORK_MAX = 1 << 25
"""Largest devices × responses that is simulated: each replica keeps 32 bytes for every response."""
GRAPHS_MAX = 512
"""Largest size that vLLM captures by default (vllm/config/vllm.py:1668-1682, 0.23.0)."""


@dataclass(frozen=True)
class Setup:
    """What is simulated."""

    engine: Engine
    replicas: int
    gears: tuple[int, ...]
    """Captured sizes, ascending."""
    prompts: int
    samples: int
    prompt_tokens: int
    """Largest number of tokens of a prompt."""
    response_tokens: int
    """Largest number of tokens of a response."""
    devices: int
    dies_per_card: int
    runs_ahead: bool = False
    """Whether prompts run ahead of the step that trains them."""

    @property
    def caveat(self) -> str | None:
        """Return what the simulation does not show; None if it shows a step as the job runs it."""
        if not self.runs_ahead:
            return None
        return (
            "simulated as a synchronous step; where prompts run ahead, a step ends when enough responses have ended, "
            "and the longest ones pause"
        )

    @property
    def ranks(self) -> int:
        """Ranks of all replicas."""
        return self.replicas * self.engine.ranks

    @property
    def responses(self) -> int:
        """Responses of a step."""
        return self.prompts * self.samples

    @property
    def too_large(self) -> str | None:
        """Return what is too much to be simulated; None if it can be."""
        if self.devices > DEVICES_MAX:
            return f"{self.devices:,} devices; up to {DEVICES_MAX:,} can be simulated"
        if self.responses > RESPONSES_MAX:
            return f"{self.responses:,} responses a step; up to {RESPONSES_MAX:,} can be simulated"
        if self.devices * self.responses > WORK_MAX:
            most = WORK_MAX // self.responses
            return f"{self.devices:,} devices with {self.responses:,} responses; up to {most:,} can be simulated"
        return None

    @property
    def waits(self) -> bool:
        """Whether more responses are sent than decoded at a time."""
        return self.responses > self.ranks * self.engine.sequences


def default_gears(sequences: int) -> tuple[int, ...]:
    """Return the sizes that vLLM captures where the job lists none (vllm/config/vllm.py:1697-1722, 0.23.0)."""
    largest = min(sequences, GRAPHS_MAX)
    sizes = [1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
    return tuple(size for size in sizes if size <= largest)


def usable_gears(captured: Sequence[int], sequences: int) -> tuple[int, ...]:
    """Return the sizes that a rank uses: up to `sequences`, which is added because a larger batch runs as it is."""
    return tuple(sorted({size for size in captured if size < sequences} | {sequences}))


def lengths_for(setup: Setup) -> TraceRecipe:
    """Return the published lengths for this longest response, else assumed ones."""
    for recipe in (published.DEEPSCALER, published.DAPO, published.DEEPSCALER_3K):
        if setup.response_tokens == LONGEST_OF[recipe.name]:
            return recipe
    mean = MEAN_SHARE * setup.response_tokens
    return TraceRecipe(
        name="assumed",
        quantiles=lognormal(mean, SIGMA, setup.response_tokens),
        group_correlation=GROUP_CORRELATION,
        prompt_tokens=min(setup.prompt_tokens, 74),
        origin=Origin.MODELLED,
        source=f"no lengths are known for this job: lognormal with mean {mean:,.0f}, sigma and similarity of "
        "deepscaler with Qwen3-235B; pass lengths of a run with --trace",
    )


LONGEST_OF = {"deepscaler-32k": published.LONGEST, "dapo-34k": 34_816, "deepscaler-3k": 3072}
"""Longest response of the traces that stand for jobs with this limit."""


@dataclass(frozen=True)
class Row:
    """One policy and the result of its simulation."""

    policy: Policy
    outcome: Outcome


def floor_of(rows: Sequence[Row]) -> float:
    """Return the smallest floor, which no policy can beat with these captured sizes."""
    return min(row.outcome.floor for row in rows)


def simulate_policies(setup: Setup, trace: Trace) -> tuple[Row, ...]:
    """Return the outcome of every policy."""
    batch = min(setup.engine.sequences, -(-len(trace.requests) // setup.ranks))
    return tuple(
        Row(policy, simulate(trace, setup.engine, policy, setup.replicas))
        for policy in policies(setup.gears, batch=batch, waiting=setup.waits)
    )
