"""Manifests as kubectl writes and creates them: lists, generated names, and what the server adds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json, small_spec
from corpus.bad import saved

from rljob.api import yaml11
from rljob.cli.main import main

API = "rljob.dev/v1alpha1"
SERVED = {
    "uid": "0a1b2c3d",
    "resourceVersion": "12",
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "managedFields": [{"manager": "kubectl"}],
}


def job(name: str, **more: Any) -> Json:  # noqa: ANN401 - JSON
    metadata = {"name": name, "namespace": "team-a", **SERVED}
    return {"apiVersion": API, "kind": "RLJob", "metadata": metadata, "spec": small_spec(), **more}


def recipe(name: str, spec: Json) -> Json:
    metadata = {"name": name, **SERVED}
    return {"apiVersion": API, "kind": "ClusterRLRecipe", "metadata": metadata, "spec": {"template": spec}}


def items(*documents: object, kind: str = "List", version: str = "v1") -> Json:
    return {"apiVersion": version, "kind": kind, "items": list(documents), "metadata": {"resourceVersion": ""}}


def written(folder: Path, *documents: object) -> str:
    path = folder / "jobs.yaml"
    path.write_text(yaml11.dump_all(list(documents)))
    return str(path)


def test_a_list_holds_jobs_and_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = job("b", spec={"recipeRef": {"name": "base"}})
    file = written(tmp_path, items(job("a", status={"state": "Training"}), own), items(recipe("base", small_spec())))
    assert main(["validate", "-f", file]) == 0
    assert capsys.readouterr().out == f"{file}: a is valid\n{file}: b is valid\n"


def test_a_list_of_the_api_server_may_leave_out_the_kind_of_its_items(tmp_path: Path) -> None:
    bare = {key: value for key, value in job("a").items() if key not in ("apiVersion", "kind")}
    assert main(["validate", "-f", written(tmp_path, items(bare, kind="RLJobList", version=API))]) == 0


def test_a_list_may_stand_in_a_list(tmp_path: Path) -> None:
    assert main(["validate", "-f", written(tmp_path, items(items(job("a"))))]) == 0


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (items(), "contains no RLJob; found nothing. Pass a manifest with apiVersion"),
        ({"kind": "List", "items": None}, "contains no RLJob; found nothing"),
        ({"kind": "List", "items": {"a": 1}}, "items of List must be a list of manifests"),
        ({"kind": "RLJobList", "apiVersion": API, "items": [5]}, "items[0] of RLJobList is 5, not a manifest; write"),
        ({"kind": "List", "items": [job("a"), "junk"]}, 'jobs.yaml: items[1] of List is "junk", not a manifest'),
        ({"kind": "List", "items": [job("a"), None]}, "items[1] of List is null, not a manifest"),
        ({"kind": "List", "items": [job("a"), ["x" * 99]]}, 'items[1] of List is ["' + "x" * 57 + "…, not a"),
        ({"kind": "List", "items": [job("a"), items("junk")]}, "items[1].items[0] of List is"),
        ({"kind": "List", "items": [job("a"), {"spec": {}}]}, "items[1] of List has no kind, so it is not a manifest"),
        (items({"kind": "ConfigMap"}), "found ConfigMap"),
    ],
)
def test_a_list_without_jobs_says_so(
    document: Json, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "-f", written(tmp_path, document)]) == 2
    assert told in capsys.readouterr().err


def generated(prefix: str = "sums-", **metadata: object) -> Json:
    made = {"apiVersion": API, "kind": "RLJob", "metadata": {"generateName": prefix, **metadata}}
    return {**made, "spec": small_spec()}


def test_a_generated_name_is_shown_with_a_star(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, generated())
    assert main(["validate", "-f", file]) == 0
    assert capsys.readouterr().out == f"{file}: sums-* is valid\n"
    assert main(["render", "-f", file]) == 0
    assert main(["explain", "-f", file, "trainer.steps"]) == 0
    assert main(["validate", "-f", written(tmp_path, generated(name="fixed"))]) == 0
    assert "fixed is valid" in capsys.readouterr().out


def test_a_prefix_leaves_room_for_what_the_server_appends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", written(tmp_path, generated("x" * 36))]) == 1
    assert "metadata.generateName: 36 characters; at most 35 are allowed" in capsys.readouterr().err


def test_a_job_without_a_name_cannot_be_compared_with_the_cluster(
    kubectl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, generated())
    assert main(["diff", "-f", file]) == 2
    assert "set metadata.name, or compare with a file by --against" in capsys.readouterr().err
    assert not (kubectl / "words").exists()
    assert main(["diff", "-f", file, "--against", file]) == 0


def test_unknown_keys_and_bad_places_are_violations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = job("a", specs={}) | {"metadata": {"name": "a", "namespace": "Bad NS"}}
    assert main(["validate", "-f", written(tmp_path, wrong)]) == 1
    told = capsys.readouterr().err
    assert "specs: is not a field of RLJob; did you mean spec?" in told
    assert "metadata.namespace: 'Bad NS' must be" in told


COMMANDS = (["validate"], ["render"], ["render", "--part", "job"], ["explain", "trainer"], ["plan", "memory"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_one_job_is_an_object_and_several_are_a_list(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = {"path": "/m", "architecture": "Qwen2.5-0.5B"}
    sized = {"accelerator": {"class": "atlas-a2"}, "model": model, "trainer": {"microBatchSizePerDevice": 1}}
    one, other = (job(name, spec=small_spec(sized)) for name in ("a", "b"))
    size = 2 if command == ["render"] else 1
    for documents, count in (((one,), 1), ((one, other), 2)):
        file = written(tmp_path, *documents)
        assert main([*command, "-f", file, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, dict if count * size == 1 else list)
        assert len(found if isinstance(found, list) else [found]) == count * size
        assert main([*command, "-f", file, "-o", "yaml"]) == 0
        assert len(list(yaml.safe_load_all(capsys.readouterr().out))) == count * size


def test_verdicts_are_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = job("a")
    wrong["spec"]["trainer"]["steps"] = 0
    doubtful = small_spec(saved({"everySteps": 1_000}))
    file = written(tmp_path, wrong, job("b", spec=doubtful))
    assert main(["validate", "-f", file, "-o", "json"]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    first, second = json.loads(captured.out)
    assert (first["namespace"], first["job"], first["valid"]) == ("team-a", "a", False)
    assert [each["field"] for each in first["violations"]] == ["spec.trainer.steps"]
    assert (second["valid"], second["violations"]) == (True, [])
    assert [each["field"] for each in second["warnings"]] == ["spec.checkpoint.everySteps"]


def test_violations_of_every_job_are_reported_and_nothing_is_rendered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [job(name, spec=small_spec({"trainer": {"steps": 0}})) for name in ("a", "b")]
    for command in (["render"], ["explain"], ["plan", "memory"]):
        assert main([*command, "-f", written(tmp_path, *wrong, job("c"))]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert [line.split(": ")[1] for line in captured.err.splitlines()] == ["a", "b"]


def test_differences_are_data_by_job_and_namespace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [job("a"), job("a") | {"metadata": {"name": "a", "namespace": "team-b"}}]
    after = [before[0], {**before[1], "spec": small_spec({"trainer": {"steps": 50}})}]
    for folder, documents in (("old", before), ("new", after)):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, *documents)
    words = ["diff", "-f", str(tmp_path / "new"), "--against", str(tmp_path / "old"), "-o", "json"]
    assert main(words) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["namespace"], first["changes"]) == ("team-a", [])
    assert second["changes"] == [{"field": "trainer.steps", "from": "40", "to": "50"}]
    assert main([*words[:2], str(tmp_path / "old"), *words[3:]]) == 0


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml11.dump_all([job("a")])))
    assert main(["validate", "-f", "-", "-f", "-"]) == 2
    assert "is given twice" in capsys.readouterr().err


def test_a_file_has_a_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(yaml11, "SIZE_MAX", 1 << 20)
    path = tmp_path / "big.yaml"
    path.write_text("#" * (1 << 20))
    assert main(["validate", "-f", str(path)]) == 2
    assert "contains no RLJob" in capsys.readouterr().err
    path.write_text("#" * ((1 << 20) + 1))
    assert main(["validate", "-f", str(path)]) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("#" * (2 << 20)))
    assert main(["validate", "-f", "-"]) == 2
    assert capsys.readouterr().err.count("larger than 1 MiB; split it") == 2
    config = tmp_path / "config.json"
    config.write_bytes(b" " * ((4 << 20) + 1))
    assert main(["plan", "memory", written(tmp_path, job("a")), "--model-config", str(config)]) == 2
    assert "larger than 4 MiB; pass the config.json" in capsys.readouterr().err
