"""`rljob usage`: the card-hours of each team and job in a month, as a table or as CSV.

The data comes from Prometheus, which has deleted jobs too, or from the statuses of the RLJobs that still exist. Months
are in UTC. Pure, except for the queries that `Ask` sends to Prometheus.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rljob.api.status import Attempt, RLJobStatus
from rljob.cli.errors import UsageError
from rljob.cli.output import CSV, DATA, data_page
from rljob.cli.status import table
from rljob.core import times
from rljob.core.attempts.usage import account
from rljob.core.observed import Manifest
from rljob.core.status import read_status

COLUMNS = (
    "month",
    "namespace",
    "queue",
    "class",
    "job",
    "card_seconds",
    "productive_card_seconds",
    "card_hours",
    "productive_card_hours",
)
DAY = 86400.0
HOUR = 3600.0
MINUTE = 60
HELD = "rljob_operator_card_seconds_total"
PRODUCTIVE = "rljob_operator_productive_card_seconds_total"
CARDS = "rljob_cards"
"""Served by the head of each job while the head exists."""
INFO = "kube_rljob_info"
"""Metric of kube-state-metrics with the chart's configuration, which contains class and queue."""

OPERATOR_SCRAPE, JOBS_SCRAPE = "rljob-operator", "rljob-jobs"
"""Label `job` of the scrapes of the chart's scrape configuration. The page of another pod, which some other scrape of
the site stores, does not have it, so only the operator serves the counters that are charged."""

Ask = Callable[[str, float], list[dict[str, Any]]]
"""Function that returns the series of a query at a Unix time in seconds."""


@dataclass(frozen=True)
class Month:
    """A month, as far as it has passed."""

    name: str
    begin: datetime
    end: datetime


@dataclass(frozen=True)
class UsageRow:
    """Usage in a month. An empty string means "all" or "unknown"."""

    namespace: str
    queue: str
    accelerator: str
    job: str
    card_seconds: float
    productive_card_seconds: float | None
    """None: unknown."""


def read_month(text: str, now: datetime) -> Month:
    """Parse a month such as 2026-11."""
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text):
        raise UsageError(f"--month {text}: use year and month, such as {now:%Y-%m}")
    begin = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    if begin >= now:
        raise UsageError(f"--month {text} is in the future; use a month up to {now:%Y-%m}")
    return Month(text, begin, min((begin + timedelta(days=31)).replace(day=1), now))


def usage_page(month: Month, rows: Iterable[UsageRow], form: str) -> str:
    """Return the whole page, sorted by name."""
    ordered = sorted(rows, key=lambda r: (r.namespace, r.queue, r.accelerator, r.job))
    if form in DATA:
        return data_page([{"month": month.name, "usage": [asdict(row) for row in ordered]}], form)
    cells = [_cells(month, row) for row in ordered]
    if form == CSV:
        page = io.StringIO()
        csv.writer(page, lineterminator="\n").writerows([COLUMNS, *cells])
        return page.getvalue().rstrip("\n")
    return table([tuple(name.upper().replace("_", " ") for name in COLUMNS), *cells])


def _cells(month: Month, row: UsageRow) -> tuple[str, ...]:
    held, productive = row.card_seconds, row.productive_card_seconds
    seconds = f"{held:.0f}", "" if productive is None else f"{productive:.0f}"
    hours = f"{held / HOUR:.2f}", "" if productive is None else f"{productive / HOUR:.2f}"
    return (month.name, row.namespace, row.queue, row.accelerator, row.job, *seconds, *hours)


# From Prometheus.


def queue_rows(ask: Ask, month: Month, namespace: str | None) -> Iterator[UsageRow]:
    """Return a row for each namespace and queue, from the operator's counters."""
    labels = ("rljob_namespace", "queue")
    chosen = _chosen(namespace, OPERATOR_SCRAPE)
    held = _sums(ask, month, labels, lambda seconds: f"increase({HELD}{chosen}[{seconds}s])")
    productive = _sums(ask, month, labels, lambda seconds: f"increase({PRODUCTIVE}{chosen}[{seconds}s])")
    for (space, queue), seconds in held.items():
        if seconds > 0:
            yield UsageRow(space, queue, "", "", seconds, productive.get((space, queue), 0.0))


