"""Manifests for sites without Helm, and the names of images."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from scripts.release import manifest
from scripts.release.images import images_text, read_names
from tests.chart.helm import NAMESPACE, ROOT, helm, pick, render
from tests.cluster import programs

PLAIN = ROOT / "deploy/kustomize/operator.yaml"
KEY = "rljob-operator-token-key"
HEADER = "# Rendered from the chart by RLJOB_WRITE_GOLDEN=1 make chart; do not edit.\n"
REGISTRY, VERSION = "registry.example.com/rl", "9.8.7"


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
    found = list(yaml.safe_load_all(manifest.install_text()))
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
    assert len(manifest.install_text().encode()) < 2**20


def test_the_file_of_a_release_names_its_image() -> None:
    text = manifest.released(manifest.install_text(), REGISTRY, VERSION)
    found = list(yaml.safe_load_all(text))
    pod = pick(found, "Deployment")["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == f"{REGISTRY}/operator:{VERSION}"
    assert f"--runtime-image={REGISTRY}/operator:{VERSION}" in pod["spec"]["containers"][0]["args"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/version"] == VERSION
    # The policies allow this image where images are limited.
    assert "rljob.local/operator" not in text
    with pytest.raises(ValueError, match="make chart"):
        manifest.released("kind: Namespace\n", REGISTRY, VERSION)


def test_every_image_of_a_manifest_is_listed(tmp_path: Path) -> None:
    listed = read_names((ROOT / "deploy/images.txt").read_text())
    of_a_release = read_names(images_text(REGISTRY, VERSION))
    for path in sorted((ROOT / "deploy").rglob("*.yaml")):
        assert set(named_images(path)) <= set(listed), path.name
    for name in manifest.OF:
        manifest.main(["--of", name, REGISTRY, VERSION, str(tmp_path / name)])
        found = named_images(tmp_path / name)
        assert found
        assert set(found) <= set(of_a_release), name
    with pytest.raises(ValueError, match="does not have one line"):
        manifest.released_devices("kind: DaemonSet\n", REGISTRY, VERSION)


def named_images(path: Path) -> list[str]:
    """Return the images of a file's pods, and those that arguments name."""
    pattern = r"^ *(?:- )?(?:image: |- --runtime-image=)\"?([^\s\"]+)\"?$"
    return re.findall(pattern, path.read_text(), re.MULTILINE)


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


def test_every_value_is_described_in_readme_and_schema() -> None:
    schema = json.loads((ROOT / "charts/rljob-operator/values.schema.json").read_text())
    assert schema["properties"]["prePull"]["properties"]["enabled"]["description"].startswith(
        "Pull images to the nodes"
    )
    assert '| `image.registry` | `"rljob.local"` |' in (ROOT / "charts/rljob-operator/README.md").read_text()
