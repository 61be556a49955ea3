"""What a dashboard shows of a run: each panel's lines with their legends, its cells, or its text for no data.

Grafana is not part of the tests because of its licence. Its rules for the parts that the boards use are applied here: a
legend's `{{label}}` is the label of the series, a stat shows the last value, a query without a result shows `noValue`,
and a table joins its queries by their labels and renames its columns.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.monitoring.prometheus import Prometheus, Series
from tests.monitoring.questions import Time, filled, panels

_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
BOUNDS = {
    "percentunit": (0.0, 1.0),
    "percent": (0.0, 100.0),
    "s": (0.0, math.inf),
    "h": (0.0, math.inf),
    "bytes": (0.0, math.inf),
    "ops": (0.0, math.inf),
    "reqps": (0.0, math.inf),
    "cps": (0.0, math.inf),
}
"""Values that a unit allows: a ratio in `percentunit` that is above one was a percentage, or is no ratio."""
ROUNDING = 1e-6
SCRAPE_SECONDS = 2.0
"""A sample has the time at which its scrape began, so that what is measured by `time() -` may be below zero."""
MAY_BE_EMPTY = frozenset({"queue"})
"""Labels that Prometheus drops where they are empty: a job without a queue."""


@dataclass(frozen=True)
class Line:
    """A series of a panel."""

    legend: str
    query: str
    """Letter of the query."""
    samples: Mapping[float, float]

    @property
    def last(self) -> float:
        """Return the last value, which a stat shows."""
        return self.samples[max(self.samples)]


@dataclass(frozen=True)
class Panel:
    """A panel with what Prometheus answers to its queries."""

    title: str
    kind: str
    unit: str
    place: Mapping[str, int]
    """x, y, w and h in the units of Grafana's grid, which has 24 columns."""
    no_value: str
    stacked: bool = False
    low: float | None = None
    high: float | None = None
    lines: tuple[Line, ...] = ()
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    """Rows of a table."""
    wrong: tuple[str, ...] = field(default=())
    """Legends without a label, columns that no query has."""

    @property
    def empty(self) -> bool:
        """Return whether the panel shows its text for no data."""
        return not self.lines and not self.cells


@dataclass(frozen=True)
class Board:
    """A dashboard of a time range."""

    name: str
    title: str
    rows: tuple[tuple[str, int], ...]
    """Titles of the rows, and their y in the grid."""
    panels: tuple[Panel, ...]


def look(prometheus: Prometheus, path: Path, variables: Mapping[str, str], time: Time) -> Board:
    """Return a board of the chart, as it shows the time range."""
    board = json.loads(path.read_text())
    rows = tuple((row["title"], row["gridPos"]["y"]) for row in board["panels"] if row["type"] == "row")
    found = tuple(_panel(prometheus, raw, variables, time) for raw in panels(board))
    return Board(path.stem, board["title"], rows, found)


def faults(board: Board) -> list[str]:
    """Return what a reader of the board would stumble over, a line for each."""
    found = []
    for panel in board.panels:
        place = f"{board.name}: {panel.title}"
        found += [f"{place}: {wrong}" for wrong in panel.wrong]
        if panel.empty and not panel.no_value:
            found.append(f"{place}: shows nothing, without a reason")
        if panel.kind != "stat":
            twice = [legend for legend, count in Counter(line.legend for line in panel.lines).items() if count > 1]
            found += [f"{place}: several lines are called {legend!r}" for legend in twice]
        found += [f"{place}: {wrong}" for wrong in _out_of_bounds(panel)]
    return found


def _out_of_bounds(panel: Panel) -> Iterator[str]:
    low, high = BOUNDS.get(panel.unit, (-math.inf, math.inf))
    low = low if panel.low is None else max(low, panel.low)
    high = high if panel.high is None else min(high, panel.high)
    for line in panel.lines:
        room = SCRAPE_SECONDS if panel.unit == "s" else ROUNDING
        outside = [value for value in line.samples.values() if not low - room <= value <= high + ROUNDING]
        if outside:
            yield f"{line.legend or line.query} has {outside[0]:g}; {panel.unit} and the axis allow {low:g} to {high:g}"


