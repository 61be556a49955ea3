"""The page of `rljob plan rollout`: what each policy makes of a job's rollout, drawn. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from datetime import datetime
from html import escape

from rljob.cli.plan.rollout import TODAY, RolloutPlan
from rljob.cli.report.page import document, section, table
from rljob.cli.report.svg import Bar, Plot, Series, draw, draw_bars, number
from rljob.planner.rollout.outcome import TAIL
from rljob.planner.rollout.setup import Row

POINTS = 239
"""Intervals of time of a plot."""
LABELS = 160.0
HEAD = ("policy", "seconds", "over floor", "idle", "first DP idle", "padding", "tail", "tokens/s/card", "moves")


def rollout_page(plans: Sequence[tuple[str, RolloutPlan]], made: datetime) -> str:
    """Return the page of some jobs' rollouts."""
    title = ", ".join(name for name, _ in plans)
    parts = "".join(_job(name, plan) for name, plan in plans)
    footer = f"<footer>Created {made:%Y-%m-%d %H:%M:%S} UTC by rljob plan rollout; all seconds are modelled.</footer>"
    return document(f"{title} - RLJob rollout plan", f"<main>{parts}</main>{footer}")


def _job(name: str, plan: RolloutPlan) -> str:
    trace, step = plan.trace, plan.setup.engine.step_time
    drawn = f"mean {number(trace.mean)}, longest {number(trace.longest)} tokens"
    facts = (
        f"lengths ({trace.origin.value}): {drawn}: {trace.source}",
        f"step time ({step.origin.value}): {step.source}",
        f"floor: {number(plan.floor)} s, which no placement or move can beat with these captured sizes",
        f"{TODAY}: as verl 0.9.1 spreads responses; no engine of today moves running responses between ranks",
    )
    header = f"<header><h1>{escape(name)}</h1>{''.join(f'<p>{escape(fact)}</p>' for fact in facts)}</header>"
    figures = f'<div class="plots">{_seconds(plan)}{_unfinished(plan)}{_sizes(plan)}</div>'
    rows = [_cells(plan, row) for row in plan.rows]
    return header + figures + section("Policies", table(HEAD, rows, numbers=range(1, len(HEAD))))


def _cells(plan: RolloutPlan, row: Row) -> tuple[str, ...]:
    outcome = row.outcome
    shares = (plan.over_floor(row), outcome.idle, outcome.first_idle, outcome.padding, outcome.tail)
    return (
        row.policy.name,
        f"{outcome.makespan:,.0f}",
        *(f"{share:.1%}" for share in shares),
        f"{plan.tokens_per_card_second(row):.1f}",
        f"{outcome.totals.moves:,}",
    )


def _seconds(plan: RolloutPlan) -> str:
    bars = []
    for row in plan.rows:
        whole, early = row.outcome.makespan, row.outcome.finished_by(TAIL)
        parts = [("nine tenths of the responses", early), ("the last tenth", whole - early)]
        bars.append(Bar(row.policy.name, parts, f"{number(whole)} s"))
    note = "How long the rollout takes with each policy, and how much of it only the last tenth of the responses needs."
    return draw_bars("policies", "Seconds by policy", note, "s", bars, left=LABELS)


def _times(plan: RolloutPlan) -> list[float]:
    end = max(row.outcome.makespan for row in plan.rows)
    return [end * index / POINTS for index in range(POINTS + 1)]


def _unfinished(plan: RolloutPlan) -> str:
    times = _times(plan)
    series = [
        Series(
            row.policy.name,
            [float(row.outcome.responses - bisect.bisect_right(row.outcome.finishes, time)) for time in times],
        )
        for row in plan.rows
    ]
    note = "Responses that are not finished, over the time since the rollout began."
    return draw(
        Plot("unfinished", "Unfinished responses", note, "responses", times, "seconds", series, x_unit="second")
    )


def _sizes(plan: RolloutPlan) -> str:
    times = _times(plan)
    series = []
    for row in plan.rows:
        begins = [change.seconds for change in row.outcome.gears]
        sizes = [
            float(row.outcome.gears[bisect.bisect_right(begins, time) - 1].gear)
            if begins[0] <= time <= row.outcome.makespan
            else float("nan")
            for time in times
        ]
        series.append(Series(row.policy.name, sizes))
    note = (
        "Rows of the captured batch that every rank of the slowest replica computes: its largest number of responses."
    )
    return draw(Plot("sizes", "Captured size", note, "rows", times, "seconds", series, x_unit="second"))
