"""`rljob usage`: months, card-seconds by queue and by job, from both sources."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders import IDENTITY, merged, small_spec, typed

from rljob.cli import usage
from rljob.cli.errors import UsageError
from rljob.cli.main import main
from rljob.cli.usage import UsageRow, read_month, usage_page
from rljob.render import configmap

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = 16 * 24 * 3600
"""Device-seconds of the job below."""
DROPPED = {"usage": {"deviceSeconds": DAY + 7200, "productiveDeviceSeconds": 0}}
"""Part of them, of which one day belongs to the attempt that is still listed."""
OCTOBER = read_month("2026-10", NOW)
NOVEMBER = read_month("2026-11", NOW)


def attempt(number: int, begin: str, end: str | None, productive: int = 0, devices: int = 16) -> dict[str, Any]:
    told = {"number": number, "clusterName": "c", "submissionId": f"c-{number}", "submittedTime": f"2026-{begin}:00Z"}
    if end is None:
        return told
    lasted = datetime.fromisoformat(f"2026-{end}:00Z") - datetime.fromisoformat(f"2026-{begin}:00Z")
    held = round(devices * lasted.total_seconds())
    return told | {"endTime": f"2026-{end}:00Z", "productiveDeviceSeconds": productive, "deviceSeconds": held}


def job(
    *attempts: dict[str, Any], spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a job of 16 devices on 8 cards."""
    resolved = {"snapshotName": "sums-spec-1", "specHash": "x", "nodes": 1, "devices": 16, "cards": "8"}
    intent = {"clusterGeneration": 1, "clusterName": "c", "time": "2026-10-01T00:00:00Z"}
    intent |= {"startDeadline": "2026-10-01T00:00:00Z"}
    plain = {"accelerator": {"class": "atlas-a3"}, "scheduling": {"queueName": "cards"}}
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"namespace": "team", "name": "sums", "uid": "u"},
        "spec": spec or plain,
        "status": {"resolved": resolved, "intent": intent, "attempts": list(attempts)} | (status or {}),
    }


def rows(
    *attempts: dict[str, Any], month: usage.Month = NOVEMBER, status: dict[str, Any] | None = None
) -> list[UsageRow]:
    return list(usage.status_rows([(job(*attempts, status=status), "cards", "atlas-a3")], month, NOW))


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026-10", "2026-10-01T00:00:00+00:00", "2026-11-01T00:00:00+00:00"),
        ("2024-02", "2024-02-01T00:00:00+00:00", "2024-03-01T00:00:00+00:00"),
        ("2025-12", "2025-12-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
        ("2026-11", "2026-11-01T00:00:00+00:00", "2026-11-22T12:00:00+00:00"),
    ],
)
def test_a_month_is_utcs_and_ends_with_now(text: str, begin: str, end: str) -> None:
    found = read_month(text, NOW)
    assert (found.begin.isoformat(), found.end.isoformat()) == (begin, end)


@pytest.mark.parametrize(
    ("text", "words"), [("2026-13", "such as 2026-11"), ("26-1", "such as"), ("2026-12", "in the future")]
)
def test_a_month_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_month(text, NOW)


def test_an_attempt_counts_in_each_month_for_what_it_held_there() -> None:
    over_midnight = attempt(1, "10-31T23:00", "11-01T03:00", productive=16 * 7200)
    (october,), (november,) = rows(over_midnight, month=OCTOBER), rows(over_midnight)
    assert (october.card_seconds, november.card_seconds) == (8 * 3600, 8 * 3 * 3600)
    assert (october.productive_card_seconds, november.productive_card_seconds) == (8 * 1800, 8 * 5400)
    assert (november.queue, november.accelerator, november.job) == ("cards", "atlas-a3", "sums")


def test_an_attempt_counts_for_the_devices_that_it_had() -> None:
    larger = attempt(1, "11-01T00:00", "11-02T00:00", productive=4 * DAY, devices=64)
    (row,) = rows(larger, attempt(2, "11-02T00:00", "11-03T00:00"))
    assert row.card_seconds == (4 * DAY + DAY) / 2
    assert row.productive_card_seconds == 4 * DAY / 2


