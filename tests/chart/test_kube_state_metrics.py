"""The configuration of kube-state-metrics: every path is a field of the CRD, of the type that the metric needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from rljob.api.crd import build_rljob_crd
from rljob.api.status import State
from tests.chart.helm import CHART, pick, render

SCHEMA = build_rljob_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
METADATA = {
    "name": {"type": "string"},
    "namespace": {"type": "string"},
    "uid": {"type": "string"},
    "generation": {"type": "integer"},
    "creationTimestamp": {"type": "string", "format": "date-time"},
    "deletionTimestamp": {"type": "string", "format": "date-time"},
}
"""Fields of Kubernetes' metadata, which a CRD does not repeat."""
ROOT = {"properties": SCHEMA["properties"] | {"metadata": {"type": "object", "properties": METADATA}}}
DECIMAL = ("12.5", "1e-05", "-0.25")
Json = Mapping[str, Any]


FILE = CHART / "files/kube-state-metrics.yaml"


def resource() -> dict[str, Any]:
    (found,) = yaml.safe_load(FILE.read_text())["spec"]["resources"]
    assert isinstance(found, dict)
    return found


def at(schema: Json, path: Sequence[str]) -> Json:
    """Return the schema of the field at a path."""
    for part in path:
        assert part in schema.get("properties", {}), f"{path}: the CRD has no {part}"
        schema = schema["properties"][part]
    return schema


def is_number(schema: Json) -> bool:
    """Return whether kube-state-metrics reads a float from every value of the field.

    See registry_factory.go, toFloat64.
    """
    if schema.get("type") in ("integer", "boolean") or schema.get("format") == "date-time":
        return True
    values = schema.get("enum")
    if values is not None:
        return {str(value).lower() for value in values} <= {"true", "false", "unknown"}
    return "pattern" in schema and all(re.search(schema["pattern"], text) for text in DECIMAL)


def gauges() -> Iterator[tuple[str, Json]]:
    for metric in resource()["metrics"]:
        if metric["each"]["type"] == "Gauge":
            yield metric["name"], metric["each"]["gauge"]


def test_it_is_about_our_kind() -> None:
    kind = build_rljob_crd()["spec"]
    assert resource()["groupVersionKind"] == {
        "group": kind["group"],
        "version": kind["versions"][0]["name"],
        "kind": kind["names"]["kind"],
    }


@pytest.mark.parametrize(("name", "gauge"), list(gauges()))
def test_every_gauge_is_a_number_of_the_crd(name: str, gauge: Json) -> None:
    schema = at(ROOT, gauge["path"])
    if schema.get("type") == "array":
        for path in gauge["labelsFromPath"].values():
            at(schema["items"], path)
        schema = at(schema["items"], gauge["valueFrom"])
    elif "labelFromKey" in gauge:
        assert schema["properties"]
        assert all(is_number(field) for field in schema["properties"].values())
        return
    assert is_number(schema), name


def test_every_label_is_a_word_of_the_crd() -> None:
    infos = [metric["each"]["info"]["labelsFromPath"] for metric in resource()["metrics"] if "info" in metric["each"]]
    for labels in (resource()["labelsFromPath"], *infos):
        for path in labels.values():
            assert at(ROOT, path)["type"] == "string"


def test_the_states_are_all_of_them() -> None:
    (states,) = (metric["each"]["stateSet"] for metric in resource()["metrics"] if "stateSet" in metric["each"])
    assert at(ROOT, states["path"])["enum"] == states["list"] == [state.value for state in State]


def test_no_two_metrics_have_one_name() -> None:
    names = [metric["name"] for metric in resource()["metrics"]]
    assert len(set(names)) == len(names)


def test_the_chart_hands_out_the_file_as_it_is() -> None:
    made = render("--set", "metrics.kubeStateMetrics.enabled=true,metrics.kubeStateMetrics.namespace=monitoring")
    found = pick(made, "ConfigMap", "rljob-operator-kube-state-metrics")
    assert found["metadata"]["namespace"] == "monitoring"
    assert found["data"]["rljob.yaml"].strip() == FILE.read_text().strip()
