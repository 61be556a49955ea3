"""The generated page on conditions of upstream code. Pure: it reads only committed tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from scripts.reference import HEADER, table
from scripts.upstream_conditions.extract import Condition
from scripts.upstream_conditions.sources import SOURCES, Source
from scripts.upstream_conditions.table import read
from scripts.upstream_conditions.verdicts import Judgement, Verdict, read_verdicts, verdict_on

INTRODUCTION = """\
Where the pinned upstream releases raise or assert because of configuration or environment. The conditions are read from
the wheels and commits by `python -m scripts.upstream_conditions`; of a long condition the innermost tests are shown.
The verdicts are kept by hand in `scripts/upstream_conditions/verdicts.tsv`. A house test fails when a verdict has lost
its condition or its check, and a seam test when the installed verl differs from the table.

| verdict | what happens to a job that leads there |
| --- | --- |
| refuse | `rljob validate` and the operator refuse it, by the check that is named |
| warn | it is accepted, with a warning by the check that is named |
| cannot be known | it depends on hardware, on the image, on the model's files or on the state of a run |
| not reached | no spec leads there, for the reason that is given |
| not judged | at most an override leads there that no field, recipe, example or test sets |
"""
SHOWN = (Judgement.REFUSE, Judgement.WARN, Judgement.CANNOT_BE_KNOWN)
"""Verdicts with a row for each condition; the others have one for each function."""


def upstream_conditions_page() -> str:
    """Return the page."""
    verdicts = read_verdicts()
    judged = {source: [(row, verdict_on(source, row, verdicts)) for row in read(source)] for source in SOURCES}
    parts = [HEADER, "# Conditions of upstream code\n", INTRODUCTION, _counts(judged)]
    for source, rows in judged.items():
        parts += [f"## {source.name} {source.version[:12]}\n", _shown(rows), _rest(rows)]
    return "\n".join(parts)


Judged = list[tuple[Condition, Verdict | None]]


def _of(verdict: Verdict | None) -> Judgement:
    return verdict.judgement if verdict else Judgement.NOT_JUDGED


def _counts(judged: Mapping[Source, Judged]) -> str:
    rows = []
    for source, found in judged.items():
        counts = Counter(_of(verdict) for _, verdict in found)
        rows.append((source.name, str(len(found)), *(str(counts[judgement]) for judgement in Judgement)))
    return table(("source", "conditions", *Judgement), rows)


def _shown(rows: Judged) -> str:
    found = [
        (f"`{row.file}`:{row.line}", f"`{row.text}`", verdict.judgement, verdict.reason)
        for row, verdict in rows
        if verdict and verdict.judgement in SHOWN
    ]
    return table(("place", "fails when", "verdict", "by, or why"), found)


def _rest(rows: Judged) -> str:
    lines: dict[tuple[str, str, str, str], list[int]] = {}
    for row, verdict in rows:
        if _of(verdict) not in SHOWN:
            key = (row.file, row.function, _of(verdict), verdict.reason if verdict else "")
            lines.setdefault(key, []).append(row.line)
    found = [
        (f"`{file}`", f"`{function}`", _listed(numbers), judgement, reason)
        for (file, function, judgement, reason), numbers in lines.items()
    ]
    return table(("file", "function", "lines", "verdict", "why"), found)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
