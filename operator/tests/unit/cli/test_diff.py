"""`rljob diff`: what an edit would change, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from builders import IDENTITY, Json, merged, saving, small_spec, typed

from rljob.api.v1alpha1 import RecipeKind, RLJobSpec
from rljob.cli.diff import LAST_APPLIED, against_job, applied_spec
from rljob.cli.main import main
from rljob.core.observed import RecipeId
from rljob.core.spec.recipes import resolve
from rljob.render import configmap

API = "rljob.dev/v1alpha1"
SPEC = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}}))


BASE = RecipeId(RecipeKind.CLUSTER_RL_RECIPE, "base")


def job(spec: Json, name: str = "sums") -> Json:
    return {"apiVersion": API, "kind": "RLJob", "metadata": {"name": name}, "spec": spec}


def written(folder: Path, name: str, *documents: Json) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def spec(change: Json) -> RLJobSpec:
    return typed(merged(SPEC, change))


def rows(page: str) -> list[list[str]]:
    return [line.split() for line in page.splitlines()]


def test_each_field_says_when_it_takes_effect() -> None:
    edit = {"trainer": {"learningRate": "1e-5"}, "deadlines": {"startSeconds": 60}}
    assert rows(against_job(spec({}), spec({}), spec(edit)).page) == [
        ["FIELD", "FROM", "TO", "TAKES", "EFFECT"],
        ["deadlines.startSeconds", "1800", "60", "at", "once"],
        ["trainer.learningRate", "1e-6", "1e-5", "next", "cluster", "generation"],
    ]


def test_what_was_edited_before_is_compared_with_what_runs() -> None:
    pending, at_once = {"trainer": {"learningRate": "1e-5"}}, {"deadlines": {"startSeconds": 60}}
    page = against_job(spec({}), spec(pending | at_once), spec(pending | at_once)).page
    assert rows(page)[1:] == [["trainer.learningRate", "1e-6", "1e-5", "next", "cluster", "generation"]]


def test_no_edit_of_a_job_that_has_ended_takes_effect() -> None:
    edit = {"deadlines": {"startSeconds": 60}}
    changes = against_job(spec({}), spec({}), spec(edit), ended="Failed")
    assert rows(changes.page)[1] == ["deadlines.startSeconds", "1800", "60", "never"]
    assert changes.page.endswith("the job has ended as Failed: delete it and create it again, or use another name")
    assert changes.document("team", "sums")["changes"][0]["takesEffect"] == "never"
    later = against_job(spec({}), spec({}), spec({"cleanup": {"jobAfterSeconds": 60}}), ended="Failed")
    assert "at once" in later.page
    assert "has ended" not in later.page


def test_an_edit_that_a_running_job_refuses_is_shown() -> None:
    page = against_job(spec({}), spec({}), spec({"trainer": {"steps": 30}})).page
    assert "refused: spec.trainer.steps: 30 is less than 40" in page
    assert not against_job(spec({}), spec({}), spec({}))


@pytest.mark.parametrize(
    ("last", "wanted", "live", "merged"),
    [
        # What a verb set stays: `rljob suspend` changes the live spec alone.
        ({"a": 1}, {"a": 2}, {"a": 1, "suspend": True}, {"a": 2, "suspend": True}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"b": 1, "c": 2, "d": 3}}, {"a": {"b": 1, "d": 3}}),
        ({"a": 1, "suspend": True}, {"a": 1}, {"a": 1, "suspend": True}, {"a": 1}),
        ({"list": [1]}, {"list": [2]}, {"list": [1, 3]}, {"list": [2]}),
        ({}, {"a": None, "b": {"c": None}}, {"a": 1}, {"b": {}}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": 1}, {"a": {"b": 2}}),
    ],
)
def test_a_manifest_is_merged_as_kubectl_apply_does(last: Json, wanted: Json, live: Json, merged: Json) -> None:
    annotations = {LAST_APPLIED: json.dumps({"spec": last})}
    assert applied_spec({"metadata": {"annotations": annotations}, "spec": live}, wanted) == merged


@pytest.mark.parametrize("annotations", [None, {}, {LAST_APPLIED: "{"}, {LAST_APPLIED: "[]"}])
def test_a_job_that_was_not_applied_keeps_every_field(annotations: dict[str, str] | None) -> None:
    live = {"metadata": {"annotations": annotations}, "spec": {"a": 1, "suspend": True}}
    assert applied_spec(live, {"a": 2}) == {"a": 2, "suspend": True}


def test_two_files_are_compared_whatever_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path, "old.yaml", job(SPEC, "before"))
    new = written(tmp_path, "new.yaml", job(merged(SPEC, {"trainer": {"steps": 50}}), "after"))
    assert main(["diff", "-f", new, "--against", old]) == 1
    assert rows(capsys.readouterr().out)[2] == ["trainer.steps", "40", "50"]
    assert main(["diff", "-f", old, "--against", old]) == 0
    assert capsys.readouterr().out == "no difference\n"


def test_an_invalid_or_missing_side_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = written(tmp_path, "two.yaml", job(SPEC, "a"), job(SPEC, "b"))
    other = written(tmp_path, "other.yaml", job(SPEC, "c"))
    assert main(["diff", "-f", two, "--against", other]) == 2
    assert "both sides must have a valid RLJob" in capsys.readouterr().err


def test_a_job_of_the_cluster_is_judged_over_its_frozen_recipes(
    kubectl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {"kind": "ClusterRLRecipe", "metadata": {"name": "base", "uid": "u", "generation": 1}}
    layers = resolve({"recipeRef": {"name": "base"}}, {BASE: recipe | {"spec": {"template": SPEC}}}).layers
    own: Json = {"recipeRef": {"name": "base"}, "trainer": {"steps": 60}}
    frozen = configmap.Snapshot(spec({"trainer": {"steps": 60}, "recipeRef": {"name": "base"}}), layers)
    answers: dict[str, Json] = {
        "rljobs": job(own)
        | {
            "metadata": {"name": "sums", "uid": IDENTITY.uid},
            "status": {"resolved": {"snapshotName": "sums-0a1b2-spec-1"}},
        },
        "configmaps": configmap.build_snapshot(IDENTITY, frozen, 1),
    }
    for kind, answer in answers.items():
        (kubectl / f"answer-{kind}").write_text(json.dumps(answer))
    script = '#!/bin/sh\ncd "$(dirname "$0")"\ncat "answer-${2%%.*}"\n'
    (kubectl / "kubectl").write_text(script)
    file = written(tmp_path, "job.yaml", job(merged(own, {"trainer": {"steps": 80}})))
    assert main(["diff", "-f", file]) == 1
    assert rows(capsys.readouterr().out)[2] == ["trainer.steps", "60", "80", "next", "cluster", "generation"]
    assert main(["diff", "-f", written(tmp_path, "same.yaml", job(own))]) == 0
    suspended = answers["rljobs"] | {"spec": own | {"suspend": True}}
    (kubectl / "answer-rljobs").write_text(json.dumps(suspended))
    assert main(["diff", "-f", written(tmp_path, "same.yaml", job(own))]) == 0
    answers["configmaps"]["metadata"]["ownerReferences"] = []
    (kubectl / "answer-configmaps").write_text(json.dumps(answers["configmaps"]))
    assert main(["diff", "-f", file]) == 2
    assert "was not frozen by the operator for this RLJob" in capsys.readouterr().err


def test_a_job_that_has_not_begun_has_nothing_to_compare(
    kubectl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "answer").write_text(json.dumps(job(SPEC)))
    assert main(["diff", "-f", written(tmp_path, "job.yaml", job(SPEC))]) == 2
    assert "has not started" in capsys.readouterr().err
