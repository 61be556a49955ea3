"""Helm 3 and Helm 4 render the same objects from the chart, with every set of values that is reviewed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import CHART, NAMESPACE, RELEASE, VALUES
from tests.cluster import programs

HELMS = {"helm3": "v3.", "helm": "v4."}
PROFILES = ("default", *sorted(path.stem for path in VALUES.glob("*.yaml")))


def helm(program: str, *words: str | Path) -> str:
    programs.build([program])
    binary = programs.binary(program, "helm")
    done = subprocess.run(
        [binary, *words], capture_output=True, text=True, timeout=120, check=False, env={"HOME": "/nonexistent"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(program: str, profile: str) -> list[dict[str, Any]]:
    values = () if profile == "default" else ("--values", VALUES / f"{profile}.yaml")
    text = helm(program, "template", RELEASE, CHART, "--namespace", NAMESPACE, *values)
    manifests = [document for document in yaml.safe_load_all(text) if document]
    for manifest in manifests:
        if manifest["kind"] == "Secret":
            manifest["data"]["key"] = "32 random bytes"
    return manifests


def test_they_are_two_releases() -> None:
    for program, beginning in HELMS.items():
        assert helm(program, "version", "--short").startswith(beginning)


@pytest.mark.parametrize("profile", PROFILES)
def test_both_render_the_same_objects(profile: str) -> None:
    older, newer = (rendered(program, profile) for program in HELMS)
    assert older
    assert older == newer


def test_both_accept_the_chart_and_refuse_a_wrong_value() -> None:
    for program in HELMS:
        helm(program, "lint", "--strict", CHART)
        with pytest.raises(AssertionError, match=r"replica"):
            helm(program, "template", RELEASE, CHART, "--set", "operator.replicas=many")
