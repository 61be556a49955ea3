"""The rollout simulator beside published rollouts: totals, idle shares, the fit of its constants, and other seeds.

    python -m benchmarks.rollout_simulator

Nothing is measured on hardware: the left side was published, the right side is computed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import fmean, quantiles

from rljob.planner.rollout import published
from rljob.planner.rollout.estimate import ReplicaSize, engine
from rljob.planner.rollout.policies import Placement, Policy, policies
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.simulation import simulate
from rljob.planner.rollout.step_time import Origin
from rljob_runtime.planning.architectures import BUILT_IN

SEEDS = 8
MANY = 64


@dataclass(frozen=True)
class _Part:
    """A step that costs only one of the two fitted parts, in units of one."""

    fixed: float
    row: float
    origin: Origin = Origin.MODELLED
    source: str = ""

    def seconds(self, gear: int, context: int, cached: float, steps: int) -> float:
        del context, cached
        return steps * (self.fixed + self.row * gear)


def main() -> None:
    """Print all tables."""
    deepseek()
    qwen()
    fit()
    others()


def deepseek() -> None:
    """Print the published totals, and those of other seeds."""
    trace = published.OPENR1.draw(published.DEEPSEEK_PROMPTS, published.SAMPLES)
    known = {row.policy: row.seconds for row in published.DEEPSEEK_ROWS}
    print("DeepSeek-V3, 128 ranks, 8,192 responses: published s, modelled s, difference; steps of drops; CPU s")
    for policy in policies(published.DEEPSEEK_GEARS):
        begin = time.process_time()
        outcome = simulate(trace, published.DEEPSEEK, policy)
        spent = time.process_time() - begin
        known_seconds = known.get(policy.name)
        beside = (
            f"{known_seconds:,.0f} {outcome.makespan:,.0f} {outcome.makespan / known_seconds - 1:+.1%}"
            if known_seconds
            else "-"
        )
        drops = " ".join(f"{change.gear}@{change.step}" for change in outcome.gears[1:])
        print(f"  {policy.name:<22}{beside:<24}{outcome.makespan:>8,.0f}  {drops}  {spent:.2f}")
    finer = policies((1, 2, 4, 8, 12, 16, 24, 32, 48, 64))[-1]
    print(f"  event rebalance with finer sizes: {simulate(trace, published.DEEPSEEK, finer).makespan:,.0f}")
    adjacent = policies(published.DEEPSEEK_GEARS)[1]
    totals = [
        simulate(published.OPENR1.draw(512, 16, seed), published.DEEPSEEK, adjacent).makespan for seed in range(MANY)
    ]
    low, high = quantiles(totals, n=10)[0], quantiles(totals, n=10)[-1]
    print(f"  adjacent + gears, seeds 0 to {MANY - 1}: mean {fmean(totals):,.0f}, 10 % {low:,.0f}, 90 % {high:,.0f}")


def qwen() -> None:
    """Print the six published rows."""
    print(f"Qwen3-235B, 32 ranks, mean of {SEEDS} seeds: published s, modelled s, difference; first DP idle of both")
    for row in published.QWEN_ROWS:
        policy = Policy("published", row.placement, row.gears)
        found = [
            simulate(published.DEEPSCALER.draw(row.prompts, 16, seed), published.qwen_engine(row.sequences), policy)
            for seed in range(SEEDS)
        ]
        seconds, idle = fmean(one.makespan for one in found), fmean(one.first_idle for one in found)
        print(
            f"  {row.prompts} prompts, {row.sequences} at a time, {row.placement.value:<12}{row.seconds:>7,.0f}"
            f"{seconds:>8,.0f}{seconds / row.seconds - 1:>+8.1%}{row.first_idle:>9.1%}{idle:>8.1%}"
        )


def fit() -> None:
    """Print the two constants of a step that meet the six rows best, by relative squares."""
    sums = []
    for row in published.QWEN_ROWS:
        parts = []
        for part in (_Part(1e-3, 0), _Part(0, 1e-3)):
            rows = replace(published.qwen_engine(row.sequences), step_time=part)
            policy = Policy("published", row.placement, row.gears)
            parts.append(
                fmean(
                    simulate(published.DEEPSCALER.draw(row.prompts, 16, seed), rows, policy).makespan / row.seconds
                    for seed in range(SEEDS)
                )
            )
        sums.append(parts)
    aa, ab, bb = (sum(one[i] * one[j] for one in sums) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(one[i] for one in sums) for i in (0, 1))
    scale = aa * bb - ab * ab
    print(f"fit: {(a * bb - b * ab) / scale:.1f} ms and {(b * aa - a * ab) / scale:.2f} ms for each row")


def others() -> None:
    """Print rollouts that nothing was fitted to."""
    print("nothing was fitted to: published s, modelled s, difference")
    spread = Placement.INTERLEAVED
    wide = published.qwen_engine(256)
    cases = (
        ("DeepSeek-V3 GRPO, 3K", 373.65, published.DEEPSCALER_3K, 512, _deepseek_3k(), (8, 16, 32, 64), 2),
        ("Qwen3-235B DAPO, one round", 3262.39, published.DAPO, 128, published.qwen_engine(64), (8, 16, 32, 64), 1),
        ("Qwen3-235B GRPO, tuned", 4065.71, published.DEEPSCALER, 512, wide, (32, 64, 128, 256), 1),
        ("Qwen3-235B, one size", 6836.0, published.DEEPSCALER, 512, wide, (256,), 1),
    )
    for name, seconds, lengths, prompts, replica, gears, replicas in cases:
        found = simulate(lengths.draw(prompts, 16), replica, Policy("spread", spread, gears), replicas).makespan
        print(f"  {name:<28}{seconds:>8,.0f}{found:>8,.0f}{found / seconds - 1:>+8.1%}")


def _deepseek_3k() -> Engine:
    return engine(BUILT_IN["DeepSeek-V3"], ReplicaSize(2, 64, 128), 64, None)


if __name__ == "__main__":
    main()