def job_rows(ask: Ask, month: Month, namespace: str | None) -> Iterator[UsageRow]:
    """Return a row for each job, from its cards in every minute in which its head existed."""
    labels = ("rljob_namespace", "rljob")
    chosen, by = _chosen(namespace, JOBS_SCRAPE), f"by ({', '.join(labels)})"
    held = _sums(
        ask,
        month,
        labels,
        lambda seconds: f"sum_over_time((max {by} ({CARDS}{chosen}))[{seconds}s:{MINUTE}s]) * {MINUTE}",
    )
    places: dict[tuple[str, ...], tuple[str, str]] = {}
    info = ("queue", "accelerator")
    for moment, seconds in _parts(month):
        query = f"max by ({', '.join((*labels, *info))}) (max_over_time({INFO}{_chosen(namespace)}[{seconds}s]))"
        for series in ask(query, moment):
            metric: Mapping[str, str] = series["metric"]
            places[_place(metric, labels)] = metric.get("queue", ""), metric.get("accelerator", "")
    for (space, job), card_seconds in held.items():
        if card_seconds > 0:
            yield UsageRow(space, *places.get((space, job), ("", "")), job, card_seconds, None)


def _sums(ask: Ask, month: Month, labels: tuple[str, ...], query: Callable[[int], str]) -> dict[tuple[str, ...], float]:
    """Add up the days of a month, because a query over a whole month may exceed the server's limits."""
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for moment, seconds in _parts(month):
        for series in ask(f"sum by ({', '.join(labels)}) ({query(seconds)})", moment):
            sums[_place(series["metric"], labels)] += float(series["value"][1])
    return sums


def _parts(month: Month) -> Iterator[tuple[float, int]]:
    """Return the end and the duration in seconds of each day of a month; the current day is partial."""
    begin, end = month.begin.timestamp(), month.end.timestamp()
    for day in range(math.ceil((end - begin) / DAY)):
        until = min(begin + (day + 1) * DAY, end)
        if (seconds := int(until - begin - day * DAY)) > 0:
            yield until, seconds


def _chosen(namespace: str | None, scrape: str | None = None) -> str:
    matchers = [] if scrape is None else [f'job="{scrape}"']
    matchers += [] if namespace is None else [f'rljob_namespace="{namespace}"']
    return f"{{{','.join(matchers)}}}" if matchers else ""


def _place(metric: Mapping[str, str], labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(metric.get(label, "") for label in labels)


# From the statuses of RLJobs.


def status_rows(jobs: Iterable[tuple[Manifest, str, str]], month: Month, now: datetime) -> Iterator[UsageRow]:
    """Return a row for each job that still exists, with its queue and class, from its attempts."""
    for job, queue, accelerator in jobs:
        current = read_status(job)
        shares = [_share(current, attempt, month, now) for attempt in current.attempts]
        held, productive = (sum(part) for part in zip(*shares, strict=True)) if shares else (0.0, 0.0)
        metadata = job["metadata"]
        if held > 0:
            yield UsageRow(metadata["namespace"], queue, accelerator, metadata["name"], held, productive)


def undated_card_hours(job: Manifest) -> float:
    """Return the card-hours of attempts before the last ten, whose month is unknown."""
    current = read_status(job)
    dated = sum(attempt.device_seconds or 0 for attempt in current.attempts if attempt.end_time is not None)
    return max(current.usage.device_seconds - dated, 0) * account(current).cards_per_device / HOUR


def _share(current: RLJobStatus, attempt: Attempt, month: Month, now: datetime) -> tuple[float, float]:
    """Return an attempt's card-seconds in the month, held and productive; productive ones are spread evenly over it."""
    if current.resolved is None:
        return 0.0, 0.0
    begin, end = times.from_text(attempt.submitted_time), now
    productive = float(attempt.productive_device_seconds or 0)
    if attempt.end_time is not None:
        end = times.from_text(attempt.end_time)
    else:
        productive = account(current).productive_device_seconds - current.usage.productive_device_seconds
    whole = (end - begin).total_seconds()
    part = (min(end, month.end) - max(begin, month.begin)).total_seconds()
    if part <= 0:
        return 0.0, 0.0
    ratio, held = account(current).cards_per_device, attempt.device_seconds
    # The size of the job may have changed since an ended attempt.
    devices: float = current.resolved.devices
    if attempt.end_time is None:
        # What its start held is spread over its time too.
        devices += (held or 0) / whole
    elif held is not None:
        devices = held / whole
    return part * devices * ratio, productive * ratio * part / whole
