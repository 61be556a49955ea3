"""`rljob render`: whose image brings the runtime of a job with injection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from builders import Json, small_spec

from rljob.cli.main import main
from rljob.render.accelerator_table import OPERATOR_IMAGE

INSTALLED = "registry.example/rljob/operator:1.2.3"


def job_file(folder: Path, injection: str = "Auto") -> str:
    path = folder / "job.yaml"
    document = {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "sums"},
        "spec": small_spec({"runtime": {"injection": injection}}),
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def deployment(*args: str) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"args": list(args)}, {}]}}}}


def injected(page: str) -> str:
    manifests = page.split("---\n# job.json", maxsplit=1)[0]
    cluster = next(document for document in yaml.safe_load_all(manifests) if document)
    containers = cluster["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"]
    return next(str(found["image"]) for found in containers if found["name"] == "rljob-runtime")


def test_the_default_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = job_file(tmp_path)
    assert main(["render", "-f", file]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"# {OPERATOR_IMAGE} is the default of the operator's image")
    assert injected(page) == OPERATOR_IMAGE
    assert main(["render", "-f", file, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)
    assert "state it by --runtime-image, or read it from the cluster by --cluster" in told.err


def test_a_stated_image_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", job_file(tmp_path), "--runtime-image", INSTALLED]) == 0
    page = capsys.readouterr().out
    assert injected(page) == INSTALLED
    assert not page.startswith("#")


def test_job_json_alone_names_no_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", job_file(tmp_path), "--part", "job"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "sums"


def test_without_injection_no_image_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", job_file(tmp_path, "Never")]) == 0
    assert OPERATOR_IMAGE not in capsys.readouterr().out


def test_the_image_of_the_installed_operator_is_read_from_its_deployment(
    kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--workers=4", f"--runtime-image={INSTALLED}")
    (kubectl / "answer").write_text(json.dumps({"items": [deployment(*args), deployment(*args)]}))
    assert main(["render", "-f", job_file(kubectl), "--cluster", "--context", "there"]) == 0
    assert injected(capsys.readouterr().out) == INSTALLED
    words = (kubectl / "words").read_text()
    assert words.startswith("get deployments.apps --all-namespaces --selector app.kubernetes.io/part-of=rljob")
    assert "--context there" in words


@pytest.mark.parametrize("items", [[], [deployment("--runtime-image=a"), deployment("--runtime-image=b")]])
def test_without_one_image_in_the_cluster_the_default_is_taken_and_called_so(
    kubectl: Path, capsys: pytest.CaptureFixture[str], items: list[Json]
) -> None:
    (kubectl / "answer").write_text(json.dumps({"items": items}))
    assert main(["render", "-f", job_file(kubectl), "--cluster"]) == 0
    page = capsys.readouterr().out
    assert "no single operator with an image was found in the cluster" in page.splitlines()[0]
    assert injected(page) == OPERATOR_IMAGE


def test_a_cluster_that_may_not_be_read_is_no_error(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "error").write_text("Error from server (Forbidden): deployments.apps is forbidden\n")
    assert main(["render", "-f", job_file(kubectl), "--cluster"]) == 0
    assert injected(capsys.readouterr().out) == OPERATOR_IMAGE


def test_a_command_that_needs_one_image_says_which_there_are(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [deployment("--runtime-image=a"), deployment("--runtime-image=b")]
    (kubectl / "answer").write_text(json.dumps({"items": found}))
    assert main(["check-image", "registry.example/x:1"]) == 2
    assert "different images: a, b; name the operator's image with --runtime-image" in capsys.readouterr().err