def test_an_attempt_whose_devices_were_not_counted_had_those_of_the_job() -> None:
    told = attempt(1, "11-01T00:00", "11-02T00:00")
    del told["deviceSeconds"]
    (row,) = rows(told)
    assert row.card_seconds == DAY / 2


def test_what_a_start_held_counts_with_the_run_that_followed() -> None:
    started = attempt(1, "11-22T11:00", None) | {"deviceSeconds": 16 * 600}
    (row,) = rows(started)
    assert row.card_seconds == 8 * 3600 + 8 * 600


def test_what_runs_counts_up_to_now_and_is_productive_up_to_its_checkpoint() -> None:
    told = {
        "progress": {"step": 12, "medianStepSeconds": "60"},
        "checkpoint": {"step": 10, "path": "/c", "savedTime": "2026-11-22T11:30:00Z"},
    }
    running = attempt(1, "11-22T11:00", None) | {"startTime": "2026-11-22T11:01:00Z"}
    (row,) = rows(running, status=told)
    assert (row.card_seconds, row.productive_card_seconds) == (8 * 3600, 8 * 600)


def test_attempts_of_other_months_and_jobs_without_any_have_no_row() -> None:
    assert rows(attempt(1, "09-01T00:00", "09-02T00:00")) == []
    assert rows() == []
    bare = job() | {"status": {"attempts": [attempt(1, "11-01T00:00", "11-02T00:00")]}}
    assert list(usage.status_rows([(bare, "", "")], NOVEMBER, NOW)) == []


def test_attempts_that_the_status_has_dropped_have_no_month() -> None:
    assert usage.undated_card_hours(job(attempt(1, "11-01T00:00", "11-02T00:00"))) == 0
    dropped = job(attempt(11, "11-01T00:00", "11-02T00:00"), status=DROPPED)
    assert usage.undated_card_hours(dropped) == 1.0


def answers(series: dict[str, list[tuple[dict[str, str], float]]], asked: list[str]) -> usage.Ask:
    def ask(query: str, moment: float) -> list[dict[str, Any]]:
        asked.append(f"{datetime.fromtimestamp(moment, UTC):%m-%d %H} {query}")
        found = next((value for name, value in series.items() if name in query), [])
        return [{"metric": labels, "value": [moment, str(value)]} for labels, value in found]

    return ask


def test_queues_are_summed_day_by_day_up_to_the_end() -> None:
    asked: list[str] = []
    team = {"rljob_namespace": "team", "queue": "cards"}
    series = {usage.HELD: [(team, 10.0), ({"rljob_namespace": "idle"}, 0.0)], usage.PRODUCTIVE: [(team, 4.0)]}
    (row,) = usage.queue_rows(answers(series, asked), NOVEMBER, "team")
    assert row == UsageRow("team", "cards", "", "", 220.0, 88.0)
    held = [query for query in asked if usage.HELD in query]
    assert len(held) == 22
    chosen = '{job="rljob-operator",rljob_namespace="team"}'
    assert held[0] == f"11-02 00 sum by (rljob_namespace, queue) (increase({usage.HELD}{chosen}[86400s]))"
    assert held[-1] == f"11-22 12 sum by (rljob_namespace, queue) (increase({usage.HELD}{chosen}[43200s]))"


def test_jobs_are_counted_while_their_heads_are_there_and_joined_to_queue_and_class() -> None:
    asked: list[str] = []
    known = {"rljob_namespace": "team", "rljob": "sums"}
    other = known | {"rljob": "chat"}
    series = {
        usage.CARDS + "{": [(known, 100.0), (other, 1.0), (known | {"rljob": "none"}, 0.0)],
        usage.INFO: [(known | {"queue": "cards", "accelerator": "atlas-a3"}, 1.0)],
    }
    found = list(usage.job_rows(answers(series, asked), OCTOBER, None))
    assert found == [
        UsageRow("team", "cards", "atlas-a3", "sums", 3100.0, None),
        UsageRow("team", "", "", "chat", 31.0, None),
    ]
    assert 'max by (rljob_namespace, rljob) (rljob_cards{job="rljob-jobs"}))[86400s:60s]) * 60' in asked[0]


