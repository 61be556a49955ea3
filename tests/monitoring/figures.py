"""A run's metrics in Prometheus, compared step by step with the values that follow from the run's own records.

All samples of one scrape have the same time, so the series of a pod at that time are one look at the exporter. The
step's tokens identify the line of steps.jsonl: the trainer appends the line before it updates `rljob_step`, so a scrape
between the two sees the line of the next step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.monitoring.prometheus import Prometheus
from tests.monitoring.questions import Time

Line = Mapping[str, Any]
"""A line of steps.jsonl."""

ALL_TOKENS = 'tokens="prompt_and_response"'
SERIES = {
    "attempt": "rljob_attempt",
    "step": "rljob_step",
    "tokens": f"rljob_step_tokens{{{ALL_TOKENS}}}",
    "tps": f'rljob_tokens_per_second{{stage="step",per="card",{ALL_TOKENS}}}',
    "update tps": f'rljob_tokens_per_second{{stage="update",per="card",{ALL_TOKENS}}}',
    "first": "rljob_first_dp_idle_ratio",
    "cluster": "rljob_cluster_idle_ratio",
    "cards": "rljob_cards",
    "all steps": "rljob_steps_total",
    "all tokens": f"rljob_tokens_total{{{ALL_TOKENS}}}",
    "all seconds": 'rljob_stage_seconds_total{stage="step"}',
    "all idle": 'rljob_replica_seconds_total{state="idle"}',
    "all busy": 'rljob_replica_seconds_total{state="busy"}',
}


@dataclass(frozen=True)
class Look:
    """What one scrape of a head pod saw."""

    pod: str
    time: float
    values: Mapping[str, float]
    line: Line | None
    """The matching record; None if no record of the attempt matches."""


def looks(prometheus: Prometheus, matchers: str, attempts: Sequence[Sequence[Line]], time: Time) -> list[Look]:
    """Return every scrape that saw a step of the job, in the order of time."""
    seen: dict[tuple[str, float], dict[str, float]] = defaultdict(dict)
    window = f"[{math.ceil(time.end - time.begin)}s]"
    for name, series in SERIES.items():
        chosen = series.replace("{", f"{{{matchers},") if "{" in series else f"{series}{{{matchers}}}"
        for row in prometheus.at(f"{chosen}{window}", time.end):
            for moment, value in row.samples.items():
                seen[row.labels["pod"], moment][name] = value
    found = []
    for (pod, moment), values in sorted(seen.items(), key=lambda item: item[0][1]):
        if "tokens" in values and "tps" in values:
            lines = attempts[int(values["attempt"]) - 1]
            found.append(Look(pod, moment, values, _line_of(values, lines)))
    return found


def _line_of(values: Mapping[str, float], lines: Iterable[Line]) -> Line | None:
    near = (values["step"], values["step"] + 1)
    fitting = (line for line in lines if line["step"] in near and _tokens(line) == values["tokens"])
    return next(fitting, None)


def wrong_rates(found: Iterable[Look], tolerance: float) -> list[str]:
    """Compare tokens per second per card of step and update with tokens / seconds / cards of the record."""
    wrong = []
    for look in found:
        if look.line is None:
            wrong.append(f"{look.pod} at {look.time}: no record has {look.values['tokens']:.0f} tokens: {look.values}")
            continue
        metrics = look.line["metrics"]
        for name, seconds in (("tps", metrics["timing_s/step"]), ("update tps", metrics["timing_s/update_actor"])):
            right = _tokens(look.line) / float(seconds) / look.values["cards"]
            if abs(look.values[name] / right - 1) > tolerance:
                wrong.append(
                    f"step {look.line['step']}: {name} is {look.values[name]}, expected {right} from the record"
                )
    return wrong


def wrong_idle_ratios(found: Iterable[Look], tolerance: float) -> list[str]:
    """Compare both idle ratios with those of the ranks' finish times."""
    wrong = []
    for look in found:
        if look.line is None:
            continue
        first, cluster = _idle(look.line)
        for name, right in (("first", first), ("cluster", cluster)):
            if abs(look.values[name] - right) > tolerance:
                wrong.append(
                    f"step {look.line['step']}: {name} is {look.values[name]}, expected {right} from the finish times"
                )
    return wrong


def wrong_sums(found: Sequence[Look], attempts: Sequence[Sequence[Line]], tolerance: float) -> list[str]:
    """Compare the counters of each head pod with the sums over its records."""
    wrong = []
    for pod in dict.fromkeys(look.pod for look in found):
        mine = [look for look in found if look.pod == pod]
        last, numbers = mine[-1].values, sorted({int(look.values["attempt"]) for look in mine})
        lines = [line for number in numbers for line in attempts[number - 1]][: int(last["all steps"])]
        tokens, seconds = sum(map(_tokens, lines)), sum(float(line["metrics"]["timing_s/step"]) for line in lines)
        idle = last["all idle"] / (last["all idle"] + last["all busy"])
        walls = [_finish_times(line) for line in lines]
        right_idle = sum(max(wall) - t for wall in walls for t in wall) / sum(max(wall) * len(wall) for wall in walls)
        rate, right_rate = last["all tokens"] / last["all seconds"], tokens / seconds
        if abs(rate / right_rate - 1) > tolerance:
            wrong.append(
                f"{pod}: {rate} tokens per second over {len(lines)} steps, expected {right_rate} from the records"
            )
        if abs(idle - right_idle) > tolerance:
            wrong.append(f"{pod}: idle {idle} over {len(lines)} steps, expected {right_idle} from the finish times")
    return wrong


def _tokens(line: Line) -> float:
    return float(line["metrics"]["perf/total_num_tokens"])


def _finish_times(line: Line) -> list[float]:
    metrics = line["metrics"]
    keys = [key for key in metrics if key.startswith("rljob/replica/") and key.endswith("/finish_seconds")]
    return [float(metrics[key]) for key in keys]


def _idle(line: Line) -> tuple[float, float]:
    finish = _finish_times(line)
    wall = max(finish)
    return (wall - min(finish)) / wall, sum(wall - t for t in finish) / (wall * len(finish))
