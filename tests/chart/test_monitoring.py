"""Alerts and recording rules.

Their metrics exist, each alert has tests with and without firing, and links to its page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.chart.helm import CHART, ROOT, pick, render
from tests.monitoring.known import KNOWN
from tests.monitoring.prometheus import promtool
from tests.monitoring.questions import board_questions, names
from tests.monitoring.rules import rule_groups

RULES = CHART / "files/rules.yaml"
CASES = Path(__file__).parent / "rules-test.yaml"
RUNBOOKS = ROOT / "docs/runbooks.md"


def rules() -> list[dict[str, Any]]:
    return [rule for group in rule_groups() for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def test_the_rules_read_series_that_exist() -> None:
    named = {name for rule in rules() for name in names(rule["expr"])}
    assert len(named) >= 25
    assert {name for name in named if not KNOWN.fullmatch(name)} == set()


def test_prometheus_understands_the_rules() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", RULES)


def test_each_alert_fires_and_does_not_fire() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test.get("promql_expr_test", ())]
    tested = {
        (name[1], bool(case["exp_samples"]))
        for case in cases
        if (name := re.search(r'ALERTS\{alertname="(\w+)"', case["expr"]))
    }
    assert tested == {(alert["alert"], fires) for alert in alerts() for fires in (True, False)}


def test_each_recorded_series_is_tested() -> None:
    text = CASES.read_text()
    assert [rule["record"] for rule in rules() if "record" in rule and f"expr: {rule['record']}\n" not in text] == []


def test_each_alert_says_what_is_wrong_and_leads_to_its_page() -> None:
    headings = {
        line.removeprefix("## ").lower() for line in RUNBOOKS.read_text().splitlines() if line.startswith("## ")
    }
    for alert in alerts():
        annotations, name = alert["annotations"], alert["alert"]
        assert annotations["summary"].endswith("."), name
        assert annotations["description"].endswith("."), name
        assert alert["labels"]["severity"] in ("critical", "warning", "info"), name
        assert annotations["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
        assert name.lower() in headings


def test_each_page_is_about_an_alert() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == [alert["alert"] for alert in alerts()]


def test_each_rule_and_each_panel_takes_the_series_of_one_scrape() -> None:
    """A page that another scrape of the site stores cannot raise or silence an alert, nor appear on a board."""
    selector = re.compile(r'(?<![\w:"])((?:rljob_|vllm:|tq_|ray_(?!node_type))(?!namespace\b)\w+|up)\b(\{[^}]*\})?')
    asked = [rule["expr"] for group in rule_groups() for rule in group["rules"]]
    assert len(asked) > 20
    asked += [question.expression for question in board_questions()]
    found = [match for expression in asked for match in selector.finditer(expression)]
    assert len(found) > 150
    for name, matchers in (match.groups() for match in found):
        beginnings = {"rljob_operator_": "operator", "up": "ray", "ray_": "ray"}
        scrape = next((scrape for beginning, scrape in beginnings.items() if name.startswith(beginning)), "jobs")
        assert f'job="rljob-{scrape}"' in (matchers or ""), name


def test_without_values_the_chart_changes_nothing_in_the_file() -> None:
    assert rule_groups() == yaml.safe_load(RULES.read_text())["groups"]


def test_without_prometheus_operator_the_same_stands_in_a_config_map() -> None:
    on = ["--set", "metrics.configMap.enabled=true,operator.resyncSeconds=60,metrics.runbooks=https://wiki/rljob"]
    data = pick(render(*on), "ConfigMap", "rljob-operator-prometheus")["data"]
    found = yaml.safe_load(data["rules.yaml"])["groups"]
    old = next(rule for group in found for rule in group["rules"] if rule.get("alert") == "RLJobResyncOld")
    assert old["expr"].endswith("> 180")
    assert old["annotations"]["runbook_url"] == "https://wiki/rljob/runbooks.md#rljobresyncold"
    assert [len(group["rules"]) for group in found] == [len(group["rules"]) for group in rule_groups()]
    moved = pick(render(*on, "--namespace", "elsewhere"), "ConfigMap", "rljob-operator-prometheus")["data"]
    assert "namespaces: {names: [elsewhere]}" in moved["scrape-config.yaml"]
    assert data["scrape-config.yaml"].strip() == (CHART / "files/scrape-config.yaml").read_text().strip()