def test_the_page_is_csv_or_a_table() -> None:
    listed = [UsageRow("b", "", "", "x", 7200, None), UsageRow("a", "cards", "", "", 3600, 1800)]
    first, second = csv.DictReader(usage_page(OCTOBER, listed, "csv").splitlines())
    assert (first["namespace"], first["card_seconds"], first["productive_card_hours"]) == ("a", "3600", "0.50")
    assert (second["job"], second["card_hours"], second["productive_card_seconds"]) == ("x", "2.00", "")
    assert usage_page(OCTOBER, listed, "table").splitlines()[0].split()[:3] == ["MONTH", "NAMESPACE", "QUEUE"]
    assert usage_page(OCTOBER, [], "csv") == ",".join(usage.COLUMNS)
    document = json.loads(usage_page(OCTOBER, listed, "json"))
    assert document["month"] == OCTOBER.name
    assert [row["card_seconds"] for row in document["usage"]] == [3600, 7200]


def test_the_command_reads_statuses_and_says_what_they_lack(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dropped = job(attempt(11, "10-01T00:00", "10-02T00:00"), status=DROPPED)
    (kubectl / "answer").write_text(json.dumps({"items": [dropped]}))
    assert main(["usage", "--month", "2026-10", "-A", "-o", "csv"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1] == "2026-10,team,cards,atlas-a3,sums,691200,0,192.00,0.00"
    assert "only Prometheus has the usage of deleted jobs" in told.err
    assert "team/sums: 1.00 card-hours of early attempts are not included" in told.err
    assert "--all-namespaces" in (kubectl / "words").read_text()


def test_a_recipe_may_name_queue_and_class(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec = typed(merged(small_spec(), {"scheduling": {"queueName": "gold"}}))
    frozen = configmap.build_snapshot(IDENTITY, configmap.Snapshot(spec, (), None), 1)
    on_recipe = job(attempt(1, "10-01T00:00", "10-02T00:00"), spec={"recipeRef": {"name": "base"}})
    on_recipe["metadata"]["uid"] = IDENTITY.uid
    monkeypatch.setattr("rljob.cli.kubectl.list_jobs", lambda *_, **__: [on_recipe])
    monkeypatch.setattr("rljob.cli.kubectl.get_config_map", lambda *_: frozen)
    assert main(["usage", "--month", "2026-10", "-o", "csv"]) == 0
    assert ",gold,cpu,sums," in capsys.readouterr().out
    on_recipe["metadata"]["uid"] = "another job of the name"
    assert main(["usage", "--month", "2026-10", "-o", "csv"]) == 0
    told = capsys.readouterr()
    assert "queue and class of team/sums: configmap/sums-0a1b2-spec-1 was not frozen by the operator" in told.err
    assert ",,,sums," in told.out


@pytest.mark.parametrize(("by", "name"), [("queue", usage.HELD), ("job", usage.CARDS)])
def test_with_prometheus_the_cluster_is_not_asked(
    by: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    labels = {"rljob_namespace": "team", "queue": "cards", "rljob": "sums"}
    ask: Callable[[str, float], list[dict[str, Any]]] = answers({name: [(labels, 3600.0)]}, asked)
    monkeypatch.setattr("rljob.cli.report.prometheus.Server.query", lambda _, query, moment: ask(query, moment))
    words = ["usage", "--month", "2026-10", "--prometheus", "http://localhost:1", "--by", by, "-o", "csv"]
    assert main([*words, "-n", "team"]) == 0
    assert ",31.00," in capsys.readouterr().out
    assert all('rljob_namespace="team"}' in query for query in asked)
    assert main([*words, "-A"]) == 0
    assert main(words) == 2
    assert "-n, or all with -A" in capsys.readouterr().err
