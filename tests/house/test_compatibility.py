"""docs/compatibility.md names the releases that the repository pins and tests."""

from __future__ import annotations

import re

import pytest
import yaml

from rljob.cli.volcano import FOR_MINDCLUSTER, TESTED
from rljob.launchers.verl.versions import VERSIONS
from scripts.compat import SOURCES
from scripts.compat import VERSIONS as PYTHONS
from tests.cluster.programs import program
from upstream.newer.pins import MODULES, PROGRAMS, ROOT, pins

PAGE = (ROOT / "docs/compatibility.md").read_text()
OF_PROGRAMS = {"Kubernetes": "kube", "KubeRay": "kuberay", "Helm": "helm", "Kueue": "kueue", "Volcano": "volcano"}
OTHERS = {
    "Kubernetes": ("kube-1.34", "k8s.io/kubernetes"),
    "KubeRay": ("kuberay-1.5", "github.com/ray-project/kuberay/ray-operator"),
    "Helm": ("helm3", "helm.sh/helm/v3"),
}


def rows() -> dict[str, tuple[str, str]]:
    """Return the pinned and the other releases of each component."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("|")]
    return {row[0]: (row[1], row[2]) for row in cells[2:]}


def test_the_pinned_releases_are_those_of_the_repository() -> None:
    by_module = {pin.name: pin.version.removeprefix("v") for pin in pins()}
    expected = {name: by_module[MODULES[folder]] for name, folder in OF_PROGRAMS.items()}
    expected |= {name: VERSIONS[name] for name in ("verl", "vLLM", "Ray", "vllm-ascend", "torch-npu", "CANN")}
    seen = {name: pinned for name, (pinned, _) in rows().items() if name in expected}
    assert seen == expected


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_releases_are_those_that_are_built(name: str) -> None:
    folder, module = OTHERS[name]
    found = re.search(rf"{re.escape(module)} v(\S+)", (PROGRAMS / folder / "go.mod").read_text())
    assert found is not None
    assert rows()[name][1] == found[1]
    versions = [text for text in program(folder).variables if text.rpartition("=")[2].startswith("v")]
    assert all(text.endswith(f"=v{found[1]}") for text in versions)


def test_the_ray_without_tokens_is_the_one_that_is_locked() -> None:
    lock = (ROOT / "requirements/ray-unauthenticated.txt").read_text()
    assert f"\nray=={rows()['Ray'][1]} " in lock


def test_the_releases_of_volcano_that_doctor_compares_are_those_of_the_page() -> None:
    assert rows()["Volcano"][0] == TESTED
    (*first, last), (text,) = FOR_MINDCLUSTER, re.findall(r"for Volcano (.+)\n  \(.+\), 7.x for 1.7", PAGE)
    assert text == f"{', '.join(first[1:])} and {last}"


def test_every_supported_python_is_named() -> None:
    for name in ("Python of the command line", "Python of images with an injected runtime"):
        pinned, others = rows()[name]
        assert (pinned, *others.split(", ")) == PYTHONS


def test_what_the_page_says_about_limits_is_true() -> None:
    chart = yaml.safe_load((ROOT / "charts/rljob-operator/Chart.yaml").read_text())
    (oldest,) = re.findall(r"The chart accepts Kubernetes (\S+) and later", PAGE)
    assert chart["kubeVersion"] == f">={oldest}.0-0"
    assert all(f"`{package}`" in PAGE for package in SOURCES)
