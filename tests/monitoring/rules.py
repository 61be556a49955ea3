"""The chart's alert and recording rules as Prometheus reads them, rendered by helm like those of users."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.chart.helm import Manifest, pick, render


def rule_groups() -> list[Manifest]:
    """Return the groups of the PrometheusRule."""
    rendered = pick(render("--set", "metrics.prometheusRule.enabled=true"), "PrometheusRule")
    groups: list[Manifest] = rendered["spec"]["groups"]
    return groups


def write_rules(path: Path) -> Path:
    """Write the rules as a rule file of Prometheus."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"groups": rule_groups()}, sort_keys=False, width=120))
    return path
