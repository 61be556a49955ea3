"""The verdict on each condition, from verdicts.tsv, which is kept by hand.

A row names a condition by source, file, function and digest; `*` in one of them makes it a pattern, which applies to
what no exact row names, the first in the file first. What no row matches is not judged.

    refuse           a check of ours refuses it; the reason names module and check
    warn             a check of ours warns of it; the reason names module and check
    cannot be known  it depends on hardware, on the image, on the model's files or on the state of a run
    not reached      no spec leads there; the reason says why
    not judged       reached at most by an override that no field, recipe, example or test sets
"""

from __future__ import annotations

import csv
import enum
import fnmatch
from dataclasses import dataclass
from pathlib import Path

from upstream.conditions.extract import Condition
from upstream.conditions.sources import Source

TABLE = Path(__file__).resolve().parent / "verdicts.tsv"


class Judgement(enum.StrEnum):
    """What happens to a spec that leads to a condition."""

    REFUSE = "refuse"
    WARN = "warn"
    CANNOT_BE_KNOWN = "cannot be known"
    NOT_REACHED = "not reached"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Verdict:
    """One row."""

    source: str
    file: str
    function: str
    digest: str
    judgement: Judgement
    reason: str

    @property
    def exact(self) -> bool:
        """Report whether the row names a single condition."""
        return "*" not in f"{self.file}{self.function}{self.digest}"

    def matches(self, source: Source, condition: Condition) -> bool:
        """Report whether the row is about a condition."""
        pairs = ((self.file, condition.file), (self.function, condition.function), (self.digest, condition.digest))
        return self.source == source.name and all(fnmatch.fnmatchcase(value, pattern) for pattern, value in pairs)


def read_verdicts() -> list[Verdict]:
    """Return the rows, exact ones first."""
    lines = TABLE.read_text().splitlines()[1:]
    rows = [
        Verdict(source, file, function, digest, Judgement(judgement), reason)
        for source, file, function, digest, judgement, reason in csv.reader(lines, delimiter="\t")
    ]
    return sorted(rows, key=lambda row: not row.exact)


def verdict_on(source: Source, condition: Condition, verdicts: list[Verdict]) -> Verdict | None:
    """Return the row that applies to a condition; None: it is not judged."""
    return next((row for row in verdicts if row.matches(source, condition)), None)
