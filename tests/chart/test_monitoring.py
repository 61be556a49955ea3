"""Alerts and dashboard: every metric that they name exists, and Prometheus understands the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rljob.telemetry.metrics import Metrics
from rljob_runtime.exporter.catalogue import CATALOGUE
from tests.chart.helm import CHART, Manifest, pick, render

ON = ["--set", "metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true"]


def rule_spec() -> Manifest:
    spec: Manifest = pick(render(*ON), "PrometheusRule")["spec"]
    return spec


def dashboard() -> dict[str, Any]:
    charted = pick(render(*ON), "ConfigMap", "rljob-operator-dashboard")
    assert charted["metadata"]["labels"]["grafana_dashboard"] == "1"
    loaded: dict[str, Any] = json.loads(charted["data"]["rljob.json"])
    return loaded


def known_metrics() -> set[str]:
    operator = {sample.name for family in Metrics().registry.collect() for sample in family.samples}
    families = {family.name for family in Metrics().registry.collect()}
    return operator | families | {f"{name}_total" for name in families} | {metric.name for metric in CATALOGUE}


def metrics_in(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\b(on|by) \([^)]*\)', " ", expression)
    return set(re.findall(r"\brljob_[a-z_]+", bare))


def test_the_rules_name_metrics_that_exist() -> None:
    expressions = [rule["expr"] for group in rule_spec()["groups"] for rule in group["rules"]]
    named = set().union(*(metrics_in(expression) for expression in expressions))
    assert len(named) >= 8
    assert named - known_metrics() == set()


def test_the_dashboard_names_metrics_that_exist() -> None:
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    named = set().union(*(metrics_in(expression) for expression in expressions))
    assert named >= {"rljob_reward_mean", "rljob_tokens_per_second", "rljob_cluster_idle_ratio"}
    assert named - known_metrics() == set()


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not on this machine")
def test_prometheus_understands_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rule_spec()))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_in_the_chart_is_formatted() -> None:
    text = (CHART / "files/dashboard.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
