"""Two runs on one page: their curves over each other, their figures side by side, and the fields that differ. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from rljob.cli.report.page import document, section, table
from rljob.cli.report.plots import VALIDATION, Figures
from rljob.cli.report.run import ReportRun
from rljob.cli.report.svg import Plot, Series, draw
from rljob.reading import figures, records
from rljob_runtime.contract import StepMetric

TABLE = (
    Figures("reward", "Reward", "Mean score of each step's responses.", "score", ((StepMetric.REWARD, ""),)),
    Figures("validation", "Validation", "Mean score of validations.", "score", ((VALIDATION, ""),), optional=True),
    Figures("lengths", "Lengths", "Mean length of responses.", "tokens", (("response_length/mean", ""),)),
    Figures("seconds", "Step time", "Duration of each step.", "s", ((StepMetric.STEP_SECONDS, ""),)),
    Figures(
        "tps",
        "Throughput",
        "Prompt and response tokens of the trained batch per second and card, by the duration of the step.",
        "tokens/s/card",
        ((StepMetric.STEP_TPS_PER_CARD, ""),),
    ),
    Figures("entropy", "Entropy", "Entropy of the policy.", "nats", (("actor/entropy", ""),), optional=True),
)


def compare_page(first: ReportRun, second: ReportRun, made: datetime) -> str:
    """Return the whole file."""
    names = labels(first, second)
    title = " and ".join(names)
    plots = "".join(filter(None, (_plot(row, (first, second), names) for row in TABLE)))
    body = (
        f'<header><h1>{escape(title)}</h1></header><main><div class="plots">{plots}</div>'
        f"{''.join(_sections((first, second), names))}</main>"
        f"<footer>Created {made.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC by rljob report.</footer>"
    )
    return document(f"{title} - RLJob report", body)


def labels(first: ReportRun, second: ReportRun) -> tuple[str, str]:
    """Return the names of the runs, with their namespaces where these differ."""
    several = first.namespace != second.namespace
    names = [f"{run.namespace}/{run.name}" if several else run.name for run in (first, second)]
    return (names[0], names[1]) if names[0] != names[1] else (names[0], f"{names[1]} (second)")


def differing(first: ReportRun, second: ReportRun) -> list[tuple[str, str, str]]:
    """Return the fields that the runs have with different values."""
    one, other = ({setting.field: setting.value for setting in run.settings} for run in (first, second))
    return [
        (field, one.get(field, figures.ABSENT), other.get(field, figures.ABSENT))
        for field in sorted(one.keys() | other.keys())
        if one.get(field) != other.get(field)
    ]


def _plot(row: Figures, runs: Sequence[ReportRun], names: Sequence[str]) -> str:
    key = row.series[0][0]
    by_step = [{each.step: each.metrics[key] for each in run.records if key in each.metrics} for run in runs]
    steps = sorted({step for found in by_step for step in found})
    series = [
        Series(name, [found.get(step, math.nan) for step in steps]) for name, found in zip(names, by_step, strict=True)
    ]
    dotted = frozenset(names) if row.optional and key == VALIDATION else frozenset()
    plot = Plot(row.name, row.title, row.note, row.unit, steps, "step", series, dotted=dotted)
    return "" if row.optional and not plot.points else draw(plot)


def _sections(runs: Sequence[ReportRun], names: Sequence[str]) -> Iterator[str]:
    tables = [records.figure_table(records.figures(run.records)) for run in runs]
    (_, *one), (_, *other) = tables
    rows = [
        (left[0], *(side[place] for place in (1, 2, 3) for side in (left, right)), left[4])
        for left, right in zip(one, other, strict=True)
    ]
    head = ("", *(f"{name}: {what}" for what in ("first 5", "last 5", "median") for name in names), "unit")
    yield section("Figures", table(head, rows, numbers=range(1, 7)))
    state = [
        (name, run.state, str(len(run.steps)), str(len(run.attempts))) for name, run in zip(names, runs, strict=True)
    ]
    yield section("Runs", table(("run", "state", "steps", "attempts"), state, numbers=(2, 3)))
    found = differing(*runs)
    yield section("Fields that differ", table(("field", *names), found) if found else "<p>No field differs.</p>")
    notes = [(name, note) for name, run in zip(names, runs, strict=True) for note in run.notes]
    if notes:
        yield section("Notes", table(("run", "note"), notes))
