"""Recipes on the command line: from files, from folders, from the cluster; and `rljob explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import Json, small_spec, validate

from rljob.api import yaml11
from rljob.api.status import Decision
from rljob.cli.explain import Explained, explain, explain_page
from rljob.cli.main import main

API = "rljob.dev/v1alpha1"


def recipe(name: str, template: Json, below: str | None = None) -> Json:
    spec: Json = {"template": template} | ({"recipeRef": {"name": below}} if below else {})
    return {"apiVersion": API, "kind": "ClusterRLRecipe", "metadata": {"name": name}, "spec": spec}


def job(spec: Json) -> Json:
    return {"apiVersion": API, "kind": "RLJob", "metadata": {"name": "sums"}, "spec": spec}


BASE = recipe("base", small_spec({"rollout": {"maxSequences": 64}}))
JOB = job({"recipeRef": {"name": "base"}, "trainer": {"steps": 7}, "unset": ["rollout.maxSequences"]})


def written(folder: Path, name: str, *documents: Json) -> str:
    path = folder / name
    path.write_text(yaml11.dump_all(list(documents)))
    return str(path)


def test_job_and_recipe_may_stand_in_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["-f", written(tmp_path, "job.yaml", JOB), "-f", written(tmp_path, "recipe.json", BASE)]
    assert main(["validate", *files]) == 0
    assert main(["render", "--part", "job", *files]) == 0
    assert '"totalSteps": 7' in capsys.readouterr().out


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    written(tmp_path, "b.yml", JOB)
    written(tmp_path, "a.yaml", BASE)
    (tmp_path / "notes.txt").write_text("{")
    assert main(["validate", "-f", str(tmp_path)]) == 0


def test_a_recipe_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", written(tmp_path, "job.yaml", JOB)]) == 1
    assert capsys.readouterr().err.endswith(
        "spec.recipeRef: ClusterRLRecipe base does not exist in the files; add -f RECIPE-FILE, or --cluster to read it "
        "from the cluster\n"
    )


def test_folders_within_a_folder_are_noted_and_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("inner", "odd.yaml", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "broken.yaml").write_text("a: [")
    assert main(["validate", "-f", str(tmp_path)]) == 2
    unread = f"folders within a folder are not read: {tmp_path}/inner, {tmp_path}/odd.yaml; pass each with -f"
    assert capsys.readouterr().err.endswith(f"and kind RLJob; {unread}\n")
    written(tmp_path, "all.yaml", BASE, JOB)
    assert main(["validate", "-f", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"rljob: note: {unread}\n"
    assert main(["diff", "-f", str(tmp_path / "all.yaml"), "--against", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"rljob: note: {unread}\n"
    for index in range(9):
        (tmp_path / f"a{index}").mkdir()
    assert main(["validate", "-f", str(tmp_path)]) == 0
    assert f"{tmp_path}/a7, …; pass" in capsys.readouterr().err


def test_a_recipe_without_a_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", written(tmp_path, "r.yaml", BASE | {"metadata": {}}, JOB)]) == 2
    assert "a ClusterRLRecipe has no metadata.name" in capsys.readouterr().err


def test_recipes_come_from_the_cluster_when_asked(
    kubectl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "answer").write_text(json.dumps(BASE))
    file = written(tmp_path, "job.yaml", JOB)
    assert main(["explain", "--cluster", "-f", file]) == 0
    words = (kubectl / "words").read_text().strip()
    assert words == "get clusterrlrecipes.rljob.dev base --output json --namespace default"
    (kubectl / "error").write_text('Error from server (NotFound): clusterrlrecipes.rljob.dev "base" not found')
    assert main(["validate", "--cluster", "-f", file]) == 1
    assert "ClusterRLRecipe base does not exist; `kubectl get" in capsys.readouterr().err


def test_a_cluster_that_refuses_is_no_missing_recipe(kubectl: Path, tmp_path: Path) -> None:
    (kubectl / "error").write_text("Error from server (Forbidden): no")
    assert main(["validate", "--cluster", "-f", written(tmp_path, "job.yaml", JOB)]) == 5


def test_explain_says_of_each_field_who_set_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "all.yaml", BASE, JOB)
    assert main(["explain", "trainer", "-f", file]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert ["trainer.microBatchSizePerDevice", "128", "decision: a device's share of a mini batch"] in lines
    assert ["trainer.steps", "7", "job"] in lines
    assert ["trainer.globalBatchSize", "32", "ClusterRLRecipe base"] in lines
    assert ["trainer.learningRate", "1e-6", "default"] in lines
    assert all(line[0].startswith("trainer") for line in lines[1:])
    assert main(["explain", "rollout.maxSequences", "-f", file]) == 0
    assert "unset  nothing sets it" in capsys.readouterr().out


def test_explain_of_an_invalid_job_fails(tmp_path: Path) -> None:
    assert main(["explain", "-f", written(tmp_path, "job.yaml", JOB)]) == 1


def test_explain_gives_a_decision_with_its_reason() -> None:
    checked = validate("sums", small_spec({"optimizations": {"coreBinding": "Auto"}}))
    assert checked.spec is not None
    decisions = (
        Decision(name="optimizations.coreBinding", value="Disabled", reason="no NPU"),
        Decision(name="trainer.microBatchSizePerDevice", value="128", reason="a device's share"),
    )
    page = explain_page(Explained(explain(checked, checked.spec, decisions)))
    assert [line.split(maxsplit=2) for line in page.splitlines() if "decision" in line] == [
        ["optimizations.coreBinding", "Disabled", "decision: no NPU"],
        ["trainer.microBatchSizePerDevice", "128", "decision: a device's share"],
    ]
