"""Manifests for sites without Helm, the list of images, and the commands of a release and of a mirror."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from scripts.release import __main__ as release
from scripts.release import chart, manifest, mirror
from scripts.release.images import OWN, images_text, read_names
from tests.chart.helm import NAMESPACE, ROOT, helm, pick, render
from tests.cluster import programs

PLAIN = ROOT / "deploy/kustomize/operator.yaml"
KEY = "rljob-operator-token-key"
HEADER = "# Rendered from the chart by RLJOB_WRITE_GOLDEN=1 make chart; do not edit.\n"
REGISTRY, VERSION = "registry.example.com/rl", "9.8.7"
SITE = [
    *("--build-arg", "BASE_IMAGE=docker.io/library/python@sha256:1"),
    *("--build-arg", "TRITON_ASCEND_WHEEL=triton.whl", "--build-arg", "TRITON_ASCEND_SHA256=2"),
]
WORDS = ["--registry", REGISTRY, "--version", VERSION]


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    made = render("--set", f"crds.enabled=false,tokenKey.existingSecret={KEY}")
    text = HEADER + yaml.safe_dump_all(made, sort_keys=False, width=120)
    if os.environ.get("RLJOB_WRITE_GOLDEN"):
        PLAIN.write_text(text)
    assert PLAIN.read_text() == text
    assert not [manifest for manifest in made if manifest["kind"] in ("Secret", "CustomResourceDefinition")]


def test_kustomize_builds_them_with_the_image_of_a_site(tmp_path: Path) -> None:
    base = os.path.relpath(PLAIN.parent, tmp_path)
    image = {"name": "rljob.local/operator", "newName": f"{REGISTRY}/operator", "newTag": VERSION}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "images": [image]}))
    programs.build(["kube"])
    kubectl = programs.entry("kube") / "kubectl"
    built = subprocess.check_output([kubectl, "kustomize", str(tmp_path)], text=True, timeout=60)
    found = list(yaml.safe_load_all(built))
    assert len(found) == 1 + len(list(yaml.safe_load_all(PLAIN.read_text())))
    pod = pick(found, "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{REGISTRY}/operator:{VERSION}"
    assert {manifest["metadata"].get("namespace", NAMESPACE) for manifest in found} <= {NAMESPACE, "kube-system"}


def test_one_file_has_everything_that_an_installation_applies() -> None:
    found = list(yaml.safe_load_all(manifest.INSTALL.read_text()))
    crds = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    operator = list(yaml.safe_load_all(PLAIN.read_text()))
    # What refers to the namespace and to the CRDs comes after them.
    assert [each["kind"] for each in found[:4]] == ["Namespace"] + ["CustomResourceDefinition"] * 3
    assert sorted(found[1:4], key=lambda crd: crd["metadata"]["name"]) == sorted(
        crds, key=lambda crd: crd["metadata"]["name"]
    )
    for applied, rendered in zip(found[4:], operator, strict=True):
        of_helm = {"app.kubernetes.io/managed-by", "helm.sh/chart"}
        metadata = [rendered["metadata"]]
        if rendered["kind"] == "Deployment":
            metadata.append(rendered["spec"]["template"]["metadata"])
        for each in metadata:
            each["labels"] = {key: value for key, value in each["labels"].items() if key not in of_helm}
        assert applied == rendered
    assert manifest.INSTALL.stat().st_size < 2**20


def test_the_file_of_a_release_names_its_image() -> None:
    text = manifest.released(manifest.INSTALL.read_text(), REGISTRY, VERSION)
    found = list(yaml.safe_load_all(text))
    pod = pick(found, "Deployment")["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == f"{REGISTRY}/operator:{VERSION}"
    assert f"--runtime-image={REGISTRY}/operator:{VERSION}" in pod["spec"]["containers"][0]["args"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/version"] == VERSION
    # The policies allow this image where images are limited.
    assert "rljob.local/operator" not in text
    with pytest.raises(ValueError, match="run `make generate`"):
        manifest.released("kind: Namespace\n", REGISTRY, VERSION)


def test_one_value_moves_every_image_to_another_registry() -> None:
    made = render("--set", f"image.registry={REGISTRY},prePull.enabled=true,prePull.images={{runtime:a3}}")
    pods = [pick(made, "Deployment")["spec"], pick(made, "DaemonSet", "rljob-operator-prepull")["spec"]]
    specs = [pod["template"]["spec"] for pod in pods]
    images = {c["image"] for spec in specs for c in spec["containers"] + spec.get("initContainers", [])}
    assert images == {f"{REGISTRY}/operator:dev", f"{REGISTRY}/runtime:a3"}
    arguments = specs[0]["containers"][0]["args"]
    assert f"--runtime-image={REGISTRY}/operator:dev" in arguments


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("image.registry=", "registry"),
        ("image.registry=Registry.example.com", "does not match pattern"),
        ("prePull.images={a b}", "does not match pattern"),
        ("extraEnv[0].value=x", "missing property 'name'"),
        ("extraObjects[0].kind=Secret", "missing propert"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, complaint: str) -> None:
    answer = helm("template", "x", ROOT / "charts/rljob-operator", "--set", setting)
    assert answer.code != 0
    assert complaint in answer.stderr


def test_a_release_names_its_own_images(tmp_path: Path) -> None:
    chart.stage(REGISTRY, VERSION, tmp_path / "chart")
    answer = helm("template", "rljob-operator", tmp_path / "chart", "--namespace", NAMESPACE)
    assert answer.code == 0, answer.stderr
    assert f'image: "{REGISTRY}/operator:{VERSION}"' in answer.stdout
    assert f"{REGISTRY}/operator:{VERSION}" in read_names((tmp_path / "chart/images.txt").read_text())
    packaged = helm("package", tmp_path / "chart", "--version", VERSION, "--destination", tmp_path)
    assert packaged.code == 0, packaged.stderr
    assert (tmp_path / f"rljob-operator-{VERSION}.tgz").exists()


def test_a_dry_run_of_a_release_prints_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main([*WORDS, *SITE, "--sign", "cosign.key"]) == 0
    lines = capsys.readouterr().out.splitlines()
    programs_used = {line.split()[0].rpartition("/")[2] for line in lines}
    assert {name for name in programs_used if not name.startswith("python")} == {"uvx", "buildah", "sh", "helm"}
    builds = [line.split() for line in lines if line.startswith("buildah build")]
    assert len(builds) == len(OWN)
    for words, image in zip(builds, OWN, strict=True):
        dockerfile = ROOT / words[words.index("-f") + 1]
        declared = {
            line.split()[1].partition("=")[0] for line in dockerfile.read_text().splitlines() if line[:4] == "ARG "
        }
        given = {
            word.partition("=")[0] for word, before in zip(words[1:], words, strict=False) if before == "--build-arg"
        }
        assert given <= declared, image.name
        assert set(image.required) <= given
    assert any('operator@$(cat dist/operator.digest)"' in line for line in lines)
    for line in lines:
        if line.startswith("sh -c"):
            assert subprocess.run(["sh", "-n", "-c", line], check=False, timeout=10).returncode == 0
    assert not any("cosign" in line for line in _printed(capsys, [*WORDS, *SITE]))


def _printed(capsys: pytest.CaptureFixture[str], words: list[str]) -> list[str]:
    assert release.main(words) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([*WORDS], "operator needs --build-arg operator/BASE_IMAGE=VALUE; see images/operator/Dockerfile"),
        ([*WORDS, "--build-arg", "BASE_IMAGE"], "no value; write NAME=VALUE"),
        (["--registry", REGISTRY, "--version", "one"], "not a semantic version"),
    ],
)
def test_what_a_release_lacks_is_told(capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    try:
        code = release.main(words)
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert complaint in capsys.readouterr().err


def test_a_mirror_gets_every_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = read_names(images_text(REGISTRY, VERSION))
    (tmp_path / "images.txt").write_text(images_text(REGISTRY, VERSION))
    assert mirror.main(["--to", "mirror.example.com/rl", "--images", str(tmp_path / "images.txt")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed.pop() == "# helm install: --set image.registry=mirror.example.com/rl/rl"
    assert len(printed) == len(names)
    assert (
        f"skopeo copy --all docker://{REGISTRY}/operator:{VERSION} docker://mirror.example.com/rl/rl/operator:{VERSION}"
        in printed
    )


def test_a_mirror_goes_on_after_an_image_that_cannot_be_copied(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images.txt").write_text("a.example.com/one:1  # first\nb.example.com/two:2\n")
    tool = tmp_path / "crane"
    tool.write_text('#!/bin/sh\necho "$@" >> ' + str(tmp_path / "seen") + '\ncase "$2" in *one:1) exit 1;; esac\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ["--to", "m.example.com", "--images", str(tmp_path / "images.txt"), "--tool", "crane", "--run"]
    assert mirror.main(words) == 1
    assert (tmp_path / "seen").read_text().splitlines() == [
        "copy a.example.com/one:1 m.example.com/one:1",
        "copy b.example.com/two:2 m.example.com/two:2",
    ]
    assert "not copied: a.example.com/one:1" in capfd.readouterr().err


def test_every_value_is_described_in_readme_and_schema() -> None:
    schema = json.loads((ROOT / "charts/rljob-operator/values.schema.json").read_text())
    assert schema["properties"]["prePull"]["properties"]["enabled"]["description"].startswith(
        "Pull images to the nodes"
    )
    assert '| `image.registry` | `"rljob.local"` |' in (ROOT / "charts/rljob-operator/README.md").read_text()
