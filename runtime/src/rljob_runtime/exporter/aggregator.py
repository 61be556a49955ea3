"""Aggregate metrics of other servers: scraped pages of several members in, families with the job's labels out.

A few families are kept per member; all others are summed over the members, and the number of series is limited.
Counters and histograms continue when a member restarts (another driver, another engine) and keep their value while it
does not respond: Prometheus would take a decreasing sum for a counter reset.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rljob_runtime.exporter.exposition import Family, label_text, parse

CREATED = "_created"
"""Suffix of the gauges with a counter's creation time that prometheus_client adds; our counters outlive it."""
RISING = frozenset({"counter", "histogram", "summary"})
LABEL = re.compile(r'(?<!\w)(?P<name>[a-zA-Z_]\w*+)="(?:[^"\\]|\\.)*+"')

Series = tuple[str, str, str]
"""Family, name of the sample, text of its labels."""


@dataclass
class Member:
    """Counters of one member."""

    last: dict[Series, float] = field(default_factory=dict)
    before: dict[Series, float] = field(default_factory=lambda: defaultdict(float))
    """Totals from before the member's last restart."""

    def note(self, readings: dict[Series, float]) -> None:
        """Record the counters of a page. If one of them decreased, the member has restarted."""
        if any(value < self.last.get(series, 0.0) for series, value in readings.items()):
            for series, value in self.last.items():
                self.before[series] += value
            self.last = {}
        self.last |= readings

    def totals(self) -> Iterator[tuple[Series, float]]:
        """Yield each series with its total over all restarts."""
        for series, value in self.last.items():
            yield series, value + self.before.get(series, 0.0)
        yield from ((series, value) for series, value in self.before.items() if series not in self.last)


@dataclass
class Aggregator:
    """Aggregates the metrics of one source."""

    prefix: str
    limit: int
    """Maximum number of series."""
    member_label: str
    kept: frozenset[str] = frozenset()
    """Families that keep all their labels and get the member's label."""
    summed_away: tuple[str, ...] = ()
    """Labels that are removed from sums."""
    only: frozenset[str] | None = None
    left_out: frozenset[str] = frozenset()
    _members: dict[str, Member] = field(default_factory=lambda: defaultdict(Member))
    _known: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Kind and description of the families seen so far."""

    def join(self, pages: Mapping[str, str | None], labels: Mapping[str, str]) -> tuple[list[Family], int]:
        """Return the families of one scrape, and the number of series left out because of the limit."""
        totals: dict[Series, float] = defaultdict(float)
        for member, page in pages.items():
            self._read(member, page or "", totals)
        for member, seen in self._members.items():
            for series, value in seen.totals():
                totals[self._target(member, series)] += value
        return self._within_limit(self._families(totals, label_text(labels)))

    def _read(self, member: str, page: str, gauges: dict[Series, float]) -> None:
        """Record counters, and add gauges to `gauges`."""
        counters: dict[Series, float] = {}
        for name, family in parse(page, self.prefix).items():
            if name.endswith(CREATED) or name in self.left_out or (self.only is not None and name not in self.only):
                continue
            self._known[name] = (family.kind, family.description)
            for sample, label, text in family.samples:
                series = _series(name, sample, label)
                if family.kind in RISING:
                    counters[series] = number(text)
                else:
                    gauges[self._target(member, series)] += number(text)
        if counters:
            self._members[member].note(counters)

    def _target(self, member: str, series: Series) -> Series:
        name, sample, label = series
        if name not in self.kept:
            return name, sample, without(label, self.summed_away)
        return name, sample, joined(label, label_text({self.member_label: member}))

    def _families(self, totals: Mapping[Series, float], extra: str) -> list[Family]:
        families: dict[str, Family] = {}
        for (name, sample, label), value in totals.items():
            family = families.setdefault(name, Family(name, *self._known[name]))
            family.samples.append((sample, joined(label, extra), repr(value)))
        return list(families.values())

    def _within_limit(self, families: list[Family]) -> tuple[list[Family], int]:
        """Leave out whole families, because a part of a histogram is useless."""
        served: list[Family] = []
        room, dropped = self.limit, 0
        # Families kept per member come first, then the smallest.
        for family in sorted(families, key=lambda family: (family.name not in self.kept, len(family.samples))):
            if len(family.samples) > room:
                dropped += len(family.samples)
                continue
            room -= len(family.samples)
            served.append(family)
        return served, dropped


def number(text: str) -> float:
    """Parse a sample's value; NaN if it is invalid."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def joined(*labels: str) -> str:
    """Join texts of labels."""
    return ",".join(label for label in labels if label)


@lru_cache(maxsize=10_000)
def _series(name: str, sample: str, label: str) -> Series:
    """Return one shared object per series: there may be a hundred thousand series over all members."""
    return name, sample, label


@lru_cache(maxsize=10_000)
def without(label: str, names: tuple[str, ...]) -> str:
    """Remove labels from a text of labels."""
    return ",".join(match[0] for match in LABEL.finditer(label) if match["name"] not in names)
