"""`rljob explain` accepts every path that messages print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import Json, small_spec, validate
from corpus import BAD, SAMPLE
from corpus.bad import Bad
from property.documents import GOOD_SPECS

from rljob.api import yaml11
from rljob.api.texts import write_texts
from rljob.cli.errors import UsageError
from rljob.cli.explain import NOBODY, Row, explain, read_path
from rljob.cli.main import main
from rljob.core.spec.decisions import decide
from rljob.core.spec.merge import leaves, path_text
from rljob.launchers import LAUNCHER

SPEC = small_spec(
    {
        "workerGroups": [
            {
                "name": "trainer",
                "devicesPerNode": 2,
                "template": {
                    "env": [{"name": "A", "value": "one"}, {"name": "B", "value": "two"}],
                    "nodeSelector": {"example.com/zone": "z"},
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                },
            }
        ],
        "verl": {"overrides": {"actor_rollout_ref.actor.use_torch_compile": False, "+data.x": [1, 2]}},
        "data": {"train": ["/data/a.parquet", "/data/b.parquet"]},
    }
)


def rows(path: str, spec: Json = SPEC) -> list[Row]:
    checked = validate("sums", spec)
    assert checked.spec is not None
    return explain(checked, checked.spec, decide(checked.spec, LAUNCHER(checked.spec).questions), read_path(path))


UNKNOWN = {name: bad for name, bad in BAD.items() if "is not a field of RLJob" in bad.message}
PATHS = SAMPLE | UNKNOWN


@pytest.mark.parametrize("bad", PATHS.values(), ids=PATHS.keys())
def test_every_path_of_a_violation_is_read(bad: Bad) -> None:
    for violation in validate("bad", bad.spec).violations:
        path = read_path(violation.field)
        assert path[:1] != ("spec",)
        # In a valid job, the field is there, is not set, or its name is wrong; it is never no path.
        if "is not a field of RLJob" in violation.message and "Probe." not in violation.field:
            with pytest.raises(UsageError, match="no such field"):
                rows(violation.field)
        else:
            assert rows(violation.field)


@pytest.mark.parametrize("spec", [spec for spec in GOOD_SPECS if "recipeRef" not in spec][:10])
def test_every_path_that_explain_prints_is_read(spec: Json) -> None:
    checked = validate("sums", spec)
    for path, leaf in leaves(checked.merged.tree):
        assert Row(path_text(path), leaf.value, leaf.source).field in [row.field for row in rows(path_text(path), spec)]
    for row in rows("", spec):
        assert rows(row.field, spec)


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("trainer.steps", "trainer.steps", 40),
        ("spec.trainer.steps", "trainer.steps", 40),
        ("spec.workerGroups[0].nodes", "workerGroups[trainer].nodes", 1),
        ("workerGroups[trainer].nodes", "workerGroups[trainer].nodes", 1),
        ("spec.workerGroups[0].template.env[1].value", "workerGroups[trainer].template.env[B].value", "two"),
        (
            "spec.workerGroups[0].template.nodeSelector[example.com/zone]",
            "workerGroups[trainer].template.nodeSelector[example.com/zone]",
            "z",
        ),
        (
            "spec.workerGroups[0].template.volumes[0].persistentVolumeClaim.claimName",
            "workerGroups[trainer].template.volumes[data].persistentVolumeClaim.claimName",
            "c",
        ),
        (
            "spec.verl.overrides[actor_rollout_ref.actor.use_torch_compile]",
            "verl.overrides[actor_rollout_ref.actor.use_torch_compile]",
            False,
        ),
        ("spec.verl.overrides[+data.x][1]", "verl.overrides[+data.x][1]", 2),
        ("spec.data.train[1]", "data.train[1]", "/data/b.parquet"),
        ("ClusterRLRecipe base-a3: spec.template.trainer.steps", "trainer.steps", 40),
        ("RLRecipe base: spec.template.trainer.steps", "trainer.steps", 40),
        ("rollout.captureSizes", "rollout.captureSizes", []),
    ],
)
def test_one_field_has_one_row(path: str, field: str, value: object) -> None:
    assert [(row.field, row.value) for row in rows(path)] == [(field, value)]


@pytest.mark.parametrize(
    "path",
    [
        "stopRules",
        "checkpoint.path",
        "spec.rollout.maxSequences",
        "services[0].image",
        "data.train[2]",
        "workerGroups[1].nodes",
    ],
)
def test_a_field_that_nothing_sets_is_shown_as_unset(path: str) -> None:
    (row,) = rows(path)
    assert (row.value, row.source) == ("unset", NOBODY)
    assert row.field == path.removeprefix("spec.")


def test_a_decision_about_several_fields_is_shown_for_each() -> None:
    spec = small_spec({"accelerator": {"class": "atlas-a2"}})
    (row,) = rows("spec.workerGroups[0].template.cpu", spec)
    assert row.field == "workerGroups[0].template"
    assert row.source.startswith("decision: ")
    assert rows("workerGroups[trainer].template", spec)[-1].source.startswith("decision: ")
    (row,) = rows("workerGroups[trainer].template.affinity", spec)
    assert row.source == NOBODY


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("spec.trainr", "spec.trainr: no such field; did you mean trainer?"),
        ("trainer.stps", "spec.trainer.stps: no such field; did you mean steps?"),
        ("trainer.qqqq", "no such field; its fields are async, backend,"),
        ("workerGroups[0].nods", "no such field; did you mean nodes?"),
        ("a..b", "a..b: not a path"),
        ("metadata.name", "only fields of spec have a source"),
    ],
)
def test_a_path_that_names_nothing_is_refused_with_the_nearest(path: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        rows(path)
    assert told in str(caught.value)


def test_rows_are_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [
        {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name}, "spec": write_texts(SPEC)}
        for name in ("a", "b")
    ]
    path = tmp_path / "jobs.yaml"
    path.write_text(yaml11.dump_all(documents))
    assert main(["explain", "-f", str(path), "spec.trainer.steps", "-o", "json"]) == 0
    field = {"field": "trainer.steps", "value": 40, "from": "job"}
    assert json.loads(capsys.readouterr().out) == [
        {"namespace": "default", "job": name, "fields": [field]} for name in ("a", "b")
    ]
    assert main(["explain", "-f", str(path), "spec.trainer.steps"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.endswith(":")] == ["a:", "b:"]
    assert main(["explain", "-f", str(path), "spec.trainr"]) == 2
