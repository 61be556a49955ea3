"""`rljob plan rollout`: how long a job's rollout takes by policy of placement, as a table, as data and as a page.

`rljob.planner.rollout` simulates; this module reads the trace and formats the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.cli.errors import UsageError
from rljob.planner.rollout.published import RECIPES
from rljob.planner.rollout.recorded import LINE_MAX, TraceError, read_trace
from rljob.planner.rollout.setup import Row, Setup, floor_of, lengths_for, simulate_policies
from rljob.planner.rollout.traces import Trace

NAME_WIDTH = 24
TODAY = "interleaved + gears"
"""How verl 0.9.1 spreads a batch: each response to the replica and the rank with the fewest."""
HEAD = (
    f"{'policy':<{NAME_WIDTH}}{'seconds':>9}{'over floor':>12}{'idle':>8}{'first DP idle':>15}{'padding':>9}{'tail':>8}"
    f"{'tokens/s/card':>15}{'moves':>8}"
)


@dataclass(frozen=True)
class Lengths:
    """Which lengths to simulate."""

    trace: Path | None = None
    """File with the responses of a run."""
    name: str | None = None
    """Name of a published distribution."""
    seed: int | None = None


@dataclass(frozen=True)
class RolloutPlan:
    """A job's rollout and what each policy makes of it."""

    setup: Setup
    trace: Trace
    rows: Sequence[Row]

    @property
    def floor(self) -> float:
        """Seconds that no policy can beat."""
        return floor_of(self.rows)

    def over_floor(self, row: Row) -> float:
        """Return the regret of a policy: what it takes more than the floor, as a share of the floor."""
        return row.outcome.makespan / self.floor - 1

    def tokens_per_card_second(self, row: Row) -> float:
        """Return the response tokens per second and card."""
        return row.outcome.tokens_per_second * self.setup.dies_per_card / self.setup.devices

    def notes(self) -> Iterator[str]:
        """Yield what the simulation leaves out, and where recorded lengths differ from a step of the job."""
        if (caveat := self.setup.caveat) is not None:
            yield caveat
        responses, longest = self.setup.prompts * self.setup.samples, self.trace.longest
        if len(self.trace.requests) != responses:
            yield (
                f"the trace has {len(self.trace.requests):,} responses, a step of the job {responses:,} "
                f"(trainer.globalBatchSize {self.setup.prompts} × trainer.samplesPerPrompt {self.setup.samples}); the "
                "seconds are those of the trace"
            )
        if longest > self.setup.response_tokens:
            yield (
                f"the trace's longest response has {longest:,} tokens, but data.maxResponseTokens ends one at "
                f"{self.setup.response_tokens:,}; record a run of this job, or raise the field"
            )


def plan_rollout(name: str, setup: Setup, lengths: Lengths) -> RolloutPlan:
    """Simulate a job's rollout. Raise UsageError if its lengths cannot be read, or fit into no cache."""
    trace = trace_of(setup, lengths)
    try:
        return RolloutPlan(setup, trace, simulate_policies(setup, trace))
    except ValueError as error:
        raise UsageError(
            f"{name}: {error}; `rljob plan memory` shows what fills the dies: raise rollout.memoryFraction, split the "
            "model further by rollout.parallelism, or lower data.maxResponseTokens"
        ) from error


def trace_of(setup: Setup, lengths: Lengths) -> Trace:
    """Return the recorded lengths, or drawn ones. Raise UsageError if they cannot be read."""
    if (problem := setup.too_large) is not None:
        raise UsageError(f"{problem}; lower trainer.globalBatchSize or the number of nodes")
    if lengths.trace is not None:
        try:
            with lengths.trace.open(encoding="utf-8-sig", errors="replace") as file:
                # A line is bounded, so that a file without line ends takes no memory.
                return read_trace(lengths.trace.name, iter(lambda: file.readline(LINE_MAX + 1), ""))
        except OSError as error:
            raise UsageError(f"{lengths.trace}: {error.strerror}; pass a file with one response a line") from error
        except TraceError as error:
            raise UsageError(str(error)) from error
    recipe = RECIPES[lengths.name] if lengths.name else lengths_for(setup)
    return recipe.draw(setup.prompts, setup.samples, lengths.seed)


