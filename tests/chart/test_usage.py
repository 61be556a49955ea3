"""`rljob usage` with a real Prometheus that has a month of metrics of the operator and of a head."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rljob.cli.main import main
from tests.monitoring.prometheus import Prometheus, configuration, promtool, running

BEGIN, MONTH, END = (datetime(2024, *day, tzinfo=UTC) for day in ((9, 29), (10, 1), (10, 3)))
"""Two days before the beginning of October, that beginning, and two days after it."""
RESTART = datetime(2024, 10, 2, tzinfo=UTC)
"""Time at which the operator's process is replaced and its counters start at 0."""
FIRST, LAST = MONTH - timedelta(hours=1), MONTH + timedelta(hours=3)
"""First and last sample of the job's head."""
STEP = timedelta(minutes=1)
CARDS = 64
PLACE = 'job="rljob-operator",rljob_namespace="vision",queue="cards"'
JOB = 'rljob_namespace="vision",rljob="sums"'
HEAD = f'job="rljob-jobs",{JOB}'
FORGED = PLACE.replace("rljob-operator", "kubernetes-pods")
"""Labels of the same counters if another scrape of the site finds them on the page of some pod."""
LOOKBACK_SECONDS = 300
"""Time for which Prometheus returns the last sample of a series that no scrape ended, as in the loaded data."""


def openmetrics() -> Iterator[str]:
    """Return the series with one sample per minute, as a scrape would have stored them."""
    moments = [BEGIN + number * STEP for number in range((END - BEGIN) // STEP + 1)]
    for name, share in (("card_seconds", 1.0), ("productive_card_seconds", 0.5)):
        yield f"# TYPE rljob_operator_{name} counter"
        for moment in moments:
            since = RESTART if moment >= RESTART else BEGIN
            value = CARDS * share * (moment - since).total_seconds()
            yield f"rljob_operator_{name}_total{{{PLACE}}} {value} {moment.timestamp()}"
            yield f"rljob_operator_{name}_total{{{FORGED}}} {1000 * value} {moment.timestamp()}"
    heads = [moment for moment in moments if FIRST <= moment < LAST]
    yield "# TYPE rljob_cards gauge"
    yield from (f"rljob_cards{{{HEAD}}} {CARDS} {moment.timestamp()}" for moment in heads)
    yield "# TYPE kube_rljob_info gauge"
    labels = f'{JOB},queue="cards",accelerator="atlas-a3",uid="u"'
    yield from (f"kube_rljob_info{{{labels}}} 1 {moment.timestamp()}" for moment in heads)
    yield "# EOF\n"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("usage")
    text = folder / "metrics.txt"
    text.write_text("\n".join(openmetrics()))
    promtool("tsdb", "create-blocks-from", "openmetrics", text, folder / "data")
    with running(folder, configuration(15)) as found:
        yield found


def rows(
    prometheus: Prometheus, capsys: pytest.CaptureFixture[str], month: str, *words: str
) -> list[dict[str, str | None]]:
    assert main(["usage", "--month", month, "-A", "--prometheus", prometheus.url, "-o", "csv", *words]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("month", ["2024-09", "2024-10"])
def test_a_month_has_what_was_counted_in_it_over_a_restart_of_the_operator(
    prometheus: Prometheus, capsys: pytest.CaptureFixture[str], month: str
) -> None:
    (row,) = rows(prometheus, capsys, month)
    assert (row["namespace"], row["queue"], row["class"], row["job"]) == ("vision", "cards", "", "")
    assert float(row["card_hours"] or 0) == pytest.approx(CARDS * 48, rel=2e-3)
    assert float(row["productive_card_hours"] or 0) == pytest.approx(CARDS * 24, rel=2e-3)


@pytest.mark.parametrize(("month", "hours"), [("2024-09", 1), ("2024-10", 3)])
def test_a_job_has_its_cards_for_as_long_as_its_head_was_there(
    prometheus: Prometheus, capsys: pytest.CaptureFixture[str], month: str, hours: int
) -> None:
    (row,) = rows(prometheus, capsys, month, "--by", "job")
    assert (row["queue"], row["class"], row["job"]) == ("cards", "atlas-a3", "sums")
    assert 0 <= float(row["card_seconds"] or 0) - CARDS * hours * 3600 <= CARDS * (LOOKBACK_SECONDS + 60)
    assert row["productive_card_seconds"] == ""


def test_a_month_without_any_of_it_has_no_rows(prometheus: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(prometheus, capsys, "2024-08") == []


def test_a_namespace_is_asked_for_alone(prometheus: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--month", "2024-10", "-n", "language", "--prometheus", prometheus.url, "-o", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_server_that_is_not_prometheus_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--month", "2024-10", "-A", "--prometheus", f"file://{tmp_path}"]) == 2
    assert "use an address such as" in capsys.readouterr().err
