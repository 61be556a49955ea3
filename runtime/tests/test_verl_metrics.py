"""verl's keys under stable names."""

from __future__ import annotations

import re

import pytest

from rljob_runtime.exporter import catalogue, verl_metrics
from rljob_runtime.exporter.verl_metrics import ROWS, name, named


@pytest.mark.parametrize(
    ("key", "metric", "labels"),
    [
        ("critic/score/max", "rljob_score", {"stat": "max"}),
        ("response_length/mean", "rljob_response_tokens", {"stat": "mean"}),
        ("response_length/clip_ratio", "rljob_response_clipped_ratio", {}),
        ("actor/pg_clipfrac_lower", "rljob_policy_clipped_ratio", {"bound": "lower"}),
        ("critic/grad_norm", "rljob_gradient_norm", {"model": "critic"}),
        ("training/filter_groups/evicted_samples", "rljob_discarded_groups", {"reason": "filtered"}),
        ("training/rollout_probs_diff_max", "rljob_rollout_probability_difference", {"stat": "max"}),
        ("rollout/moe/max_vio/layer_12", "rljob_expert_load_violation", {"figure": "max_vio", "layer": "12"}),
        ("rollout/moe/max_vio/avg", "rljob_expert_load", {"figure": "max_vio", "stat": "avg"}),
        (
            "val-core/openai/gsm8k/acc/mean@4",
            "rljob_validation",
            {"source": "openai/gsm8k", "variable": "acc", "estimate": "mean@4", "kind": "core"},
        ),
        ("val-aux/num_turns/mean", "rljob_validation_turns", {"stat": "mean"}),
        ("separate_async/switch/idle", "rljob_verl_metric", {"key": "separate_async/switch/idle"}),
    ],
)
def test_a_key_has_its_name_and_labels(key: str, metric: str, labels: dict[str, str]) -> None:
    assert (name(key).metric.name, dict(name(key).labels)) == (metric, labels)


def test_units_are_those_of_prometheus() -> None:
    assert name("timing_per_token_ms/ref").factor == pytest.approx(1e-3)
    assert name("actor/perf/max_memory_allocated_gb").factor == 1024**3


def test_a_duplicate_of_another_metric_is_left_out() -> None:
    assert named(verl_metrics.SAME) == []
    known = {metric.name for metric in catalogue.CATALOGUE}
    assert {value.split("{")[0] for value in verl_metrics.SAME.values()} <= known


def test_rows_of_one_name_agree_and_one_of_them_explains_it() -> None:
    for metric in verl_metrics.METRICS[:-1]:
        rows = [row for row in ROWS if row.name == metric.name]
        assert all(set(row.labels) == set(metric.labels) for row in rows), metric.name
        assert {row.unit for row in rows} == {metric.unit}
        assert metric.description


def test_names_follow_prometheus() -> None:
    names = [metric.name for metric in catalogue.CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in catalogue.CATALOGUE:
        assert re.fullmatch(r"rljob_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert ("_ratio" in metric.name) == (metric.unit == "ratio"), metric.name
        assert not {"job", "namespace", "instance", "rljob", "rljob_namespace"} & set(metric.labels)


def test_unknown_keys_come_last() -> None:
    assert [one.key for one in named(["zz/new", "actor/entropy", "aa/new"])] == ["actor/entropy", "aa/new", "zz/new"]
