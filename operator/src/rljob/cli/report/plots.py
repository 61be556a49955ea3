"""The table of a report's plots, and how records become their values. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rljob.cli.report.run import Attempt, ReportRun, step_seconds
from rljob.cli.report.svg import Bar, Mark, Plot, Series, Span, draw, draw_bars, number
from rljob.reading.records import Record
from rljob_runtime.contract import StepMetric

VALIDATION = "rljob/validation/score/mean"
STAGES = (
    ("gen", "rollout, waited for"),
    ("reward", "reward"),
    ("old_log_prob", "old log probabilities"),
    ("ref", "reference"),
    ("values", "values"),
    ("adv", "advantages"),
    ("update_critic", "critic update"),
    ("update_actor", "actor update"),
    ("update_weights", "weights to rollout"),
    ("save_checkpoint", "checkpoint"),
)
"""Stages that the trainer measures, in their order in a step (verl/trainer/ppo/v1/trainer_base.py, 0.9.1)."""
VALIDATION_SECONDS = "timing_s/testing"
"""verl measures a validation after the step, which does not contain it."""
OTHER = "other"
TIMELINE_POINTS = 200
SECONDS_AN_HOUR = 3600.0
HOURS_FROM = 2 * SECONDS_AN_HOUR
"""Durations from this value on are shown in hours, smaller ones in minutes."""
KINDS = {"Succeeded": "good", "running": "good", "Failed": "bad", "Lost": "bad"}


@dataclass(frozen=True)
class Figures:
    """A plot of metrics over steps."""

    name: str
    title: str
    note: str
    unit: str
    series: tuple[tuple[str, str], ...]
    """Metrics and their labels."""
    scale: float = 1.0
    optional: bool = False
    """Whether the plot is omitted if no step has its metrics."""


TABLE = (
    Figures(
        "reward",
        "Reward",
        "Mean score of each step's responses; dots are validations.",
        "score",
        ((StepMetric.REWARD, "training"), (VALIDATION, "validation")),
    ),
    Figures(
        "tps",
        "Throughput",
        "Prompt and response tokens of the trained batch per second and card, divided by the duration of each stage.",
        "tokens/s/card",
        (
            (StepMetric.STEP_TPS_PER_CARD, "whole step"),
            ("rljob/tokens_per_second/rollout/prompt_and_response/card", "rollout"),
            ("rljob/tokens_per_second/update/prompt_and_response/card", "actor update"),
        ),
    ),
    Figures(
        "idle",
        "Idle data-parallel replicas",
        "Share of the rollout that replicas wait for the slowest one: all replicas together, and the first "
        "one to finish.",
        "%",
        ((StepMetric.CLUSTER_IDLE, "all replicas"), (StepMetric.FIRST_DP_IDLE, "first to finish")),
        scale=100,
    ),
    Figures(
        "lengths",
        "Lengths",
        "Tokens of responses and prompts.",
        "tokens",
        (
            ("response_length/mean", "response, mean"),
            ("response_length/max", "response, longest"),
            ("prompt_length/mean", "prompt, mean"),
        ),
    ),
    Figures(
        "validation",
        "Validation time",
        "Duration of the validation after a step.",
        "s",
        ((VALIDATION_SECONDS, "validation"),),
        optional=True,
    ),
    Figures(
        "entropy",
        "Entropy",
        "Entropy of the policy; exploration ends when it collapses.",
        "nats",
        (("actor/entropy", "entropy"),),
        optional=True,
    ),
    Figures(
        "gradient",
        "Gradient norm",
        "Norm of the actor's gradient, before clipping.",
        "norm",
        (("actor/grad_norm", "actor"),),
        optional=True,
    ),
)


def figures(run: ReportRun) -> Iterator[str]:
    """Return every figure of the report, in order."""
    first, *others = [_figure(run, row) for row in TABLE]
    yield first
    yield draw(timeline(run))
    yield draw(_stages(run))
    yield from filter(None, others)
    yield usage(run)


def _figure(run: ReportRun, row: Figures) -> str:
    by_step = {record.step: record for record in run.steps}
    checked = {record.step: record.metrics[VALIDATION] for record in run.records if VALIDATION in record.metrics}
    x = sorted(by_step.keys() | checked.keys()) if row.name == "reward" else sorted(by_step)

    def value(step: int, key: str) -> float:
        if key == VALIDATION:
            return checked.get(step, math.nan)
        return by_step[step].metrics.get(key, math.nan) * row.scale if step in by_step else math.nan

    series = [Series(label, [value(step, key) for step in x]) for key, label in row.series]
    dotted = frozenset(label for key, label in row.series if key == VALIDATION)
    plot = Plot(row.name, row.title, row.note, row.unit, x, "step", series, marks=_marks(run), dotted=dotted)
    return "" if row.optional and not plot.points else draw(plot)


def _stages(run: ReportRun) -> Plot:
    steps = run.steps
    series = [
        Series(label, [record.metrics.get(f"timing_s/{stage}", math.nan) for record in steps])
        for stage, label in STAGES
    ]
    series.append(Series(OTHER, [_other(record) for record in steps]))
    return Plot(
        "stages",
        "Step time by stage",
        "Seconds of each stage as the trainer measured them, stacked. A validation comes after its step.",
        "s",
        [record.step for record in steps],
        "step",
        [one for one in series if any(value > 0 for value in one.values)],
        marks=_marks(run),
        stacked=True,
    )


def _other(record: Record) -> float:
    """Return the part of the step that is in no stage."""
    known = (record.metrics.get(f"timing_s/{stage}", 0.0) for stage, _ in STAGES)
    return max(0.0, step_seconds(record) - math.fsum(known))


def _marks(run: ReportRun) -> list[Mark]:
    """Return a mark for each step at which another attempt resumes."""
    why = {attempt.number: attempt for attempt in run.attempts}
    marks = []
    for before, after in pairwise(run.steps):
        if before.attempt != after.attempt:
            ended = why.get(before.attempt)
            reason = f": the previous attempt ended {_ending(ended)}" if ended is not None and ended.outcome else ""
            marks.append(Mark(after.step - 0.5, f"attempt {after.attempt} resumes at step {after.step}{reason}"))
    return marks


def _ending(attempt: Attempt) -> str:
    return f"{attempt.outcome} ({attempt.reason})" if attempt.reason else attempt.outcome


def timeline(run: ReportRun) -> Plot:
    """Return the plot of steps over time with the attempts behind it: waiting, lost and repeated steps are visible."""
    known = [moment for a in run.attempts for moment in (a.begin, a.end) if math.isfinite(moment)]
    times = sorted([*known, *(record.time for record in run.records if record.trained)])
    origin = run.created if math.isfinite(run.created) else times[0] if times else 0.0
    length = times[-1] - origin if times else 0.0
    unit, scale = ("hours", SECONDS_AN_HOUR) if length >= HOURS_FROM else ("minutes", 60.0)
    places = [((moment - origin) / scale, step) for moment, step in _progress(run.records)]
    return Plot(
        "timeline",
        "Attempts over time",
        "Steps over the time since the job was created. Each band is an attempt; gaps between bands are waiting times.",
        "step",
        [x for x, _ in places],
        f"{unit} since the job was created",
        [Series("step", [step for _, step in places])],
        spans=[_span(attempt, origin, times[-1], scale) for attempt in run.attempts if math.isfinite(attempt.begin)],
        x_unit=unit,
    )


def _progress(records: Sequence[Record]) -> Iterator[tuple[float, float]]:
    """Return times and steps, thinned out, with a gap between attempts."""
    trained = sorted((r for r in records if r.trained), key=lambda record: (record.attempt, record.time))
    every = -(-len(trained) // TIMELINE_POINTS) or 1
    for index, record in enumerate(trained):
        following = trained[index + 1] if index + 1 < len(trained) else None
        last = following is None or following.attempt != record.attempt
        if index % every == 0 or last:
            yield record.time, float(record.step)
        if last and following is not None:
            yield record.time, math.nan


def _span(attempt: Attempt, origin: float, latest: float, scale: float) -> Span:
    end = attempt.end if math.isfinite(attempt.end) else max(latest, attempt.begin)
    resumed = f", resumed from step {attempt.resumed_from}" if attempt.resumed_from else ""
    message = f"\n{attempt.message}" if attempt.message else ""
    ending = _ending(attempt) or "with an unknown outcome"
    return Span(
        (attempt.begin - origin) / scale,
        (end - origin) / scale,
        str(attempt.number),
        f"attempt {attempt.number}: {ending}, last step {attempt.last_step}{resumed}{message}",
        KINDS.get(attempt.outcome, "other"),
    )


def usage(run: ReportRun) -> str:
    """Return the plot of the devices' time: held, and used for the model."""
    rows = [(f"attempt {a.number}", a.held_seconds, a.productive_seconds) for a in run.attempts]
    rows = [row for row in rows if math.isfinite(row[1])]
    if len(rows) != 1 and run.held_seconds > 0:
        rows.append(("all", run.held_seconds, run.productive_seconds))
    most = max((held for _, held, _ in rows), default=0.0)
    unit, scale = ("device-hours", SECONDS_AN_HOUR) if most >= HOURS_FROM else ("device-minutes", 60.0)
    bars = [_bar(label, unit, held / scale, (0.0 if math.isnan(kept) else kept) / scale) for label, held, kept in rows]
    note = (
        f"How long the job's {run.devices} devices were held, and how much of that went into steps that no "
        "later attempt repeated. The rest is startup, saving and lost steps."
    )
    return draw_bars("usage", "Usage", note, unit, bars)


def _bar(label: str, unit: str, held: float, kept: float) -> Bar:
    share = f" ({kept / held:.0%})" if held > 0 else ""
    parts = [("in the model", min(kept, held)), ("the rest", max(0.0, held - kept))]
    return Bar(label, parts, f"{number(held)} {unit}{share}")
