"""What Artifact Hub shows of the chart: CRDs with valid examples, and of a release its images, changes and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rljob.cli.main import main
from scripts import artifact_hub
from scripts.artifact_hub import SignKey
from scripts.release import chart
from scripts.release.images import OWN, own_name, read_names
from tests.chart.helm import CHART, ROOT, helm

REGISTRY, VERSION = "registry.example.com/rl", "9.8.7"
KEY = SignKey("C874011F0AB405110D02105534365D9472D7468F", "https://example.com/rljob.asc")
JOBS = {"RLRecipe": "examples/algorithms/grpo.yaml", "ClusterRLRecipe": "examples/recipes/tiny-cpu-grpo.yaml"}
"""Kind of a recipe -> a job that is based on its example."""
SOURCE = "https://git.example.com/rljob"


def shown(folder: Path) -> dict[str, Any]:
    """Return the annotations of a chart as Artifact Hub reads them."""
    found = yaml.safe_load((folder / "Chart.yaml").read_text())["annotations"]
    assert all(isinstance(value, str) for value in found.values()), "Helm's annotations are strings"
    return {name.removeprefix("artifacthub.io/"): yaml.safe_load(value) for name, value in found.items()}


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    words = [REGISTRY, VERSION, str(tmp_path / "chart"), "--sign-key", KEY.fingerprint, KEY.url, "--source", SOURCE]
    chart.main(words)
    return tmp_path / "chart"


def test_every_crd_is_listed_with_an_example() -> None:
    found = shown(CHART)
    crds = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert len(crds) == 3
    rows = {row["name"]: row for row in found["crds"]}
    assert set(rows) == {crd["metadata"]["name"] for crd in crds}
    for crd in crds:
        (version,) = (each for each in crd["spec"]["versions"] if each["storage"])
        row, kind = rows[crd["metadata"]["name"]], crd["spec"]["names"]["kind"]
        assert (row["kind"], row["version"]) == (kind, version["name"])
        assert row["description"].endswith(".")
        examples = [each for each in found["crdsExamples"] if each["kind"] == kind]
        assert [each["apiVersion"] for each in examples] == [f"{crd['spec']['group']}/{row['version']}"]
    assert {"category", "license", "operator", "operatorCapabilities"} <= set(found)
    assert all(link["url"].startswith("https://") for link in found["links"])


def test_the_examples_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for example in shown(CHART)["crdsExamples"]:
        kind, path = example["kind"], tmp_path / f"{example['kind']}.yaml"
        job = [] if kind == "RLJob" else ["-f", str(ROOT / JOBS[kind])]
        path.write_text(json.dumps(example))
        assert main(["validate", "-f", str(path), *job]) == 0, capsys.readouterr()
        (example["spec"] if kind == "RLJob" else example["spec"]["template"])["misspelt"] = 1
        path.write_text(json.dumps(example))
        assert main(["validate", "-f", str(path), *job]) != 0, kind
        assert "misspelt" in capsys.readouterr().err


def test_numbers_in_texts_stay_texts() -> None:
    """A parser of YAML 1.2, such as Artifact Hub's, reads 5e-4 as a number, which the CRD refuses."""
    (job,) = (each for each in shown(CHART)["crdsExamples"] if each["kind"] == "RLJob")
    assert job["spec"]["trainer"]["learningRate"] == "5e-4"
    assert "learningRate: '5e-4'" in (CHART / "Chart.yaml").read_text()


def test_a_release_names_its_images_its_changes_and_its_key(staged: Path) -> None:
    found = shown(staged)
    listed = {image["image"]: tuple(image["platforms"]) for image in found["images"]}
    assert listed == {own_name(image, REGISTRY, VERSION): image.platforms for image in OWN}
    assert set(listed) <= set(read_names((staged / "images.txt").read_text()))
    assert len({image["name"] for image in found["images"]}) == len(OWN)
    assert found["signKey"] == {"fingerprint": KEY.fingerprint, "url": KEY.url}
    assert found["prerelease"] is False
    assert "rljob.local" not in (staged / "Chart.yaml").read_text()
    assert found["changes"]
    about = yaml.safe_load((staged / "Chart.yaml").read_text())
    assert (about["home"], about["sources"]) == (SOURCE, [SOURCE])
    answer = helm("lint", "--strict", staged)
    assert answer.code == 0, answer.stdout + answer.stderr


def test_a_candidate_is_marked_and_an_unsigned_chart_names_no_key(tmp_path: Path) -> None:
    chart.stage(REGISTRY, "9.8.7-rc.1", tmp_path / "chart")
    found = shown(tmp_path / "chart")
    assert found["prerelease"] is True
    assert "signKey" not in found


def test_changes_are_the_first_sentences_of_the_version_in_the_changelog() -> None:
    text = """# Changelog

## Unreleased

### Added

- **Later**: not in it.

## 9.8.7 - 2026-12-01

### Added

- **Boards** ([guide](docs/guides/monitoring.md)): five of `e.g. Grafana`. They
  have rows.

### Fixed

- A job with two groups
  starts. It did not.

## 9.8.6

### Fixed

- Older.
"""
    assert artifact_hub.changes(text, "9.8.7") == [
        {"kind": "added", "description": "Boards: five of `e.g. Grafana`."},
        {"kind": "fixed", "description": "A job with two groups starts."},
    ]
    assert [row["description"] for row in artifact_hub.changes(text, "9.9.0")] == ["Later: not in it."]
    with pytest.raises(ValueError, match="News is not one of"):
        artifact_hub.changes(text.replace("### Fixed", "### News"), "9.8.7")
