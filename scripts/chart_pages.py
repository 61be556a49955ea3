"""The chart's README and the schema of its values, from values.yaml.

The type of a value is that of its default. Lines `# @schema` above a value have its other constraints as YAML without
the outer braces; several lines are one text. `is: NAME` in any place stands for a schema of NAMED.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.schema import structural_schema

CHART = Path(__file__).resolve().parent.parent / "charts/rljob-operator"
VALUES, SCHEMA, README = CHART / "values.yaml", CHART / "values.schema.json", CHART / "README.md"
HEAD = """# rljob-operator

The chart of RLJob, an operator for RL post-training of large language models on Ascend NPU
clusters. Requirements: Kubernetes 1.30 or newer, Helm 3.14 or newer, and KubeRay's operator with its CRDs.

    helm install rljob-operator . --namespace rljob-system --create-namespace

`helm upgrade --reset-then-reuse-values` takes the defaults of new values; `--reuse-values` does not.

## Values

Generated from values.yaml by `make generate`; do not edit.

| value | default | |
|---|---|---|
"""


ANNOTATION = "@schema"
TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
NAME, NAMESPACE = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
CARDS = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
NAMED: dict[str, dict[str, Any]] = {
    "name": {"type": "string", "pattern": f"^{NAME}$", "maxLength": 253},
    "name or empty": {"type": "string", "pattern": f"^({NAME})?$", "maxLength": 253},
    "namespace": {"type": "string", "pattern": f"^{NAMESPACE}$", "maxLength": 63},
    "namespace or empty": {"type": "string", "pattern": f"^({NAMESPACE})?$", "maxLength": 63},
    "strings": {"type": "object", "additionalProperties": {"type": "string"}},
    "objects": {"type": "array", "items": {"type": "object"}},
    "named objects": {
        "type": "array",
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1}}},
    },
    "interval": {"type": "string", "pattern": "^[0-9]+(s|m)$"},
    "quantity": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"},
    "cards by flavor": {"type": "object", "propertyNames": {"is": "name"}, "additionalProperties": CARDS},
    "accelerator": structural_schema(AcceleratorFacts) | {"additionalProperties": False},
}
"""Schemas that several values share, by the name that `is` in an annotation refers to."""
Comments = dict[tuple[str, ...], str]


@dataclass(frozen=True)
class Value:
    """A value of the chart."""

    path: tuple[str, ...]
    default: object
    comment: str
    """The comment above the value in values.yaml."""


def values() -> Iterator[Value]:
    """Yield the values in the order of the file; maps with entries only if a comment stands above them."""
    comments = dict(_comments(VALUES.read_text().splitlines()))
    for path, default in _leaves(yaml.safe_load(VALUES.read_text()), ()):
        yield Value(path, default, comments.get(path, ""))


def _leaves(node: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in node.items():
        below = (*path, key)
        if isinstance(value, dict) and value:
            yield below, None
            yield from _leaves(value, below)
        else:
            yield below, value


def _comments(lines: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and comment of each key; a comment belongs to the key that follows it without an empty line."""
    for path, said in _commented(lines):
        yield path, " ".join(line for line in said if not line.startswith(ANNOTATION))


def _annotations(lines: list[str]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield path and constraints of each key that has some."""
    for path, said in _commented(lines):
        text = " ".join(line.removeprefix(ANNOTATION).strip() for line in said if line.startswith(ANNOTATION))
        if text:
            yield path, yaml.safe_load(f"{{{text}}}")


def _commented(lines: list[str]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    path: list[tuple[int, str]] = []
    said: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("#"):
            said.append(text.removeprefix("#").strip())
            continue
        if not text:
            said = []
            continue
        key, colon, _ = text.partition(":")
        if colon and not text.startswith("-"):
            indent = len(line) - len(line.lstrip())
            path = [entry for entry in path if entry[0] < indent] + [(indent, key)]
            yield tuple(name for _, name in path), said
        said = []


def readme_text() -> str:
    """Return the README of the chart."""
    rows = []
    for value in values():
        if value.default is None and not value.comment:
            continue
        default = "" if value.default is None else f"`{json.dumps(value.default)}`"
        comment = value.comment.replace("|", "\\|")
        rows.append(f"| `{'.'.join(value.path)}` | {default} | {comment} |")
    return HEAD + "\n".join(rows) + "\n"


def schema_text() -> str:
    """Return the schema of the values. Values that it does not have are rejected."""
    lines = VALUES.read_text().splitlines()
    known = dict(_annotations(lines))
    node = _object(yaml.safe_load(VALUES.read_text()), (), known, dict(_comments(lines)))
    # Helm passes it to every chart.
    node["properties"]["global"] = {"description": "Values of a parent chart; not used.", "type": "object"}
    if wrong := sorted(known):
        raise ValueError(f"{VALUES}: @schema above {'.'.join(wrong[0])}, which is no value of its own")
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the rljob-operator chart"}
    return json.dumps(head | node, indent=2, ensure_ascii=False) + "\n"


Constraints = dict[tuple[str, ...], dict[str, Any]]


def _object(values: dict[str, Any], path: tuple[str, ...], known: Constraints, comments: Comments) -> dict[str, Any]:
    properties = {key: _schema(value, (*path, key), known, comments) for key, value in values.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _schema(value: object, path: tuple[str, ...], known: Constraints, comments: Comments) -> dict[str, Any]:
    """Return the schema of a value, and take its constraints out of those that are known."""
    stated: dict[str, Any] = _expanded(known.pop(path, {}))
    described = {"description": comments[path]} if comments.get(path) else {}
    if isinstance(value, dict) and value and "type" not in stated:
        made = _object(value, path, known, comments)
        made["properties"] |= stated.pop("properties", {})
        return {**described, **made, **stated}
    if "type" not in stated and "enum" not in stated:
        if type(value) not in TYPES:
            raise ValueError(f"{VALUES}: {'.'.join(path)} has no default of a known type; state `@schema type: ...`")
        stated = {"type": TYPES[type(value)]} | stated
    return {**described, **stated}


def _expanded(node: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema with the names of NAMED replaced by what they stand for."""
    if isinstance(node, list):
        return [_expanded(each) for each in node]
    if not isinstance(node, dict):
        return node
    used = _expanded(NAMED[node["is"]]) if "is" in node else {}
    return used | {key: _expanded(value) for key, value in node.items() if key != "is"}
