"""No field is ignored silently: each one of the schema is used, or has a sentence that explains why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.local.fields import TREATMENT, treatment, without_effect
from rljob.cli.local.translate import POD_PATHS

NO_POD_PATHS = {
    "export.to.path",
    "evaluation.validation[]",
    "reward.judge.path",
    "code.mountPath",
    "runtime.packages.wheelhouse",
    *(
        f"{pod}.template.{containers}[].{field}"
        for pod in ("head", "workerGroups[]")
        for containers in ("initContainers", "sidecars")
        for field in ("workingDir", "volumeMounts[].mountPath")
    ),
    "head.template.volumeMounts[].mountPath",
    "head.template.volumes[].hostPath.path",
    "head.template.volumes[].nfs.path",
    "workerGroups[].template.volumeMounts[].mountPath",
    "workerGroups[].template.volumes[].hostPath.path",
    "workerGroups[].template.volumes[].nfs.path",
}
"""Paths that define the mounts, instead of being on them."""
SCHEMA = RLJobSpec.model_json_schema(by_alias=True)


def leaves(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]] | {k: v for k, v in node.items() if k != "$ref"}
    branches = [branch for branch in node.get("anyOf", []) if branch.get("type") != "null"]
    if branches:
        yield from leaves(branches[0], path)
    elif "properties" in node:
        for name, member in node["properties"].items():
            yield from leaves(member, f"{path}.{name}" if path else name)
    elif node.get("type") == "array" and isinstance(node.get("items"), dict):
        yield from leaves(node["items"], f"{path}[]")
    else:
        yield path, node


def test_every_field_has_a_treatment() -> None:
    names = [path for path, _ in leaves(SCHEMA, "")]
    assert len(names) > 150
    for name in names:
        treatment(name)


def test_every_row_names_a_field() -> None:
    names = [path for path, _ in leaves(SCHEMA, "")]
    for row in TREATMENT:
        assert any(name == row or name.startswith((f"{row}.", f"{row}[")) for name in names), row


def test_every_path_is_rewritten_or_makes_a_mount() -> None:
    paths = {name for name, node in leaves(SCHEMA, "") if node.get("pattern") == "^/"}
    assert paths == set(POD_PATHS) | NO_POD_PATHS


def test_fields_without_effect_are_listed_by_reason() -> None:
    spec = {
        "suspend": False,
        "runtime": {"image": "i"},
        "workerGroups": [{"name": "trainer", "nodes": 1, "template": {"cpu": "1", "env": [{"name": "A"}]}}],
        "services": [{"name": "sandbox"}],
        "restart": {},
        "trainer": {"steps": 3},
    }
    told = without_effect(spec)
    assert sorted(field for fields in told.values() for field in fields) == [
        "runtime",
        "services",
        "workerGroups[trainer].template.cpu",
    ]
