"""The chart's README, and the descriptions in its schema, from the comments of values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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


@dataclass(frozen=True)
class Value:
    """A value of the chart."""

    path: tuple[str, ...]
    default: object
    comment: str
    """What values.yaml says above it."""


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
            yield tuple(name for _, name in path), " ".join(said)
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
    """Return the schema with the comments as descriptions; its constraints are written by hand."""
    schema = json.loads(SCHEMA.read_text())
    for value in values():
        node = schema
        for key in value.path:
            node = node.get("properties", {}).get(key)
            if node is None:
                break
        if node is not None and value.comment:
            node["description"] = value.comment
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
