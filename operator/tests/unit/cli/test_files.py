"""`rljob validate` and `rljob render` on files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import small_spec

from rljob.api import yaml11
from rljob.cli.main import main

ROOT = Path(__file__).resolve().parents[4]
QUICKSTART = ROOT / "examples/quickstart.yaml"


def quickstart() -> dict[str, Any]:
    document: dict[str, Any] = next(yaml.safe_load_all(QUICKSTART.read_text()))
    return document


def written(tmp_path: Path, *documents: object) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(yaml11.dump_all(list(documents)))
    return str(path)


def test_the_quickstart_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", str(QUICKSTART)]) == 0
    assert capsys.readouterr().out == f"{QUICKSTART}: quickstart is valid\n"


def test_a_manifest_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(QUICKSTART.read_text()))
    assert main(["validate", "-f", "-"]) == 0


def test_all_violations_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = quickstart()
    job["metadata"]["name"] = "Quick"
    job["spec"]["trainer"] |= {"globalBatchSize": 33, "samplesPerPrompt": 1, "learningRate": "0"}
    assert main(["validate", "-f", written(tmp_path, job)]) == 1
    told = capsys.readouterr().err
    assert "metadata.name" in told
    assert "spec.trainer.globalBatchSize" in told
    assert "spec.trainer.learningRate" in told


@pytest.mark.parametrize(
    ("documents", "complaint"),
    [
        ([{"kind": "ConfigMap"}], "contains no RLJob; found ConfigMap"),
        ([], "contains no RLJob; found nothing"),
        ([["a list"]], "contains no RLJob; found object without kind"),
        ([{"kind": "RLJob", "apiVersion": "rljob.dev/v9"}], "this version reads rljob.dev/v1alpha1"),
        ([{"kind": "RLJob", "apiVersion": "rljob.dev/v1alpha1", "spec": "x"}], "must be mappings"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: list[object], complaint: str
) -> None:
    assert main(["validate", "-f", written(tmp_path, *documents)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_file_and_broken_yaml_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    assert main(["validate", "-f", str(tmp_path / "absent.yaml")]) == 2
    assert main(["validate", "-f", str(broken)]) == 2
    told = capsys.readouterr().err
    assert "No such file or directory; pass a file, a folder or - for standard input" in told
    assert "not YAML: line 1, column 5: " in told
    assert told.count("\n") == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: 1\nb: {c: [\n", "not YAML: line 3, column 1: "),
        (b"a: 1\na: 2\n", "line 2, column 1: duplicate key 'a'; correct the file there"),
        (b"a: \x00", "not YAML: unacceptable character #x0000: special characters are not allowed"),
        (b"a: \xff", "save the file as UTF-8"),
        (b"[" * 200, "line 1, column 102: nested deeper than 100 levels; correct the file there"),
    ],
)
def test_yaml_that_cannot_be_read_is_one_line_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, told: str
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    assert main(["validate", "-f", str(path)]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_render_prints_initializer_raycluster_and_job_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", str(QUICKSTART)]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [document.get("kind") for document in documents] == ["Job", "RayCluster", None]
    assert documents[1]["metadata"]["name"] == documents[2]["clusterName"] == "quickstart-00000-1"


def test_render_prints_the_pod_group_of_a_gang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "sums"}}
    job = {**kind, "spec": small_spec({"scheduling": {"gang": "Volcano"}})}
    assert main(["render", "-f", written(tmp_path, job)]) == 0
    made = capsys.readouterr().out
    assert made.index("kind: PodGroup") < made.index("kind: RayCluster")


def test_render_prints_one_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", str(QUICKSTART), "--part", "job", "--uid", "abcdef01-2"]) == 0
    assert json.loads(capsys.readouterr().out)["clusterName"] == "quickstart-abcde-1"
    assert main(["render", "-f", str(QUICKSTART), "--part", "raycluster"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "RayCluster"


def test_an_invalid_job_is_not_rendered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = quickstart()
    del job["spec"]["model"]
    assert main(["render", "-f", written(tmp_path, job)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "spec.model: is required and not set" in captured.err


def test_what_is_doubtful_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = quickstart()
    job["spec"]["checkpoint"] = {"path": "/data/checkpoints", "everySteps": 1_000}
    assert main(["validate", "-f", written(tmp_path, job)]) == 0
    told = capsys.readouterr()
    assert told.out.endswith("quickstart is valid\n")
    assert "quickstart: warning: spec.checkpoint.everySteps" in told.err


def test_a_class_of_the_clusters_own_table_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "sums"}}
    manifest, table = tmp_path / "job.yaml", tmp_path / "table.yaml"
    manifest.write_text(yaml.safe_dump(job | {"spec": small_spec({"accelerator": {"class": "lab"}})}))
    table.write_text("lab: {description: x, platform: cpu, resource: huawei.com/npu, devicesPerNode: 4}\n")
    assert main(["validate", "-f", str(manifest), "--accelerators", str(table)]) == 0
    # The table is that of one command: the next one has the built-in classes again.
    assert main(["validate", "-f", str(manifest)]) == 1
    table.write_text("lab: {devicesPerNode: 0}\n")
    assert main(["validate", "-f", str(manifest), "--accelerators", str(table)]) == 2
    told = capsys.readouterr().err
    assert "class lab does not exist" in told
    assert "accelerators.lab.devicesPerNode: 0: Input should be greater than or equal to 1" in told


@pytest.mark.parametrize("output", [[], ["-o", "json"], ["-o", "yaml"]], ids=str)
@pytest.mark.parametrize("command", [["validate"], ["explain", "verl"], ["render"]], ids=str)
def test_half_a_character_ends_no_command(
    command: list[str], output: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "actor_rollout_ref.rollout.engine_kwargs.vllm.compilation_config"
    job = quickstart()
    job["spec"]["verl"] = {"overrides": {key: '{"\\ud800": 1}'}}
    assert main([*command, "-f", written(tmp_path, job), *output]) == 1
    said = capsys.readouterr()
    assert "compilation_config.?: verl" in said.out + said.err


@pytest.mark.parametrize("output", [[], ["-o", "json"], ["-o", "yaml"]], ids=str)
def test_a_file_name_that_is_no_utf8_ends_no_command(
    output: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(written(tmp_path, quickstart())).rename(tmp_path / "half-\udcff.yaml")
    assert main(["validate", "-f", str(path), *output]) == 0
    assert "half-" in capsys.readouterr().out