def rollout_table(name: str, plan: RolloutPlan) -> str:
    """Return the table of a job."""
    setup, trace = plan.setup, plan.trace
    step = setup.engine.step_time
    several = "replica" if setup.replicas == 1 else "replicas"
    cache = setup.engine.cache_tokens
    batch = f"{len(trace.requests):,} responses on {setup.devices} devices: {setup.replicas} {several}"
    drawn = f"mean {trace.mean:,.0f}, longest {trace.longest:,} tokens"
    lines = [
        f"{name}: {batch} of {setup.engine.ranks} ranks, up to {setup.engine.sequences} responses at a time on a rank",
        f"lengths ({trace.origin.value}): {drawn}: {trace.source}",
        f"step time ({step.origin.value}): {step.source}",
        f"cache (modelled): {'never full' if cache is None else f'{cache:,} tokens of a rank'}",
        *(f"note: {note}" for note in plan.notes()),
        "",
        HEAD,
    ]
    lines += [
        f"{row.policy.name + (' *' if row.policy.name == TODAY else ''):<{NAME_WIDTH}}{row.outcome.makespan:>9,.0f}"
        f"{plan.over_floor(row):>12.1%}{row.outcome.idle:>8.1%}{row.outcome.first_idle:>15.1%}{row.outcome.padding:>9.1%}"
        f"{row.outcome.tail:>8.1%}{plan.tokens_per_card_second(row):>15.1f}{row.outcome.totals.moves:>8,}"
        for row in plan.rows
    ]
    lines += [
        "",
        f"floor: {plan.floor:,.0f} s, which no placement or move can beat with these captured sizes",
        "* as verl 0.9.1 spreads responses; no engine of today moves running responses between ranks",
        "all seconds are modelled: a simulation in which the ranks of a replica decode in lockstep",
    ]
    return "\n".join(lines)


def rollout_document(namespace: str, name: str, plan: RolloutPlan) -> dict[str, Any]:
    """Return the same as data."""
    setup, trace, step = plan.setup, plan.trace, plan.setup.engine.step_time
    return {
        "namespace": namespace,
        "job": name,
        "devices": setup.devices,
        "replicas": setup.replicas,
        "ranksPerReplica": setup.engine.ranks,
        "sequencesPerRank": setup.engine.sequences,
        "captureSizes": list(setup.gears),
        "cacheTokensPerRank": setup.engine.cache_tokens,
        "lengths": {
            "name": trace.name,
            "origin": trace.origin.value,
            "source": trace.source,
            "responses": len(trace.requests),
            "meanTokens": round(trace.mean, 2),
            "longestTokens": trace.longest,
        },
        "stepTime": {"origin": step.origin.value, "source": step.source},
        "notes": list(plan.notes()),
        "floorSeconds": round(plan.floor, 3),
        "policies": [_row_document(plan, row) for row in plan.rows],
    }


def _row_document(plan: RolloutPlan, row: Row) -> dict[str, Any]:
    outcome, totals = row.outcome, row.outcome.totals
    return {
        "name": row.policy.name,
        "asToday": row.policy.name == TODAY,
        "origin": "modelled",
        "seconds": round(outcome.makespan, 3),
        "overFloor": round(plan.over_floor(row), 4),
        "steps": totals.steps,
        "stepSeconds": round(outcome.step_seconds, 5),
        "idle": round(outcome.idle, 4),
        "firstDpIdle": round(outcome.first_idle, 4),
        "padding": round(outcome.padding, 4),
        "tail": round(outcome.tail, 4),
        "tokensPerSecondPerCard": round(plan.tokens_per_card_second(row), 2),
        "prefillSeconds": round(totals.prefill_seconds, 3),
        "moves": totals.moves,
        "movedTokens": totals.moved_tokens,
        "moveSeconds": round(totals.move_seconds, 3),
        "preemptions": totals.preemptions,
        "gears": [
            {"step": change.step, "seconds": round(change.seconds, 3), "size": change.gear} for change in outcome.gears
        ],
    }
