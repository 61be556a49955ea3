"""What is refused before a release begins: versions that differ, names that nobody can pull, an empty changelog."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.release import __main__ as release
from scripts.release import checks

ASKED, _ = release.parse(["--registry", "registry.example.com/rl", "--version", "0.2.0"])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout of 0.2.0 with the files that state a version."""
    for name in checks.PROJECTS:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / checks.CHART).mkdir(parents=True)
    (tmp_path / checks.CHART / "Chart.yaml").write_text("version: 0.2.0\nappVersion: 0.2.0\n")
    text = "# Changelog\n\n## 0.2.0 - 2026-12-01\n\n### Added\n\n- A thing.\n"
    (tmp_path / "CHANGELOG.md").write_text(text)
    return tmp_path


def test_a_tree_of_the_version_is_accepted(tree: Path) -> None:
    assert list(checks.of_tree("0.2.0", tree)) == []


def test_every_other_version_in_the_tree_is_reported(tree: Path) -> None:
    assert [line.partition(";")[0] for line in checks.of_tree("0.3.0", tree)] == [
        "operator/pyproject.toml has version 0.2.0, not 0.3.0",
        "runtime/pyproject.toml has version 0.2.0, not 0.3.0",
        "charts/rljob-operator/Chart.yaml has version 0.2.0, not 0.3.0",
        "charts/rljob-operator/Chart.yaml has appVersion 0.2.0, not 0.3.0",
        "CHANGELOG.md has no heading `## 0.3.0 - DATE`",
    ]


@pytest.mark.parametrize(("python", "same"), [("0.2.0rc1", True), ("0.2.0-rc.1", True), ("0.2.0", False)])
def test_a_candidate_has_another_form_in_packages_of_python(tree: Path, python: str, same: bool) -> None:
    for name in checks.PROJECTS:
        (tree / name).write_text(f'[project]\nversion = "{python}"\n')
    found = [line for line in checks.of_tree("0.2.0-rc.1", tree) if "pyproject" in line]
    assert (found == []) is same


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# Changelog\n\n## Unreleased\n\n### Added\n\n- A.\n", "no heading `## 0.2.0 - DATE`; rename `Unreleased`"),
        ("# Changelog\n\n## 0.2.0 - 2026-12-01\n", "no entries for 0.2.0; list its changes"),
        ("# Changelog\n", "no heading"),
    ],
)
def test_a_version_without_changes_is_refused(tree: Path, text: str, complaint: str) -> None:
    (tree / "CHANGELOG.md").write_text(text)
    (line,) = checks.of_tree("0.2.0", tree)
    assert complaint in line


@pytest.mark.parametrize("version", ["0.2.0", "10.0.1", "1.0.0-rc.1", "1.0.0-0a", "1.0.0-x-y.0"])
def test_a_semantic_version_is_accepted(version: str) -> None:
    assert list(checks.of_names(replace(ASKED, version=version))) == []


@pytest.mark.parametrize("version", ["1", "01.2.3", "1.02.3", "1.2.3-01", "1.2.3-", "1.2.3+build", "v1.2.3", "1.2.3\n"])
def test_another_version_is_refused(version: str) -> None:
    (line,) = checks.of_names(replace(ASKED, version=version))
    assert "no semantic version" in line


@pytest.mark.parametrize(
    "registry", ["https://registry.example.com", "Registry.example.com/rl", "a b", "", "a//b", "rljob.local", "a\n"]
)
def test_a_registry_that_the_chart_would_refuse_is_refused(registry: str) -> None:
    assert len(list(checks.of_names(replace(ASKED, registry=registry)))) == 1


def test_a_slash_at_the_end_of_the_registry_is_left_out() -> None:
    asked, _ = release.parse(["--registry", "registry.example.com/rl/", "--version", "0.2.0"])
    assert asked.registry == "registry.example.com/rl"


def test_the_pattern_is_that_of_the_chart(tmp_path: Path) -> None:
    schema = {"properties": {"image": {"properties": {"registry": {"pattern": "^x$"}}}}}
    (tmp_path / checks.CHART).mkdir(parents=True)
    (tmp_path / checks.CHART / "values.schema.json").write_text(json.dumps(schema))
    assert list(checks.of_names(replace(ASKED, registry="x"), tmp_path)) == []
    assert len(list(checks.of_names(ASKED, tmp_path))) == 1


@pytest.mark.parametrize("key", ["", "keyless", "awskms:///alias/release", "env://COSIGN_KEY", "k8s://a/b"])
def test_a_key_that_is_no_file_is_not_searched(tmp_path: Path, key: str) -> None:
    found = list(checks.of_machine(replace(ASKED, key=key, dist=tmp_path), tmp_path))
    assert not [line for line in found if "no such file" in line]