def _panel(prometheus: Prometheus, raw: Mapping[str, Any], variables: Mapping[str, str], time: Time) -> Panel:
    defaults = raw["fieldConfig"]["defaults"]
    panel: dict[str, Any] = {
        "title": raw["title"],
        "kind": raw["type"],
        "unit": defaults["unit"],
        "place": raw["gridPos"],
        "no_value": defaults["noValue"],
        "stacked": defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        "low": defaults.get("min"),
        "high": defaults.get("max"),
    }
    if raw["type"] == "table":
        return Panel(**panel, **_table(prometheus, raw, variables, time))
    lines: list[Line] = []
    wrong: list[str] = []
    for target in raw["targets"]:
        answer = prometheus.over(filled(target["expr"], variables), time.begin, time.end, time.step_seconds)
        for series in answer:
            legend, missing = _legend(target.get("legendFormat", ""), series)
            wrong += [f"the legend of {target['refId']} names {label}, which its series lack" for label in missing]
            known = {moment: value for moment, value in series.samples.items() if math.isfinite(value)}
            if known:
                lines.append(Line(legend, target["refId"], known))
    return Panel(**panel, lines=tuple(lines), wrong=tuple(dict.fromkeys(wrong)))


def _legend(text: str, series: Series) -> tuple[str, list[str]]:
    missing = [label for label in _LABEL.findall(text) if label not in series.labels and label not in MAY_BE_EMPTY]
    return _LABEL.sub(lambda found: series.labels.get(found[1], ""), text).strip(), missing


def _table(prometheus: Prometheus, raw: Mapping[str, Any], variables: Mapping[str, str], time: Time) -> dict[str, Any]:
    (organize,) = (step["options"] for step in raw["transformations"] if step["id"] == "organize")
    units = {
        override["matcher"]["options"]: setting["value"]
        for override in raw["fieldConfig"]["overrides"]
        for setting in override["properties"]
        if setting["id"] == "unit"
    }
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for target in raw["targets"]:
        for series in prometheus.at(filled(target["expr"], variables), time.end):
            row = rows.setdefault(tuple(sorted(series.labels.values())), dict(series.labels))
            column = f"Value #{target['refId']}"
            (value,) = series.samples.values()
            row[column] = written(value, units.get(organize["renameByName"].get(column, column), "short"))
    order = sorted(organize["indexByName"], key=organize["indexByName"].__getitem__)
    names = tuple(organize["renameByName"].get(column, column) for column in order)
    has = {column for row in rows.values() for column in row} | {f"Value #{row['refId']}" for row in raw["targets"]}
    return {
        "columns": names,
        "cells": tuple(tuple(row.get(column, "") for column in order) for row in rows.values()),
        "wrong": tuple(f"no query has the column {column}" for column in order if rows and column not in has),
    }


_SIZES = (("", 1.0), ("Ki", 2.0**10), ("Mi", 2.0**20), ("Gi", 2.0**30), ("Ti", 2.0**40))
_TIMES = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))
_SUFFIXES = {"percent": " %", "ops": " ops/s", "reqps": " req/s", "cps": " c/s", "celsius": " °C", "watt": " W"}


def written(value: float, unit: str) -> str:
    """Return a value with its unit, as the panel's axis and a stat have it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "bytes":
        name, size = next((row for row in reversed(_SIZES) if abs(value) >= row[1]), _SIZES[0])
        return f"{value / size:.3g} {name}B"
    if unit in {"s", "h"}:
        seconds = value * (3600 if unit == "h" else 1)
        if 0 < abs(seconds) < 1:
            return f"{1000 * seconds:.3g} ms"
        name, size = next((row for row in reversed(_TIMES) if abs(seconds) >= row[1]), _TIMES[0])
        return f"{seconds / size:.3g} {name}"
    if unit == "sci":
        return f"{value:.1e}"
    if unit in {"MBs", "GBs"}:
        return f"{value:.3g} {unit[:2]}/s"
    plain = f"{value / 1000:.3g} K" if unit == "short" and abs(value) >= 1000 else f"{value:.4g}"
    return plain + _SUFFIXES.get(unit, "")
