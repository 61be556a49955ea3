"""All queries of the dashboards and rules, read from the files of the chart.

A question is an expression with its location, so that a failure names the panel. `ask_all` evaluates each against a
Prometheus that has scraped a run. Questions without data must be listed as exceptions, with a reason, and exceptions
must have no data.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.monitoring.prometheus import ROOT, Prometheus

BOARDS = ROOT / "charts/rljob-operator/files/dashboards"
_GROUPING = re.compile(r"\b(?:on|by|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_SELECTOR = re.compile(r"(?<![\w:$])([a-zA-Z_:][\w:]*)(\{[^}]*\})?(?!\s*\()(?=[^\w:(]|$)")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), \w+\)")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "Inf", "NaN", "nan"})


@dataclass(frozen=True)
class Question:
    """An expression with its location: `<board>: <panel> <query>` or `rules: <name>`."""

    place: str
    expression: str


@dataclass(frozen=True)
class Unanswered:
    """Why an expression may have no data in a healthy run on this machine."""

    pattern: str
    """Pattern of the location or the expression; it matches parts."""
    reason: str
    chance: bool = False
    """Whether data depends on chance, because the counted event may or may not happen."""

    def covers(self, question: Question) -> bool:
        """Return whether this row is about the question."""
        return any(re.search(self.pattern, text) for text in (question.place, question.expression))


def board_files() -> list[Path]:
    """Return the dashboards of the chart."""
    return sorted(BOARDS.glob("*.json"))


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the panels of a dashboard; those of a folded row are within it."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def board_questions() -> list[Question]:
    """Return every expression of every dashboard: panels, annotations, variables."""
    found = []
    for path in board_files():
        board = json.loads(path.read_text())
        for panel in panels(board):
            found += [
                Question(f"{path.stem}: {panel['title']} {target['refId']}", target["expr"])
                for target in panel["targets"]
            ]
        found += [
            Question(f"{path.stem}: annotation {row['name']}", row["expr"])
            for row in board["annotations"]["list"]
            if row.get("expr")
        ]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                match = _LABEL_VALUES.fullmatch(str(variable["query"]))
                assert match, variable
                found.append(Question(f"{path.stem}: variable {variable['name']}", match["selector"]))
    return found


def rule_questions(groups: Iterable[Mapping[str, Any]]) -> list[Question]:
    """Return the queries of rules: recorded expressions as a whole, and every series that an alert reads.

    The condition of an alert should have no data, but a series in it without data would make an alert that cannot fire.
    """
    found = []
    for rule in (rule for group in groups for rule in group["rules"]):
        if name := rule.get("record"):
            found += [Question(f"rules: {name}", rule["expr"]), Question(f"rules: {name} as recorded", name)]
        else:
            found += [Question(f"rules: {rule['alert']}", selector) for selector in selectors(rule["expr"])]
    return found


def selectors(expression: str) -> list[str]:
    """Return the series that an expression reads, each with its matchers."""
    # Quoted text may contain any character; it is replaced by numbers and restored afterwards.
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\x00{len(kept) - 1}\x00"

    bare = re.sub(r'"[^"]*"', hide, expression)
    bare = re.sub(r"\[[^\]]*\]", " ", _GROUPING.sub(" ", bare))
    found = []
    for match in _SELECTOR.finditer(bare):
        if match[1] not in _WORDS:
            whole = re.sub("\x00(\\d+)\x00", lambda number: kept[int(number[1])], match[1] + (match[2] or ""))
            found.append(whole)
    return list(dict.fromkeys(found))


def names(expression: str) -> set[str]:
    """Return the names of the series that an expression reads."""
    return {selector.split("{")[0] for selector in selectors(expression)}


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """Replace Grafana's variables `$name` and `${name}` by values."""
    return re.sub(
        r"\$(?:\{([A-Za-z_]\w*)(?::\w+)?\}|([A-Za-z_]\w*))", lambda found: variables[found[1] or found[2]], expression
    )


@dataclass(frozen=True)
class Time:
    """The time range to evaluate."""

    begin: float
    end: float
    step_seconds: float


def ask_all(
    prometheus: Prometheus,
    questions: Iterable[Question],
    exceptions: Iterable[Unanswered],
    variables: Mapping[str, str],
    time: Time,
) -> list[str]:
    """Evaluate everything; return what is wrong, a line for each question or exception."""
    rows, wrong = list(exceptions), []
    for question in questions:
        expression = filled(question.expression, variables)
        answer = prometheus.over(expression, time.begin, time.end, time.step_seconds)
        # A ratio of nothing to nothing is not an answer.
        answered = any(not math.isnan(value) for series in answer for value in series.samples.values())
        excused = next((row for row in rows if row.covers(question)), None)
        if not answered and excused is None:
            wrong.append(f"no data: {question.place}\n    {expression}")
        if answered and excused is not None and not excused.chance:
            wrong.append(f"has data, but excused ({excused.reason}): {question.place}\n    {expression}")
    return wrong


def idle_exceptions(questions: Iterable[Question], exceptions: Iterable[Unanswered]) -> list[Unanswered]:
    """Return the exceptions that match no question."""
    asked = list(questions)
    return [row for row in exceptions if not any(row.covers(question) for question in asked)]
