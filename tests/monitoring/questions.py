"""Everything that our boards and rules ask Prometheus, read from the files that the chart ships.

A question is an expression with the place where it stands, so that a failure names the panel. `ask_all` puts each to
a Prometheus that has seen a run: what has no answer must stand, with the reason, among the exceptions, and what stands
there must have none.
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
    """An expression, and where it stands: `<board>: <panel> <query>` or `rules: <name>`."""

    place: str
    expression: str


@dataclass(frozen=True)
class Unanswered:
    """Why an expression may have no data in a healthy run on this machine."""

    pattern: str
    """Of the place or of the expression; the whole of neither."""
    reason: str
    chance: bool = False
    """Nobody can say beforehand whether there will be data: what it counts may happen."""

    def covers(self, question: Question) -> bool:
        """Whether this row is about the question."""
        return any(re.search(self.pattern, text) for text in (question.place, question.expression))


def board_files() -> list[Path]:
    """Give the boards of the chart."""
    return sorted(BOARDS.glob("*.json"))


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the panels of a board; those of a folded row stand within it."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def board_questions() -> list[Question]:
    """Give every expression of every board: panels, annotations, variables."""
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
    """Give what rules ask: a recorded expression whole; of an alert every series that it looks at.

    That an alert's condition itself has no data is what it should be; that a series in it has none would make it an
    alert that cannot fire.
    """
    found = []
    for rule in (rule for group in groups for rule in group["rules"]):
        if name := rule.get("record"):
            found += [Question(f"rules: {name}", rule["expr"]), Question(f"rules: {name} as recorded", name)]
        else:
            found += [Question(f"rules: {rule['alert']}", selector) for selector in selectors(rule["expr"])]
    return found


def selectors(expression: str) -> list[str]:
    """Give the series that an expression names, each with its matchers."""
    # What stands in quotes may hold any sign; the matchers come back from their numbers.
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
    """Give the names of the series that an expression reads."""
    return {selector.split("{")[0] for selector in selectors(expression)}


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """Put values in place of Grafana's variables, `$name` and `${name}`."""
    return re.sub(
        r"\$(?:\{([A-Za-z_]\w*)(?::\w+)?\}|([A-Za-z_]\w*))", lambda found: variables[found[1] or found[2]], expression
    )


@dataclass(frozen=True)
class Time:
    """The time about which is asked."""

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
    """Ask everything; give what is wrong, a line for each question or exception."""
    rows, wrong = list(exceptions), []
    for question in questions:
        expression = filled(question.expression, variables)
        answer = prometheus.over(expression, time.begin, time.end, time.step_seconds)
        # A ratio of nothing to nothing is no answer.
        answered = any(not math.isnan(value) for series in answer for value in series.samples.values())
        excused = next((row for row in rows if row.covers(question)), None)
        if not answered and excused is None:
            wrong.append(f"no data: {question.place}\n    {expression}")
        if answered and excused is not None and not excused.chance:
            wrong.append(f"has data, but excused ({excused.reason}): {question.place}\n    {expression}")
    return wrong


def idle_exceptions(questions: Iterable[Question], exceptions: Iterable[Unanswered]) -> list[Unanswered]:
    """Give the exceptions that are about no question."""
    asked = list(questions)
    return [row for row in exceptions if not any(row.covers(question) for question in asked)]
